"""Callbacks, timers, other threads, executors, and what a loop on Windows does not have."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
import time
import unittest
from typing import Any

import ringloop
from tests.windows.loops import IS_WINDOWS, PATIENCE_SECONDS, on_every_loop


class Callbacks(unittest.TestCase):
    """What needs no socket of the program's."""

    @on_every_loop
    async def test_callbacks_run_in_order_and_timers_by_their_deadline(self) -> None:
        loop, ran = asyncio.get_running_loop(), list[str]()
        done = loop.create_future()
        start = loop.time()
        loop.call_later(0.06, lambda: (ran.append("late"), done.set_result(loop.time())))
        loop.call_later(0.03, ran.append, "early")
        loop.call_later(0.04, ran.append, "cancelled").cancel()
        loop.call_soon(ran.append, "first")
        loop.call_soon(ran.append, "second")
        assert await done - start >= 0.05
        assert ran == ["first", "second", "early", "late"]

    @on_every_loop
    async def test_other_thread_wakes_an_idle_loop(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(20):
            done = loop.create_future()
            thread = threading.Thread(
                target=lambda done=done: (
                    time.sleep(0.002),
                    loop.call_soon_threadsafe(done.set_result, threading.get_ident()),
                )
            )
            thread.start()
            assert await done != threading.get_ident()
            thread.join()

    @on_every_loop
    async def test_executor_and_name_lookup_answer(self) -> None:
        loop = asyncio.get_running_loop()
        answers = await asyncio.gather(*(loop.run_in_executor(None, pow, 2, n) for n in range(10)))
        assert answers == [2**n for n in range(10)]
        found = await loop.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)
        assert {entry[4][0] for entry in found} & {"127.0.0.1", "::1"}

    @on_every_loop
    async def test_timeout_cancels_what_waits(self) -> None:
        with self.assertRaises(TimeoutError):
            async with asyncio.timeout(0.02):
                await asyncio.Event().wait()

    def test_interrupt_ends_a_wait(self) -> None:
        def interrupt() -> None:
            time.sleep(0.1)
            signal.raise_signal(signal.SIGINT)

        thread = threading.Thread(target=interrupt)

        async def main() -> None:
            # Not before the loop runs: an interrupt in between would be none of the loop's.
            thread.start()
            await asyncio.sleep(PATIENCE_SECONDS)

        start = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            ringloop.run(main())
        assert time.monotonic() - start < PATIENCE_SECONDS / 2
        thread.join()

    def test_run_gives_the_result_and_closes_the_loop(self) -> None:
        async def main() -> asyncio.AbstractEventLoop:
            return asyncio.get_running_loop()

        loop = ringloop.run(main())
        assert isinstance(loop, ringloop.Loop)
        assert loop.is_closed()


@unittest.skipUnless(IS_WINDOWS, "of Windows")
class Absent(unittest.TestCase):
    """What Windows has not, and asyncio's selector loop there neither."""

    @on_every_loop
    async def test_what_is_missing_raises_not_implemented_error(self) -> None:
        loop: Any = asyncio.get_running_loop()
        protocol = asyncio.Protocol
        for call in (
            lambda: loop.add_signal_handler(2, print),
            lambda: loop.remove_signal_handler(2),
        ):
            with self.assertRaises(NotImplementedError):
                call()
        for waits in (
            loop.create_unix_connection(protocol, "path"),
            loop.create_unix_server(protocol, "path"),
        ):
            with self.assertRaises(NotImplementedError):
                await waits

    def test_workers_are_not_implemented(self) -> None:
        async def main(worker: ringloop.Worker) -> None:
            raise AssertionError(worker)

        with self.assertRaises(NotImplementedError):
            ringloop.run_workers(main, 2)
