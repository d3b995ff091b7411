"""Signals while a loop waits or works, next to asyncio's proactor loop on Windows.

asyncio's selector loop there is no oracle: it does not notice a signal before its wait ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
import unittest
from typing import TYPE_CHECKING, Any

import ringloop
from tests.windows.loops import IS_WINDOWS, PATIENCE_SECONDS, WITH_PIPES, on_every_loop_with_pipes

if TYPE_CHECKING:
    from collections.abc import Callable

# SIGBREAK is of Windows.
NUMBERS = [signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGBREAK", signal.SIGTERM)]
PROMPT_SECONDS = PATIENCE_SECONDS / 2


def raise_signal(number: int) -> None:
    """Signal the process: on Linux a signal of one thread would not end the main thread's wait."""
    if IS_WINDOWS:
        signal.raise_signal(number)
    else:
        os.kill(os.getpid(), number)


class StopError(Exception):
    """Raised by a handler."""


class Signals(unittest.TestCase):
    """Handlers of `signal.signal`, and KeyboardInterrupt."""

    def setUp(self) -> None:
        for number in set(NUMBERS):
            self.addCleanup(signal.signal, number, signal.getsignal(number))

    def raiser(self, number: int) -> Callable[[], None]:
        """Return what has a thread raise the signal once the main thread has had time to wait.

        The thread runs already: starting one may take the main thread as long on a busy machine.
        """
        begun = threading.Event()

        def raise_it() -> None:
            begun.wait()
            time.sleep(0.1)
            raise_signal(number)

        thread = threading.Thread(target=raise_it)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(begun.set)
        return begun.set

    def on_each_loop(self, test: Callable[[Any], None]) -> None:
        """Call `test` with a new loop of each kind, and close it."""
        for name, factory in WITH_PIPES.items():
            with self.subTest(loop=name):
                loop = factory()
                try:
                    test(loop)
                finally:
                    loop.close()

    @on_every_loop_with_pipes
    async def test_handler_runs_while_the_loop_waits(self) -> None:
        loop = asyncio.get_running_loop()
        for number in NUMBERS:
            done = loop.create_future()

            def handle(got: int, _: object, done: asyncio.Future[Any] = done) -> None:
                came = got, threading.current_thread()
                loop.call_soon_threadsafe(done.set_result, came)

            signal.signal(number, handle)
            self.raiser(number)()
            async with asyncio.timeout(PROMPT_SECONDS):
                assert await done == (number, threading.main_thread())

    def test_handler_that_raises_ends_the_wait(self) -> None:
        def stop(number: int, frame: object) -> None:
            raise StopError(number)

        def test(loop: asyncio.AbstractEventLoop) -> None:
            for number in NUMBERS:
                signal.signal(number, stop)
                waiting = loop.create_task(asyncio.sleep(PATIENCE_SECONDS))
                loop.call_soon(self.raiser(number))
                start = time.monotonic()
                with self.assertRaises(StopError):
                    loop.run_forever()
                assert time.monotonic() - start < PROMPT_SECONDS
                # The loop goes on where it was.
                assert not waiting.done()
                waiting.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    loop.run_until_complete(waiting)

        self.on_each_loop(test)

    def test_handler_runs_between_callbacks_of_a_busy_loop(self) -> None:
        def test(loop: asyncio.AbstractEventLoop) -> None:
            got = list[int]()
            signal.signal(signal.SIGINT, lambda number, _: got.append(number))

            def work() -> None:
                if got or time.monotonic() > end:
                    loop.stop()
                else:
                    loop.call_soon(work)

            end = time.monotonic() + PROMPT_SECONDS
            loop.call_soon(work)
            self.raiser(signal.SIGINT)()
            loop.run_forever()
            assert got == [signal.SIGINT]

        self.on_each_loop(test)

    def test_interrupt_ends_run_forever_and_the_loop_runs_again(self) -> None:
        def test(loop: asyncio.AbstractEventLoop) -> None:
            for _ in range(3):
                loop.call_soon(self.raiser(signal.SIGINT))
                start = time.monotonic()
                with self.assertRaises(KeyboardInterrupt):
                    loop.run_forever()
                assert time.monotonic() - start < PROMPT_SECONDS
                assert loop.run_until_complete(asyncio.sleep(0, "again")) == "again"

        self.on_each_loop(test)

    def test_interrupt_cancels_the_main_task_and_a_second_one_is_raised(self) -> None:
        for name, factory in WITH_PIPES.items():
            cancelled = list[str]()

            async def main(*, stays: bool, cancelled: list[str] = cancelled) -> None:
                self.raiser(signal.SIGINT)()
                try:
                    await asyncio.sleep(PATIENCE_SECONDS)
                except asyncio.CancelledError:
                    cancelled.append("first")
                    if not stays:
                        raise
                self.raiser(signal.SIGINT)()
                await asyncio.sleep(PATIENCE_SECONDS)

            for stays in (False, True):
                with self.subTest(loop=name, stays=stays):
                    start = time.monotonic()
                    with (
                        self.assertRaises(KeyboardInterrupt),
                        asyncio.Runner(loop_factory=factory) as runner,
                    ):
                        runner.run(main(stays=stays))
                    assert time.monotonic() - start < PROMPT_SECONDS
                    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
            assert cancelled == ["first", "first"]

    def test_loop_of_another_thread_leaves_signals_to_the_main_thread(self) -> None:
        def test(loop: asyncio.AbstractEventLoop) -> None:
            got = list[threading.Thread]()
            signal.signal(signal.SIGINT, lambda *_: got.append(threading.current_thread()))
            before = signal.set_wakeup_fd(-1)
            other = threading.Thread(target=loop.run_until_complete, args=[asyncio.sleep(0.3)])
            other.start()
            self.raiser(signal.SIGINT)()
            while not got:
                time.sleep(0.01)
            other.join()
            assert signal.set_wakeup_fd(before) == -1
            assert got == [threading.main_thread()]

        self.on_each_loop(test)

    def test_nothing_stays_set_after_close(self) -> None:
        def test(loop: asyncio.AbstractEventLoop) -> None:
            loop.run_until_complete(asyncio.sleep(0))
            loop.close()
            assert signal.set_wakeup_fd(-1) == -1
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

        self.on_each_loop(test)


