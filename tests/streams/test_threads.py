"""Streams of loops in several threads, and what other threads may do to a stream without harm."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pytest

import ringloop
from tests import support
from tests.support.streams import echo, until_alone
from tests.support.tcp import pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

THREADS = 4


async def converse(rounds: int) -> int:
    """Serve and talk on the running loop; return how many bytes came back."""
    server = await ringloop.start_server(echo, "127.0.0.1", 0)
    reader, writer = await ringloop.open_connection(*server.sockets[0].getsockname())
    total = 0
    for number in range(rounds):
        data = pattern(1 + number * 997 % 50_000)
        writer.write(data)
        assert await reader.readexactly(len(data)) == data
        total += len(data)
    writer.close()
    await writer.wait_closed()
    await until_alone()
    server.close()
    await server.wait_closed()
    return total


def test_each_thread_has_its_loop_and_streams(loop_factory: support.LoopFactory) -> None:
    totals: list[int] = []

    def work() -> None:
        loop = loop_factory()
        try:
            totals.append(loop.run_until_complete(converse(60)))
        finally:
            loop.close()

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(totals) == THREADS
    assert len(set(totals)) == 1


def look_at(reader: Any, writer: Any) -> None:
    """Touch everything that another thread may see."""
    reader.at_eof()
    reader.exception()
    # asyncio looks twice at the callbacks of the awaited future, which may be None the second time.
    with contextlib.suppress(TypeError):
        repr(reader)
    writer.is_closing()
    writer.get_extra_info("peername")
    for name in ("_limit", "_eof", "_paused", "_waiter", "_transport", "_loop"):
        getattr(reader, name)
    reader.read(10).close()
    writer.drain().close()


@pytest.mark.timeout(120)
def test_other_threads_look_at_streams_in_use(run: Run) -> None:
    async def main() -> None:
        server = await ringloop.start_server(echo, "127.0.0.1", 0)
        reader, writer = await ringloop.open_connection(*server.sockets[0].getsockname())
        stop = threading.Event()
        failures: list[BaseException] = []

        def bother() -> None:
            try:
                while not stop.is_set():
                    look_at(reader, writer)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=bother) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        try:
            for number in range(100):
                data = pattern(1 + number * 997 % 50_000)
                writer.write(data)
                assert await support.within(reader.readexactly(len(data))) == data
                writer.write(b"a line\n")
                assert await support.within(reader.readline()) == b"a line\n"
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert not failures
        writer.close()
        await writer.wait_closed()
        await until_alone()
        server.close()
        await server.wait_closed()

    run(main())


@pytest.mark.timeout(120)
def test_other_threads_change_a_reader() -> None:
    """Nothing promises an order; nothing is lost, and the process survives."""
    from ringloop import _native

    reader: Any = _native.StreamReader.__new__(_native.StreamReader)
    reader._limit = 1 << 30
    taken: list[bytes] = []
    ready = threading.Barrier(2 * THREADS)

    def feed() -> None:
        ready.wait()
        for number in range(300):
            reader.feed_data(b"x" * (number % 50 + 1))

    def take() -> None:
        ready.wait()
        for number in range(300):
            # An empty buffer has no loop to wait on.
            with contextlib.suppress(AttributeError):
                try:
                    reader.read(number % 70 + 1).send(None)
                except StopIteration as stop:
                    taken.append(stop.value)
            if number % 100 == 50:
                len(reader._buffer)

    threads = [threading.Thread(target=one) for one in (feed, take) * THREADS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    fed = THREADS * sum(number % 50 + 1 for number in range(300))
    assert sum(map(len, taken)) + len(reader._buffer) == fed
