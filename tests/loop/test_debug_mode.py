"""Debug mode: the same checks, log lines, tracebacks and warnings as asyncio's."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import re
import subprocess
import sys
import textwrap
import time
import traceback
import warnings
from asyncio import constants
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import Recorder, closed, connected, exceptions_of, socket_pair

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from tests.support import LoopFactory

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

HERE = re.escape(__file__)


@pytest.fixture
def debug_loop(loop: Any) -> Iterator[Any]:
    loop.set_debug(True)
    yield loop
    loop.set_debug(False)


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "asyncio"]


# --- slow callbacks -------------------------------------------------------------------------------


def slow(*_: Any) -> None:
    time.sleep(0.02)


def slow_lines(caplog: pytest.LogCaptureFixture, what: str = "slow") -> list[str]:
    """Return the log's lines about `what`: on a loaded machine others may be slow too."""
    return [line for line in messages(caplog) if line.startswith("Executing") and what in line]


SLOW_CALLBACKS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "handle": (
        lambda loop: loop.call_soon(slow, 1, "two"),
        rf"<Handle slow\(1, 'two'\) at {HERE}:\d+ created at {HERE}:\d+>",
    ),
    "timer": (
        lambda loop: loop.call_later(0.001, slow),
        rf"<TimerHandle when=[\d.]+ slow\(\) at {HERE}:\d+ created at {HERE}:\d+>",
    ),
    "timer that is due": (
        lambda loop: loop.call_later(0, slow),
        rf"<TimerHandle when=[\d.]+ slow\(\) at {HERE}:\d+ created at {HERE}:\d+>",
    ),
    "builtin": (
        lambda loop: loop.call_soon(time.sleep, 0.02),
        rf"<Handle sleep\(0.02\) created at {HERE}:\d+>",
    ),
}