class WakeUp(unittest.TestCase):
    """The descriptor of `signal.set_wakeup_fd` when the program has set its own: ours alone."""

    def test_number_reaches_the_programs_descriptor_too(self) -> None:
        reader, writer = socket.socketpair()
        with reader, writer, asyncio.Runner(loop_factory=ringloop.new_event_loop) as runner:
            for sock in (reader, writer):
                sock.setblocking(False)
            self.addCleanup(signal.signal, signal.SIGTERM, signal.getsignal(signal.SIGTERM))
            signal.signal(signal.SIGTERM, lambda *_: None)
            signal.set_wakeup_fd(writer.fileno())
            try:

                async def main() -> bytes:
                    loop = asyncio.get_running_loop()
                    loop.call_later(0.05, raise_signal, signal.SIGTERM)
                    return await asyncio.wait_for(loop.sock_recv(reader, 10), PROMPT_SECONDS)

                assert runner.run(main()) == bytes([signal.SIGTERM])
            finally:
                assert signal.set_wakeup_fd(-1) == writer.fileno()


@unittest.skipUnless(IS_WINDOWS, "of Windows")
class Absent(unittest.TestCase):
    """Handlers of a loop, which neither of asyncio's has on Windows."""

    @on_every_loop_with_pipes
    async def test_handlers_of_the_loop_raise_not_implemented_error(self) -> None:
        loop = asyncio.get_running_loop()
        for number in [*NUMBERS, signal.SIGABRT, 0, 100, "no number"]:
            with self.assertRaises(NotImplementedError):
                loop.add_signal_handler(number, print)  # type: ignore[arg-type]
            with self.assertRaises(NotImplementedError):
                loop.remove_signal_handler(number)  # type: ignore[arg-type]
