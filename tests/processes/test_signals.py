"""Signals: handlers run in the loop, and the wake-up descriptor is restored."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.signals import kill_later
from tests.support.tcp import Factory, ask, serving

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support import LoopFactory

Loop = asyncio.AbstractEventLoop

pytestmark = pytest.mark.usefixtures("signals_restored")


def test_handler_runs_in_the_loop_with_its_arguments(loop: Loop) -> None:
    got: list[Any] = []

    def handler(*args: Any) -> None:
        got.append((args, asyncio.get_running_loop() is loop))
        loop.stop()

    loop.add_signal_handler(signal.SIGUSR1, handler, 1, "two")
    thread = kill_later(signal.SIGUSR1, loop)
    start = time.monotonic()
    loop.run_forever()
    thread.join()
    assert time.monotonic() - start < support.PATIENCE_SECONDS
    assert got == [((1, "two"), True)]
    assert loop.remove_signal_handler(signal.SIGUSR1)
    assert not loop.remove_signal_handler(signal.SIGUSR1)
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL


def test_signals_sent_together_all_arrive(loop: Loop, run: Callable[..., Any]) -> None:
    got: list[str] = []
    loop.add_signal_handler(signal.SIGUSR1, got.append, "one")
    loop.add_signal_handler(signal.SIGUSR2, got.append, "two")

    async def main() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR2)
        await support.wait_until(lambda: len(got) == 2)

    run(main())
    assert sorted(got) == ["one", "two"]
    loop.remove_signal_handler(signal.SIGUSR1)
    loop.remove_signal_handler(signal.SIGUSR2)


def test_signal_between_two_runs_is_kept(loop: Loop, run: Callable[..., Any]) -> None:
    got: list[int] = []
    loop.add_signal_handler(signal.SIGUSR1, got.append, 1)
    run(asyncio.sleep(0))
    os.kill(os.getpid(), signal.SIGUSR1)
    run(support.wait_until(lambda: got == [1]))
    loop.remove_signal_handler(signal.SIGUSR1)


def test_later_handler_replaces_the_earlier(loop: Loop, run: Callable[..., Any]) -> None:
    got: list[int] = []
    loop.add_signal_handler(signal.SIGUSR1, got.append, 1)
    loop.add_signal_handler(signal.SIGUSR1, got.append, 2)
    os.kill(os.getpid(), signal.SIGUSR1)
    run(support.wait_until(lambda: got))
    assert got == [2]
    loop.remove_signal_handler(signal.SIGUSR1)


def test_close_removes_handlers(loop_factory: LoopFactory) -> None:
    loop = loop_factory()
    loop.add_signal_handler(signal.SIGUSR1, print)
    loop.close()
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL


def test_bad_signals_and_callbacks_are_refused(loop: Loop) -> None:
    async def coroutine() -> None:
        pass

    with pytest.raises(TypeError, match="coroutines cannot be used"):
        loop.add_signal_handler(signal.SIGUSR1, coroutine)
    with pytest.raises(TypeError, match="sig must be an int"):
        loop.add_signal_handler("SIGUSR1", print)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="invalid signal number"):
        loop.add_signal_handler(1000, print)
    with pytest.raises(RuntimeError, match="cannot be caught"):
        loop.add_signal_handler(signal.SIGKILL, print)
    with pytest.raises(ValueError, match="invalid signal number"):
        loop.remove_signal_handler(1000)
    assert not loop.remove_signal_handler(signal.SIGUSR1)


def test_only_the_main_thread_may_add_a_handler(loop_factory: LoopFactory) -> None:
    caught: list[BaseException] = []

    def other() -> None:
        loop = loop_factory()
        try:
            loop.add_signal_handler(signal.SIGUSR1, print)
        except RuntimeError as error:
            caught.append(error)
        finally:
            loop.close()

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert "main thread" in str(caught[0])


def test_python_handler_may_schedule(loop: Loop) -> None:
    def handler(number: int, frame: object) -> None:
        loop.call_soon_threadsafe(loop.stop)

    signal.signal(signal.SIGUSR1, handler)
    thread = kill_later(signal.SIGUSR1, loop)
    start = time.monotonic()
    loop.run_forever()
    thread.join()
    assert time.monotonic() - start < support.PATIENCE_SECONDS


def test_wake_up_descriptor_is_restored(
    loop: Loop, loop_factory: LoopFactory, run: Callable[..., Any]
) -> None:
    got: list[int] = []
    loop.add_signal_handler(signal.SIGUSR1, got.append, 1)
    mine = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(mine)
    assert mine != -1
    other = loop_factory()
    other.run_until_complete(asyncio.sleep(0))
    other.close()
    os.kill(os.getpid(), signal.SIGUSR1)
    run(support.wait_until(lambda: got == [1]))
    loop.remove_signal_handler(signal.SIGUSR1)


# --- ownership of the wake-up descriptor ----------------------------------------------------------


def wakeup_fd() -> int:
    """Return the wake-up descriptor, and leave it unchanged."""
    fd = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(fd, warn_on_full_buffer=False)
    return fd


def test_wake_up_descriptor_of_the_user_gets_all_signals(
    loop: Loop, run: Callable[..., Any]
) -> None:
    """A loop without handlers does not interfere, as if it did not take the descriptor at all."""
    theirs_in, theirs_out = socket.socketpair()
    theirs_in.setblocking(False)
    theirs_out.setblocking(False)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.set_wakeup_fd(theirs_out.fileno())
    got = bytearray()

    def arrived() -> bool:
        with contextlib.suppress(BlockingIOError):
            got.extend(theirs_in.recv(100))
        return len(got) == 3

    async def main() -> None:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR1)
        await support.wait_until(lambda: arrived() or len(got) > 3)

    os.kill(os.getpid(), signal.SIGUSR1)
    run(main())
    assert set(got) == {signal.SIGUSR1}
    assert signal.set_wakeup_fd(-1) == theirs_out.fileno()
    theirs_in.close()
    theirs_out.close()


def test_signal_during_another_loops_run_waits_for_the_handlers_loop(
    loop: Loop, loop_factory: LoopFactory, run: Callable[..., Any]
) -> None:
    got: list[int] = []
    loop.add_signal_handler(signal.SIGUSR1, got.append, 1)
    other = loop_factory()

    async def main() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.sleep(0.01)

    other.run_until_complete(main())
    other.close()
    assert got == []
    run(support.wait_until(lambda: got == [1]))
    loop.remove_signal_handler(signal.SIGUSR1)


def test_loops_with_handlers_in_sequence(loop_factory: LoopFactory) -> None:
    got: list[tuple[str, int]] = []
    for name in ("first", "second"):
        loop = loop_factory()
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            loop.add_signal_handler(number, got.append, (name, int(number)))
            os.kill(os.getpid(), number)
        loop.run_until_complete(support.wait_until(lambda: len(got) == 2))
        assert sorted(got) == [(name, int(signal.SIGUSR1)), (name, int(signal.SIGUSR2))]
        got.clear()
        loop.close()
        assert wakeup_fd() == -1


def test_loop_inside_a_loop(loop: Loop, loop_factory: LoopFactory, run: Callable[..., Any]) -> None:
    """What some do to call a coroutine from a callback: hide the running loop, and run another one."""
    got: list[str] = []
    inner = loop_factory()

    def nested() -> None:
        outer = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        try:
            inner.add_signal_handler(signal.SIGUSR2, got.append, "inner")
            os.kill(os.getpid(), signal.SIGUSR2)
            inner.run_until_complete(support.wait_until(lambda: "inner" in got))
            inner.remove_signal_handler(signal.SIGUSR2)
        finally:
            asyncio._set_running_loop(outer)

    # In a callback: a task would not allow another one inside.
    loop.call_soon(nested)
    loop.call_soon(loop.stop)
    loop.run_forever()
    inner.close()
    # The outer loop still receives signals.
    loop.add_signal_handler(signal.SIGUSR1, got.append, "outer")
    os.kill(os.getpid(), signal.SIGUSR1)
    run(support.wait_until(lambda: got == ["inner", "outer"]))
    loop.remove_signal_handler(signal.SIGUSR1)


def test_handler_removed_in_a_later_run_leaves_nothing(loop_factory: LoopFactory) -> None:
    loop = loop_factory()
    loop.add_signal_handler(signal.SIGUSR1, print)
    loop.run_until_complete(asyncio.sleep(0))

    async def remove() -> None:
        assert loop.remove_signal_handler(signal.SIGUSR1)

    loop.run_until_complete(remove())
    loop.close()
    assert signal.set_wakeup_fd(-1) == -1


def test_loop_closed_with_handlers(loop_factory: LoopFactory) -> None:
    loop = loop_factory()
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT):
        loop.add_signal_handler(number, print)
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert wakeup_fd() == -1


# --- handlers of the application ------------------------------------------------------------------


def test_loop_with_handlers_closed_in_another_thread(loop_factory: LoopFactory) -> None:
    loop = loop_factory()
    loop.add_signal_handler(signal.SIGUSR1, lambda: None)
    errors: list[BaseException] = []

    def close() -> None:
        try:
            loop.close()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=close)
    thread.start()
    thread.join(support.PATIENCE_SECONDS)
    signal.set_wakeup_fd(-1)
    # The handlers belong to the main thread: that is an error, and the loop is closed nevertheless.
    assert [type(error) for error in errors] == [ValueError]
    assert loop.is_closed()


def test_handler_runs_next_to_a_handler_of_the_user(loop: Loop, run: Callable[..., Any]) -> None:
    """uvicorn calls signal.signal() over a loop's handler: both run."""
    got: list[str] = []
    loop.add_signal_handler(signal.SIGUSR1, got.append, "loop")
    signal.signal(signal.SIGUSR1, lambda *_: got.append("python"))
    os.kill(os.getpid(), signal.SIGUSR1)
    run(support.wait_until(lambda: len(got) == 2))
    assert sorted(got) == ["loop", "python"]
    loop.remove_signal_handler(signal.SIGUSR1)


