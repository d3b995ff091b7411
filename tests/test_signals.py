"""Signals: handlers run in the loop, Ctrl-C ends a wait, the wake-up descriptor goes back."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import support

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support import LoopFactory

Loop = asyncio.AbstractEventLoop


@pytest.fixture(autouse=True)
def signals_restored() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGUSR2)}
    kept[signal.SIGINT] = signal.getsignal(signal.SIGINT)
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)
    assert signal.set_wakeup_fd(-1) == -1, "the wake-up descriptor was left behind"


def kill_later(number: int, loop: Loop) -> threading.Thread:
    """Send a signal to this process once the loop runs, from another thread."""

    def send() -> None:
        support.wait_until_blocking(loop.is_running)
        time.sleep(0.01)  # let it fall asleep: either way the signal has to get through
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


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
    assert time.monotonic() - start < 5
    assert got == [((1, "two"), True)]
    assert loop.remove_signal_handler(signal.SIGUSR1)
    assert not loop.remove_signal_handler(signal.SIGUSR1)
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL


def test_signals_that_come_together_all_arrive(loop: Loop, run: Callable[..., Any]) -> None:
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


def test_interrupt_ends_a_wait_at_once(loop: Loop) -> None:
    thread = kill_later(signal.SIGINT, loop)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    assert time.monotonic() - start < 5
    thread.join()
    assert loop.run_until_complete(asyncio.sleep(0.001, 5)) == 5


def test_interrupt_ends_a_busy_chain(loop: Loop) -> None:
    stop = False

    def link() -> None:
        if not stop:
            loop.call_soon(link)

    loop.call_soon(link)
    thread = kill_later(signal.SIGINT, loop)
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    thread.join()
    stop = True
    loop.call_soon(loop.stop)
    loop.run_forever()


def test_python_handler_may_schedule(loop: Loop) -> None:
    def handler(number: int, frame: object) -> None:
        loop.call_soon_threadsafe(loop.stop)

    signal.signal(signal.SIGUSR1, handler)
    thread = kill_later(signal.SIGUSR1, loop)
    start = time.monotonic()
    loop.run_forever()
    thread.join()
    assert time.monotonic() - start < 5


def test_interrupt_in_a_runner_cancels_the_main_task(loop_factory: LoopFactory) -> None:
    cancelled: list[bool] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        threads.append(kill_later(signal.SIGINT, loop))
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    threads: list[threading.Thread] = []
    with pytest.raises(KeyboardInterrupt), asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())
    assert cancelled == [True]
    threads[0].join()


def test_wake_up_descriptor_is_handed_back(
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


def test_interrupt_of_a_program(loop_name: str) -> None:
    program = textwrap.dedent(f"""
        import asyncio
        from tests import support

        async def main():
            print("ready", flush=True)
            await asyncio.sleep(60)

        with asyncio.Runner(loop_factory=support.loop_factory({loop_name!r})) as runner:
            runner.run(main())
    """)
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert time.monotonic() - start < 5
    assert "KeyboardInterrupt" in errors
    assert process.returncode == -signal.SIGINT
