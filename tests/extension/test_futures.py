"""Rust futures of another extension on a loop's own thread and ring, and awaitables in them."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import fs
from tests.extension import FOLDER
from tests.support import wait_until, within

if TYPE_CHECKING:
    from pathlib import Path

    from ringloop import Loop


async def played(probe: Any, kind: str, argument: Any = None) -> Any:
    """Await a Rust future."""
    return await probe.start(kind, argument)


def test_ready_future_suspends_nothing(ring: Loop, probe: Any) -> None:
    async def main() -> None:
        for value in (1, None, (1, 2), ValueError("as a value")):
            coroutine = played(probe, "ready", value)
            with pytest.raises(StopIteration) as stopped:
                coroutine.send(None)
            assert stopped.value.value is value
        with pytest.raises(KeyError, match="at once"):
            await probe.start("raise", KeyError("at once"))
        # No future takes it as it is; which error comes in its place depends on the version.
        with pytest.raises((RuntimeError, TypeError), match="StopIteration"):
            await within(probe.start("raise", StopIteration()))

    ring.run_until_complete(main())


@pytest.mark.parametrize(("kind", "argument"), [("ready", 5), ("sleep", 0.001)])
def test_future_is_an_asyncio_future(kind: str, argument: Any, ring: Loop, probe: Any) -> None:
    async def main() -> None:
        future = probe.start(kind, argument)
        assert asyncio.isfuture(future)
        assert future.get_loop() is ring
        assert await future == argument
        done, pending = await asyncio.wait([probe.start(kind, argument)])
        assert [future.result() for future in done] == [argument]
        assert not pending

    ring.run_until_complete(main())


def test_timers_are_never_early(ring: Loop, probe: Any) -> None:
    async def main() -> None:
        began = time.monotonic()
        assert await probe.start("sleep", 0.02) == 0.02
        assert time.monotonic() - began >= 0.02
        values = await asyncio.gather(*(probe.start("sleep", delay / 1000) for delay in range(20)))
        assert values == [delay / 1000 for delay in range(20)]

    ring.run_until_complete(main())


def test_cancelling_drops_the_rust_future(ring: Loop, probe: Any) -> None:
    async def main() -> None:
        dropped: list[bool] = []
        task = asyncio.ensure_future(played(probe, "drop", lambda: dropped.append(True)))
        await asyncio.sleep(0)
        assert not dropped
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await within(wait_until(lambda: dropped))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(probe.start("drop", lambda: dropped.append(True)), 0.01)
        await within(wait_until(lambda: len(dropped) == 2))

    ring.run_until_complete(main())


@pytest.mark.parametrize("kind", ["panic", "late panic"])
def test_panic_becomes_an_exception(
    kind: str, ring: Loop, probe: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="a Rust future panicked: asked to"):
            await probe.start(kind, None)
        # And the loop goes on.
        assert await probe.start("sleep", 0.001) == 0.001

    ring.run_until_complete(main())
    capfd.readouterr()


def test_python_awaitable_is_awaited_from_rust(ring: Loop, probe: Any) -> None:
    async def inner(value: Any) -> Any:
        await asyncio.sleep(0.001)
        if isinstance(value, Exception):
            raise value
        return value

    async def main() -> None:
        assert await probe.start("await", lambda: inner(7)) == 7
        with pytest.raises(KeyError, match="missing"):
            await probe.start("await", lambda: inner(KeyError("missing")))
        with pytest.raises(TypeError):
            await probe.start("await", lambda: 5)
        done = ring.create_future()
        done.set_result("at once")
        assert await probe.start("await", lambda: done) == "at once"

    ring.run_until_complete(main())


def test_cancelling_cancels_the_python_awaitable_below(ring: Loop, probe: Any) -> None:
    ends: list[str] = []

    async def inner() -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    async def main() -> None:
        task = asyncio.ensure_future(played(probe, "await", inner))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await within(wait_until(lambda: ends == ["cancelled"]))

    ring.run_until_complete(main())


def test_cancelled_awaitable_cancels_the_future_above(ring: Loop, probe: Any) -> None:
    async def inner() -> None:
        task = asyncio.current_task()
        assert task
        task.cancel("by itself")
        await asyncio.sleep(100)

    async def main() -> None:
        # As a task that awaits it is cancelled.
        for kind, argument in (
            ("await", inner),
            ("raise", asyncio.CancelledError("by itself")),
        ):
            future = probe.start(kind, argument)
            await asyncio.wait([future])
            assert future.cancelled()
            with pytest.raises(asyncio.CancelledError, match="by itself"):
                await future

    ring.run_until_complete(main())


def test_context_of_the_caller_is_carried(ring: Loop, probe: Any) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")

    async def caller(name: str) -> None:
        variable.set(name)
        assert await probe.start("call", variable.get) == name

        async def read() -> str:
            await asyncio.sleep(0)
            return variable.get()

        assert await probe.start("await", read) == name

    async def main() -> None:
        await asyncio.gather(caller("one"), caller("two"))

    ring.run_until_complete(main())


def test_future_may_start_another_and_use_the_loop(ring: Loop, probe: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async def nested() -> Any:
            assert await probe.start("ready", 1) == 1
            return await probe.start("await", lambda: fs.write_bytes(tmp_path / "f", b"x"))

        assert await probe.start("await", nested) == 1
        left, right = os.pipe()
        os.write(right, b"!")
        seen: list[int] = []

        def add() -> Any:
            # From inside of a poll.
            ring.add_reader(left, lambda: (seen.append(1), ring.remove_reader(left)))
            return probe.start("ready", 3).result()

        assert await probe.start("call", add) == 3
        await within(wait_until(lambda: seen))
        os.close(left)
        os.close(right)

    ring.run_until_complete(main())


def test_closing_the_loop_drops_its_futures(ring: Loop, probe: Any) -> None:
    dropped: list[int] = []

    async def main() -> None:
        ring.create_task(played(probe, "drop", lambda: dropped.append(threading.get_ident())))
        await asyncio.sleep(0)

    ring.run_until_complete(main())
    assert not dropped
    ring.close()
    assert dropped == [threading.get_ident()]
    for task in asyncio.all_tasks(ring):
        task._log_destroy_pending = False


def test_closing_the_loop_leaves_what_its_futures_await(ring: Loop, probe: Any) -> None:
    ends: list[str] = []

    async def inner() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            ends.append("ended")

    async def main() -> None:
        probe.start("await", inner)
        await asyncio.sleep(0)

    ring.run_until_complete(main())
    (task,) = asyncio.all_tasks(ring)
    ring.close()
    # As asyncio leaves its tasks.
    assert not ends
    assert not task.cancelling()
    task._log_destroy_pending = False
    task.get_coro().close()
    assert ends == ["ended"]


def test_futures_tie_the_loop_to_their_thread(ring: Loop, probe: Any) -> None:
    ring.run_until_complete(played(probe, "sleep", 0.001))
    errors: list[BaseException] = []

    def elsewhere() -> None:
        try:
            ring.run_forever()
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "has run Rust futures" in str(errors[0])
    ring.run_until_complete(played(probe, "sleep", 0.001))


def test_future_needs_a_running_loop_of_ours(ring: Loop, probe: Any) -> None:
    with pytest.raises(RuntimeError, match=r"no event loop runs .* ringloop\.run\(main\(\)\)"):
        probe.start("ready", None)

    async def main() -> None:
        with pytest.raises(RuntimeError, match="no event loop runs in this thread"):
            await asyncio.to_thread(probe.start, "ready", None)

    ring.run_until_complete(main())

    async def elsewhere() -> None:
        with pytest.raises(
            RuntimeError, match=r"event loop is asyncio\..*EventLoop, and .*new_event_loop"
        ):
            probe.start("ready", None)

    asyncio.run(elsewhere())
    assert "no loop of ringloop's runs this future" in probe.poll_outside("127.0.0.1:1")


def test_other_threads_visit_the_loop_while_futures_are_polled(ring: Loop, probe: Any) -> None:
    left, right = os.pipe()

    async def main() -> None:
        stop = threading.Event()

        def visit() -> int:
            count = 0
            while not stop.is_set():
                ring.add_reader(left, lambda: None)
                ring.remove_reader(left)
                count += 1
            return count

        visiting = asyncio.ensure_future(asyncio.to_thread(visit))
        for _ in range(50):
            await asyncio.gather(*(probe.start("sleep", 0.0005) for _ in range(5)))
        stop.set()
        assert await visiting > 0

    ring.run_until_complete(main())
    os.close(left)
    os.close(right)


@pytest.mark.one_thread("forks the process")
def test_child_process_abandons_the_futures(ring: Loop, probe: Any) -> None:
    dropped: list[bool] = []

    async def main() -> None:
        task = asyncio.ensure_future(played(probe, "drop", lambda: dropped.append(True)))
        await asyncio.sleep(0)
        pid = os.fork()
        if not pid:
            status = 1
            try:
                probe.start("ready", None)
            except RuntimeError as error:
                status = 0 if "no event loop runs" in str(error) and not dropped else 2
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0  # noqa: ASYNC222 - it ends at once
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await within(wait_until(lambda: dropped))

    ring.run_until_complete(main())


def test_wake_from_another_thread_reaches_a_loop_that_sleeps(ring: Loop, probe: Any) -> None:
    async def main() -> None:
        await within(asyncio.gather(*(probe.start("thread", 5) for _ in range(5))))

    ring.run_until_complete(main())


@pytest.mark.one_thread("keeps the wakers of the process")
def test_waker_may_outlive_its_future_and_the_loop(ring: Loop, probe: Any) -> None:
    async def main() -> None:
        future = probe.start("keep waker", None)
        await asyncio.sleep(0)
        # Polled again, for nothing, and kept again.
        assert probe.wake_kept() == 1
        await asyncio.sleep(0.001)
        future.cancel()
        await within(wait_until(lambda: probe.live() == 0))
        assert probe.wake_kept() == 1
        probe.start("keep waker", None)

    ring.run_until_complete(main())
    assert probe.live() == 1
    ring.close()
    assert probe.live() == 0
    assert probe.wake_kept() == 1


@pytest.mark.one_thread("in processes of its own")
@pytest.mark.parametrize("close", [True, False], ids=["closed", "not closed"])
def test_interpreter_ends_with_futures_in_flight(ring: Loop, close: bool) -> None:
    program = f"""