def test_child_signal_is_the_users(loop: Loop, run: Callable[..., Any]) -> None:
    got: list[int] = []
    before = signal.getsignal(signal.SIGCHLD)
    loop.add_signal_handler(signal.SIGCHLD, got.append, 1)

    async def main() -> list[int | None]:
        processes = [
            await asyncio.create_subprocess_exec(sys.executable, "-c", f"raise SystemExit({code})")
            for code in (0, 7)
        ]
        for process in processes:
            await support.within(process.wait(), 30)
        await support.wait_until(lambda: got)
        return [process.returncode for process in processes]

    assert run(main()) == [0, 7]
    assert loop.remove_signal_handler(signal.SIGCHLD)
    signal.signal(signal.SIGCHLD, before)


def test_ignored_child_signal_loses_only_the_exit_code(
    loop: Loop, loop_name: str, run: Callable[..., Any]
) -> None:
    """With SIG_IGN the kernel reaps; asyncio reports 255 with a warning."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    async def main() -> int | None:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", "raise SystemExit(7)")
        return await support.within(process.wait(), 30)

    try:
        assert run(main()) == 255
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_slow_calls_are_not_interrupted(loop: Loop) -> None:
    """siginterrupt(False): a read in progress continues, for C code that does not retry."""
    loop.add_signal_handler(signal.SIGUSR1, print)
    libc = ctypes.CDLL(None, use_errno=True)
    read_end, write_end = os.pipe()

    def disturb() -> None:
        for _ in range(3):
            time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGUSR1)
        os.write(write_end, b"x")

    thread = threading.Thread(target=disturb)
    buffer = ctypes.create_string_buffer(1)
    thread.start()
    assert libc.read(read_end, buffer, 1) == 1, os.strerror(ctypes.get_errno())
    thread.join()
    loop.remove_signal_handler(signal.SIGUSR1)
    os.close(read_end)
    os.close(write_end)


# --- many signals ---------------------------------------------------------------------------------


def test_storm_of_signals_during_traffic(loop: Loop, run: Callable[..., Any]) -> None:
    counts = {signal.SIGUSR1: 0, signal.SIGUSR2: 0}

    def count(number: signal.Signals) -> None:
        counts[number] += 1

    for number in counts:
        loop.add_signal_handler(number, count, number)
    over = threading.Event()

    def storm() -> None:
        while not over.is_set():
            for number in counts:
                os.kill(os.getpid(), number)
            time.sleep(0.0002)

    async def main() -> None:
        async with serving(Factory()) as (_, address):
            thread = threading.Thread(target=storm)
            thread.start()
            try:
                for number in range(100):
                    assert await ask(address, b"%04d" % number) == b"%04d" % number
                await support.wait_until(lambda: min(counts.values()) > 50)
            finally:
                over.set()
                thread.join()

    run(support.within(main(), 60))
    for number in counts:
        loop.remove_signal_handler(number)


def test_signals_at_any_moment_of_a_wait_are_handled(loop: Loop, run: Callable[..., Any]) -> None:
    """Before the wait, in it and after it: none is missed."""
    got: list[int] = []
    loop.add_signal_handler(signal.SIGUSR1, got.append, 1)
    rounds = 300

    def until_got(count: int) -> None:
        support.wait_until_blocking(lambda: len(got) >= count)

    def send() -> None:
        for number in range(rounds):
            deadline = time.monotonic() + number % 20 * 1e-5
            while time.monotonic() < deadline:
                pass
            os.kill(os.getpid(), signal.SIGUSR1)
            until_got(number + 1)

    async def main() -> None:
        # No timer: only the signal ends the waits.
        await asyncio.get_running_loop().run_in_executor(None, send)

    run(main())
    assert len(got) == rounds
    loop.remove_signal_handler(signal.SIGUSR1)


# --- other threads --------------------------------------------------------------------------------


def test_other_threads_cannot_add_handlers_but_run_loops(loop_factory: LoopFactory) -> None:
    said: list[str] = []

    def other() -> None:
        loop = loop_factory()
        try:
            with pytest.raises(RuntimeError) as caught:
                loop.add_signal_handler(signal.SIGUSR1, print)
            said.append(str(caught.value))
            loop.run_until_complete(asyncio.sleep(0.001))
        finally:
            loop.close()

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert said == ["set_wakeup_fd only works in main thread of the main interpreter"]
    assert wakeup_fd() == -1


def test_handlers_are_where_asyncio_has_them(loop: Any) -> None:
    """prompt_toolkit takes the handler of SIGWINCH from there, to put it back."""
    loop.add_signal_handler(signal.SIGUSR1, print, 1, 2)
    handle = loop._signal_handlers.get(signal.SIGUSR1)
    assert (handle._callback, handle._args) == (print, (1, 2))
    loop.remove_signal_handler(signal.SIGUSR1)
    assert loop._signal_handlers == {}