@pytest.mark.parametrize("kind", SLOW_CALLBACKS)
def test_slow_callback_is_logged(
    debug_loop: Any, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    schedule, description = SLOW_CALLBACKS[kind]
    debug_loop.slow_callback_duration = 0.01
    schedule(debug_loop)
    debug_loop.run_until_complete(asyncio.sleep(0.005))
    (line,) = slow_lines(caplog, "sleep(0.02)" if kind == "builtin" else "slow(")
    assert re.fullmatch(rf"Executing {description} took \d+\.\d{{3}} seconds", line), line
    (record,) = [record for record in caplog.records if record.getMessage() == line]
    assert record.levelno == logging.WARNING


def test_slow_callback_of_a_thread_is_logged(
    debug_loop: Any, caplog: pytest.LogCaptureFixture
) -> None:
    debug_loop.slow_callback_duration = 0.01
    debug_loop.call_soon_threadsafe(slow)
    debug_loop.run_until_complete(asyncio.sleep(0.001))
    name = "_ThreadSafeHandle" if sys.version_info >= (3, 14) else "Handle"
    (line,) = slow_lines(caplog, "slow(")
    description = rf"<{name} slow\(\) at {HERE}:\d+ created at {HERE}:\d+>"
    assert re.fullmatch(rf"Executing {description} took \d+\.\d{{3}} seconds", line), line


def test_slow_protocol_is_logged(
    debug_loop: Any, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    class Slow(Recorder):
        def data_received(self, data: bytes) -> None:
            slow()
            super().data_received(data)

    async def main() -> None:
        protocol = Slow()
        async with connected(protocol) as (_, peer):
            await peer.send(b"x")
            await support.wait_until(lambda: protocol.data == b"x", "the byte")

    debug_loop.slow_callback_duration = 0.01
    run(main())
    line = slow_lines(caplog, "Transport")[-1]
    assert re.fullmatch(r"Executing <.*Transport.*> took \d+\.\d{3} seconds", line), line


def test_slow_step_of_a_task_is_logged_as_the_task(
    debug_loop: Any, caplog: pytest.LogCaptureFixture
) -> None:
    debug_loop.slow_callback_duration = 0.01

    async def dawdle() -> None:
        await asyncio.sleep(0)
        slow()

    task = debug_loop.create_task(dawdle(), name="the slow one")
    debug_loop.run_until_complete(task)
    # On a busy machine the first step was slow, too.
    line = slow_lines(caplog)[-1]
    assert re.fullmatch(
        r"Executing <Task (pending|finished) name='the slow one' coro=<.*dawdle\(\) .*> .*"
        r"created at .*:\d+> took \d+\.\d{3} seconds",
        line,
    ), line


def test_slow_callback_that_fails_is_logged(
    debug_loop: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        slow()
        raise ValueError("slow and wrong")

    debug_loop.slow_callback_duration = 0.01
    with exceptions_of(debug_loop) as contexts:
        debug_loop.call_soon(fail)
        debug_loop.run_until_complete(asyncio.sleep(0.001))
    assert len(contexts) == 1
    assert len(slow_lines(caplog, "fail(")) == 1


def test_threshold_is_the_attribute(loop: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert loop.slow_callback_duration == 0.1
    loop.call_soon(slow)
    loop.run_until_complete(asyncio.sleep(0.001))
    loop.set_debug(True)
    # More than `slow` takes, even on a busy machine.
    loop.slow_callback_duration = support.PATIENCE_SECONDS
    loop.call_soon(slow)
    loop.run_until_complete(asyncio.sleep(0.001))
    assert slow_lines(caplog, "slow(") == []
    loop.slow_callback_duration = 0.0
    loop.call_soon(len, "")
    loop.run_until_complete(asyncio.sleep(0))
    assert any("len('')" in line for line in slow_lines(caplog, "len"))
    loop.set_debug(False)


# --- checks before scheduling ---------------------------------------------------------------------


SCHEDULERS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "call_soon": (lambda loop, callback: loop.call_soon(callback), "call_soon"),
    "call_soon_threadsafe": (
        lambda loop, callback: loop.call_soon_threadsafe(callback),
        "call_soon_threadsafe",
    ),
    "call_later": (lambda loop, callback: loop.call_later(0, callback), "call_at"),
    "call_at": (lambda loop, callback: loop.call_at(0, callback), "call_at"),
    "run_in_executor": (
        lambda loop, callback: loop.run_in_executor(None, callback),
        "run_in_executor",
    ),
}


@pytest.mark.parametrize("kind", SCHEDULERS)
def test_coroutines_are_refused_as_callbacks(debug_loop: Any, kind: str) -> None:
    schedule, name = SCHEDULERS[kind]

    async def coroutine() -> None:
        pass

    made = coroutine()
    for wrong in (coroutine, made):
        with pytest.raises(TypeError) as caught:
            schedule(debug_loop, wrong)
        assert str(caught.value) == f"coroutines cannot be used with {name}()"
    made.close()
    with pytest.raises(TypeError) as caught:
        schedule(debug_loop, 5)
    assert str(caught.value) == f"a callable object was expected by {name}(), got 5"


def test_nothing_is_checked_outside_of_debug_mode(loop: Any) -> None:
    with exceptions_of(loop) as contexts:
        loop.call_soon(5)
        loop.run_until_complete(asyncio.sleep(0))
    assert [type(context["exception"]) for context in contexts] == [TypeError]


# --- origin tracebacks ----------------------------------------------------------------------------


def made_by(loop: Any, make: Callable[[Any], Any]) -> Any:
    """Call `make` from a function whose name shows in the stack."""
    return make(loop)


ORIGINS: dict[str, Callable[[Any], Any]] = {
    "call_soon": lambda loop: loop.call_soon(print),
    "call_soon_threadsafe": lambda loop: loop.call_soon_threadsafe(print),
    "call_later": lambda loop: loop.call_later(100, print),
    "call_later at once": lambda loop: loop.call_later(0, print),
    "call_at": lambda loop: loop.call_at(loop.time() + 100, print),
}


@pytest.mark.parametrize("kind", ORIGINS)
def test_handle_has_the_traceback_of_its_creator(debug_loop: Any, kind: str) -> None:
    handle = made_by(debug_loop, ORIGINS[kind])
    stack = handle._source_traceback
    assert isinstance(stack, traceback.StackSummary)
    # Not more than asyncio keeps, and the native method adds no frame.
    assert len(stack) <= constants.DEBUG_STACK_DEPTH
    assert [frame.name for frame in stack[-2:]] == ["made_by", "<lambda>"]
    assert f"created at {__file__}:{stack[-1].lineno}" in repr(handle)
    handle.cancel()
    assert "cancelled" in repr(handle)
    assert "created at" in repr(handle)


def test_cancelled_handle_still_shows_its_callback(debug_loop: Any) -> None:
    handle = debug_loop.call_later(10, slow, 7)
    handle.cancel()
    assert re.fullmatch(
        rf"<TimerHandle cancelled when=[\d.]+ slow\(7\) at {HERE}:\d+ created at {HERE}:\d+>",
        repr(handle),
    ), repr(handle)


def test_future_and_task_have_the_traceback_of_their_creator(debug_loop: Any) -> None:
    future = made_by(debug_loop, lambda loop: loop.create_future())
    # asyncio's own create_future() is a frame of its stack.
    names = [frame.name for frame in future._source_traceback[-3:]]
    assert names[-2:] == ["made_by", "<lambda>"] or names == [
        "made_by",
        "<lambda>",
        "create_future",
    ]

    async def nothing() -> None:
        pass

    task = made_by(debug_loop, lambda loop: loop.create_task(nothing()))
    assert [frame.name for frame in task._source_traceback[-2:]] == ["made_by", "<lambda>"]
    assert f"created at {__file__}:" in repr(task)
    debug_loop.run_until_complete(task)


@pytest.mark.parametrize("debug", [False, True])
def test_exception_of_a_callback_is_reported_with_its_origin(
    loop: Any, caplog: pytest.LogCaptureFixture, debug: bool, loop_log: support.LoopLog
) -> None:
    def fail(number: int) -> None:
        raise ValueError("wrong")

    loop.set_debug(debug)
    with exceptions_of(loop) as contexts:
        handle = loop.call_soon(fail, 1)
        loop.run_until_complete(asyncio.sleep(0))
    (context,) = contexts
    name = "test_exception_of_a_callback_is_reported_with_its_origin.<locals>.fail"
    # Outside debug mode, releases of asyncio since 3.13 hide the arguments, each in its own way.
    shown = "1" if debug or sys.version_info < (3, 13) else r"(1|\.\.\.)?"
    assert re.fullmatch(
        rf"Exception in callback {re.escape(name)}\({shown}\) at {HERE}:\d+",
        context["message"],
    ), context["message"]
    assert context["handle"] is handle
    assert ("source_traceback" in context) == debug
    assert set(context) - {"source_traceback"} == {"message", "exception", "handle"}
    # And with the message of the default handler:
    loop.call_soon(fail, 2)
    loop.run_until_complete(asyncio.sleep(0))
    (text,) = loop_log.take()
    assert text.startswith("Exception in callback ")
    assert "\nhandle: <Handle " in text
    assert ("Object created at (most recent call last):" in text) == debug
    loop.set_debug(False)


def test_default_handler_names_the_running_callback(
    debug_loop: Any, loop_log: support.LoopLog
) -> None:
    def complain() -> None:
        debug_loop.call_exception_handler({"message": "something else"})

    debug_loop.call_soon(complain)
    debug_loop.run_until_complete(asyncio.sleep(0))
    (text,) = loop_log.take()
    assert text.startswith(
        "something else\nhandle_traceback: Handle created at (most recent call last):\n"
    )
    assert debug_loop._current_handle is None


# --- coroutines -----------------------------------------------------------------------------------


def test_coroutine_origins_are_tracked_while_it_runs(loop: Any) -> None:
    def depth() -> int:
        return sys.get_coroutine_origin_tracking_depth()

    async def depths() -> list[int]:
        found = [depth()]
        loop.set_debug(not loop.get_debug())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        found.append(depth())
        return found

    before = depth()
    assert loop.run_until_complete(depths()) == [before, constants.DEBUG_STACK_DEPTH]
    assert depth() == before
    assert loop.run_until_complete(depths()) == [constants.DEBUG_STACK_DEPTH, before]
    assert depth() == before
    sys.set_coroutine_origin_tracking_depth(3)
    try:
        loop.set_debug(True)
        assert loop.run_until_complete(depths()) == [constants.DEBUG_STACK_DEPTH, 3]
        assert depth() == 3
    finally:
        sys.set_coroutine_origin_tracking_depth(before)
        loop.set_debug(False)


def test_coroutine_never_awaited_names_its_origin(debug_loop: Any) -> None:
    async def forgotten() -> None:
        pass

    async def main() -> None:
        forgotten()  # type: ignore[unused-coroutine]
        gc.collect()

    with pytest.warns(RuntimeWarning) as caught:
        debug_loop.run_until_complete(main())
    (warning,) = caught
    text = str(warning.message)
    assert text.startswith(
        "coroutine 'test_coroutine_never_awaited_names_its_origin.<locals>.forgotten' "
        "was never awaited\nCoroutine created at (most recent call last)\n"
    )
    assert "in main\n    forgotten()" in text


def test_exception_never_retrieved_names_its_origin(
    debug_loop: Any, loop_log: support.LoopLog
) -> None:
    async def fail() -> None:
        raise ValueError("nobody looks")

    async def main() -> None:
        task = asyncio.ensure_future(fail())
        await asyncio.sleep(0.001)
        del task
        gc.collect()

    debug_loop.run_until_complete(main())
    (text,) = loop_log.take()
    assert text.startswith("Task exception was never retrieved\nfuture: <Task finished name=")
    assert "source_traceback: Object created at (most recent call last):" in text
    assert "asyncio.ensure_future(fail())" in text


# --- unclosed resources ---------------------------------------------------------------------------


def warnings_of(drop: Callable[[], None]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        drop()
        gc.collect()
    return [str(one.message) for one in caught if issubclass(one.category, ResourceWarning)]


def test_unclosed_loop(loop_name: str, loop_factory: LoopFactory) -> None:
    held = [loop_factory()]
    shown = repr(held[0])
    name = "_UnixSelectorEventLoop" if loop_name == support.ORACLE else "ringloop.Loop"
    assert shown.startswith(f"<{name} ")
    assert " running=False closed=False debug=False" in shown
    assert warnings_of(held.clear) == [f"unclosed event loop {shown}"]


def test_unclosed_stream_transport(loop_factory: LoopFactory) -> None:
    loop = loop_factory()
    ours, theirs = socket_pair()
    held: list[Any] = [loop.run_until_complete(loop.create_connection(Recorder, sock=ours))[0]]
    held[0].get_protocol().transport = None
    shown = repr(held[0])

    def drop() -> None:
        loop.close()
        held.clear()

    (said,) = [text for text in warnings_of(drop) if text.startswith("unclosed transport")]
    # A transport of a closed loop no longer knows what it polled.
    assert said.split(" read=")[0].rstrip(">") == f"unclosed transport {shown}".split(" read=")[0]
    theirs.close()


def test_unclosed_datagram_transport(loop_factory: LoopFactory) -> None:
    loop = loop_factory()
    held: list[Any] = [
        loop.run_until_complete(
            loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0))
        )[0]
    ]

    def drop() -> None:
        loop.close()
        held.clear()

    (said,) = [text for text in warnings_of(drop) if text.startswith("unclosed transport")]
    assert re.match(r"unclosed transport <\S*Datagram\S* ", said), said


@pytest.mark.parametrize("direction", ["read", "write"])
def test_unclosed_pipe_transport(loop_factory: LoopFactory, direction: str) -> None:
    loop = loop_factory()
    read_end, write_end = os.pipe()
    mine, other = (read_end, write_end) if direction == "read" else (write_end, read_end)
    pipe = os.fdopen(mine, "rb" if direction == "read" else "wb", buffering=0)
    connect = loop.connect_read_pipe if direction == "read" else loop.connect_write_pipe
    held: list[Any] = [loop.run_until_complete(connect(asyncio.Protocol, pipe))[0]]

    def drop() -> None:
        loop.close()
        held.clear()

    (said,) = [text for text in warnings_of(drop) if text.startswith("unclosed transport")]
    assert re.match(rf"unclosed transport <\S*{direction.title()}Pipe\S* ", said), said
    os.close(other)
    with contextlib.suppress(OSError):
        pipe.close()


def test_unclosed_subprocess_transport(loop_name: str, loop_factory: LoopFactory) -> None:
    if loop_name == support.ORACLE:
        pytest.skip(
            "asyncio leaves its pidfd open, or its waiting thread, and the leak check minds"
        )
    loop = loop_factory()

    async def start() -> Any:
        program = "import time; time.sleep(60)"
        transport, _ = await loop.subprocess_exec(
            asyncio.SubprocessProtocol,
            sys.executable,
            "-c",
            program,
            stdin=None,
            stdout=None,
            stderr=None,
        )
        return transport

    held = [loop.run_until_complete(start())]
    process = held[0].get_extra_info("subprocess")

    def drop() -> None:
        loop.close()
        held.clear()

    said = [text for text in warnings_of(drop) if "Subprocess" in text]
    assert said
    assert re.match(r"unclosed transport <\w*SubprocessTransport pid=\d+ ", said[0]), said
    process.kill()
    process.wait()


def test_closed_resources_are_silent(loop: Any, run: Run) -> None:
    async def main() -> None:
        async with connected(Recorder()) as (transport, _):
            transport.close()
            await closed(transport)

    assert warnings_of(lambda: run(main())) == []


# --- enabling debug mode --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "environment", "expected"),
    [
        ([], {}, False),
        (["-X", "dev"], {}, True),
        ([], {"PYTHONDEVMODE": "1"}, True),
        ([], {"PYTHONASYNCIODEBUG": "1"}, True),
        (["-E"], {"PYTHONASYNCIODEBUG": "1"}, False),
    ],
)
def test_debug_mode_of_a_program(
    loop_name: str, options: list[str], environment: dict[str, str], expected: bool
) -> None:
    program = textwrap.dedent(f"""
        import asyncio, sys
        from tests import support
        loop = support.loop_factory({loop_name!r})()
        print(loop.get_debug(), loop._debug)
        loop.close()
    """)
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in {"PYTHONASYNCIODEBUG", "PYTHONDEVMODE", "PYTHONWARNINGS"}
    }
    done = subprocess.run(
        [sys.executable, *options, "-c", program],
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.split() == 2 * [str(expected)]


def test_debug_mode_of_a_runner(loop_factory: LoopFactory) -> None:
    async def debug() -> bool:
        return asyncio.get_running_loop().get_debug()

    for wanted in (True, False):
        with asyncio.Runner(debug=wanted, loop_factory=loop_factory) as runner:
            assert runner.run(debug()) is wanted