import sys, ringloop
sys.path.append({str(FOLDER)!r})
import ringloop_probe as probe
loop = ringloop.Loop(driver={ring.driver!r})
async def main():
    probe.start("keep waker", None)
    probe.start("drop", int)
    probe.start("await", lambda: probe.start("sleep", 100))
    probe.start("thread", 1000)
loop.run_until_complete(main())
{"loop.close()" if close else ""}
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "panicked" not in done.stderr


def test_combinators_may_poll_operations_with_wakers_of_their_own(ring: Loop, probe: Any) -> None:
    async def main() -> None:
        for _ in range(5):
            await within(probe.start("joined", None))
        with pytest.raises(TimeoutError):
            await within(probe.start("timeout", None))

    ring.run_until_complete(main())


def test_awaitable_that_is_dropped_goes_on(ring: Loop, probe: Any) -> None:
    calls: list[int] = []

    async def main() -> None:
        probe.start("call", lambda: calls.append(1))
        gc.collect()
        await within(wait_until(lambda: calls))

    ring.run_until_complete(main())


def test_panic_of_a_destructor_ends_nothing(
    ring: Loop, probe: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise ValueError

    async def main() -> None:
        future = probe.start("drop", fail)
        await asyncio.sleep(0)
        future.cancel()
        assert await probe.start("sleep", 0.001) == 0.001
        assert future.cancelled()

    ring.run_until_complete(main())
    assert "asked to" in capfd.readouterr().err


@pytest.mark.one_thread("counts the futures of the process")
def test_every_way_to_end_drops_the_future(ring: Loop, probe: Any) -> None:
    async def main() -> None:
        for kind, argument in (
            ("ready", 1),
            ("raise", KeyError()),
            ("sleep", 0.001),
            ("await", lambda: asyncio.sleep(0)),
            ("call", int),
            ("thread", 2),
            ("joined", None),
            ("timeout", None),
        ):
            await asyncio.gather(probe.start(kind, argument), return_exceptions=True)
        for when in (0, 0.001):
            future = probe.start("drop", int)
            await asyncio.sleep(when)
            future.cancel()
        await within(wait_until(lambda: probe.live() == 0))
        probe.start("drop", int)
        with pytest.raises(ValueError, match="no such kind"):
            probe.start("none", None)
        assert probe.live() == 1

    assert probe.live() == 0
    ring.run_until_complete(main())
    assert probe.live() == 1
    ring.close()
    assert probe.live() == 0
    with pytest.raises(RuntimeError):
        probe.start("ready", None)
    assert probe.live() == 0


def test_finished_futures_leave_nothing(ring: Loop, probe: Any) -> None:
    class Value:
        pass

    async def main() -> None:
        for _ in range(100):
            await probe.start("ready", Value())
            await probe.start("await", lambda: asyncio.sleep(0, Value()))
        for _ in range(3):
            await asyncio.sleep(0)
        gc.collect()
        # The last one may still be on the stack of the coroutine.
        assert len([found for found in gc.get_objects() if type(found) is Value]) <= 1

    ring.run_until_complete(main())
