"""`ringloop.watchdog`: tells of a callback while it holds its loop up."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import ringloop
from tests import support
from tests.support import wait_until, wait_until_blocking

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

pytestmark = pytest.mark.one_thread("it looks at the log and the threads of the process")


@pytest.fixture(autouse=True)
def ours(loop_name: str) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio's loops have no pulse")


class Hook:
    """Collects the stalls of one callback; `release` is set once one has come.

    On a busy machine others hold their loop up, too.
    """

    def __init__(self, callback: str) -> None:
        self.callback = callback
        self.stalls: list[ringloop.Stall] = []
        self.release = threading.Event()

    def __call__(self, stall: ringloop.Stall) -> None:
        if self.callback in stall.callback:
            self.stalls.append(stall)
            self.release.set()

    def stall(self) -> None:
        """Hold the loop up until the watchdog has told of it."""
        assert self.release.wait(support.PATIENCE_SECONDS)


def test_stack_is_read_while_the_task_holds_the_loop_up(run: Run) -> None:
    hook = Hook(".outer")

    async def inner() -> None:
        hook.stall()

    async def outer() -> None:
        await inner()

    async def main() -> None:
        with ringloop.watchdog(0.02, hook=hook):
            await asyncio.create_task(outer(), name="the slow one")

    run(main())
    (stall,) = hook.stalls
    assert stall.task == "the slow one"
    assert stall.callback.startswith(f"{outer.__qualname__} (tests/observe/test_watchdog.py:")
    assert stall.seconds >= 0.02
    names = [frame.name for frame in stall.stack]
    assert names[:3] == [outer.__qualname__, inner.__qualname__, "Hook.stall"]
    # The line in `stall` where it is.
    assert "self.release.wait" in (stall.stack[2].line or "")
    assert "has blocked <ringloop.Loop" in str(stall)
    assert f"in {inner.__qualname__}" in str(stall)


def test_callback_without_a_task_is_named(loop: Any) -> None:
    hook = Hook(".callback ")

    def callback() -> None:
        hook.stall()
        loop.stop()

    with ringloop.watchdog(0.02, hook=hook):
        loop.call_soon(callback)
        loop.run_forever()
    assert hook.stalls[0].task is None
    assert callback.__qualname__ in hook.stalls[0].callback


def test_protocol_method_is_named(run: Run) -> None:
    hook = Hook("Protocol.data_received")

    class Protocol(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            hook.stall()
            ended.set()

    ended = asyncio.Event()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Protocol, "127.0.0.1", 0)
        async with server:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            with ringloop.watchdog(0.02, hook=hook):
                writer.write(b"data")
                await ended.wait()
            writer.close()
            await writer.wait_closed()

    run(main())
    assert "Protocol.data_received" in hook.stalls[0].callback


def test_callback_in_c_is_labelled_as_such(loop: Any) -> None:
    hook = Hook("wait")
    with ringloop.watchdog(0.02, hook=hook):
        loop.call_soon(hook.release.wait, support.PATIENCE_SECONDS)
        loop.call_soon(time.sleep, 0.1)
        loop.call_soon(loop.stop)
        loop.run_forever()
    assert any("wait" in stall.callback for stall in hook.stalls)


def test_stall_and_its_end_are_logged(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    def lines() -> list[str]:
        told = [record.getMessage() for record in caplog.records if record.name == "asyncio"]
        return [line for line in told if line.startswith(stalling.__qualname__)]

    async def stalling() -> None:
        while not lines():
            time.sleep(0.01)  # noqa: ASYNC251

    async def main() -> None:
        with ringloop.watchdog(0.05):
            await asyncio.create_task(stalling(), name="stalling")
            await wait_until(lambda: len(lines()) == 2, "the line of its end")

    run(main())
    first, second = lines()
    assert stalling.__qualname__ in first
    assert "task 'stalling'" in first
    # It may be in `lines` at that moment.
    assert f"in {stalling.__qualname__}\n" in first
    assert stalling.__qualname__ in second
    assert "ended after" in second
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_each_callback_is_reported_once(run: Run) -> None:
    hook = Hook(".main")

    async def main() -> None:
        with ringloop.watchdog(0.01, hook=hook):
            hook.stall()
            time.sleep(0.05)  # noqa: ASYNC251
            await asyncio.sleep(0)
            hook.release.clear()
            hook.stall()

    run(main())
    assert len(hook.stalls) == 2


def test_idle_and_busy_loops_are_no_stalls(run: Run) -> None:
    hook = Hook("")

    async def main() -> None:
        # Long enough that no busy machine holds a callback up for it.
        with ringloop.watchdog(30, hook=hook) as dog:
            assert dog.running()
            end = time.monotonic() + 0.2
            while time.monotonic() < end:  # noqa: ASYNC110
                await asyncio.sleep(0)
            await asyncio.sleep(0.05)

    run(main())
    assert hook.stalls == []


def test_failing_hook_is_logged(
    run: Run, caplog: pytest.LogCaptureFixture, loop_log: support.LoopLog
) -> None:
    told = threading.Event()

    def hook(stall: ringloop.Stall) -> None:
        told.set()
        raise ZeroDivisionError

    async def main() -> None:
        with ringloop.watchdog(0.02, hook=hook):
            assert told.wait(support.PATIENCE_SECONDS)
            await wait_until(lambda: loop_log.records, "the log line")

    run(main())
    assert "the hook of a watchdog failed" in loop_log.take()[0]


def test_loops_of_other_threads_are_watched(loop_name: str) -> None:
    hook = Hook(".main")

    def other() -> None:
        with asyncio.Runner(loop_factory=support.loop_factory(loop_name)) as runner:

            async def main() -> None:
                hook.stall()

            runner.run(main())

    with ringloop.watchdog(0.02, hook=hook):
        thread = threading.Thread(target=other, name="the other thread")
        thread.start()
        thread.join()
    assert hook.stalls[0].thread == "the other thread"


def test_start_stop_and_a_hook_that_stops() -> None:
    dog = ringloop.watchdog(1)
    dog.stop()
    dog.start()
    with pytest.raises(RuntimeError, match=r"is already running: stop\(\) ends it"):
        dog.start()
    dog.stop()
    assert not dog.running()
    dog.start()
    assert dog.running()
    dog.stop()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_child_of_fork_has_no_watchdog() -> None:
    with ringloop.watchdog(1) as dog:
        pid = os.fork()
        if pid == 0:
            dog.stop()
            os._exit(7 if dog.running() else 0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert dog.running()


@pytest.mark.parametrize("threshold", [0, -1, math.nan, math.inf])
def test_wrong_thresholds_are_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match="threshold must be"):
        ringloop.watchdog(threshold)


def test_wrong_hooks_are_refused() -> None:
    with pytest.raises(TypeError, match="hook must be callable"):
        ringloop.watchdog(1, hook="log")  # type: ignore[arg-type]


def test_loops_of_other_kinds_are_refused() -> None:
    loop = asyncio.SelectorEventLoop()
    try:
        with pytest.raises(TypeError, match="only ringloop's loops have a pulse"):
            ringloop.watchdog(1, loops=[loop])  # type: ignore[list-item]
    finally:
        loop.close()


def test_collected_loops_are_forgotten(loop_name: str) -> None:
    from ringloop import _loops

    loop: Any = support.loop_factory(loop_name)()
    assert loop in _loops.opened()
    assert loop not in _loops.running()
    loop.close()
    assert loop not in _loops.opened()
    unclosed: Any = support.loop_factory(loop_name)()
    key = id(unclosed)
    assert key in _loops._open
    unclosed.close()
    del unclosed
    wait_until_blocking(lambda: key not in _loops._open)
