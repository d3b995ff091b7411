"""Other threads get to run next to a loop that is never idle, even with compiled callbacks."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import operator
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Loop = asyncio.AbstractEventLoop

SPAN_SECONDS = 0.3
# A thread that gets the GIL every 5 ms, on a busy machine.
TICKS_MIN = 8


class Ticker:
    """A thread that counts how often it gets the GIL."""

    def __init__(self) -> None:
        self.count = 0
        self.stopping = False
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        while not self.stopping:
            self.count += 1
            time.sleep(0.001)


@pytest.fixture
def ticker() -> Iterator[Ticker]:
    ticker = Ticker()
    ticker.thread.start()
    yield ticker
    ticker.stopping = True
    ticker.thread.join()


def ticks(loop: Loop, ticker: Ticker) -> int:
    loop.call_later(SPAN_SECONDS, loop.stop)
    before = ticker.count
    loop.run_forever()
    return ticker.count - before


def again(schedule: str, loop: Loop, *arguments: Any) -> Callable[..., Any]:
    """A callback without a Python frame that reschedules itself."""
    callback = functools.partial(print)
    caller = operator.methodcaller(schedule, *arguments, callback)
    callback.__setstate__((caller, (loop,), {}, {}))  # type: ignore[attr-defined]
    return callback


@pytest.mark.parametrize(
    ("schedule", "arguments"),
    [("call_soon", ()), ("call_later", (0,)), ("call_soon_threadsafe", ())],
)
def test_beside_a_chain(
    loop: Loop, ticker: Ticker, schedule: str, arguments: tuple[Any, ...]
) -> None:
    loop.call_soon(again(schedule, loop, *arguments))
    assert ticks(loop, ticker) >= TICKS_MIN


def test_beside_one_long_batch(loop: Loop, ticker: Ticker) -> None:
    work = functools.partial(sorted, range(3000))
    began = time.perf_counter()
    work()
    for _ in range(int(SPAN_SECONDS / (time.perf_counter() - began))):
        loop.call_soon(work)
    assert ticks(loop, ticker) >= TICKS_MIN


@pytest.mark.parametrize("kind", ["reader", "writer"])
def test_beside_always_ready_watchers(loop: Loop, ticker: Ticker, kind: str) -> None:
    left, right = socket.socketpair()
    right.send(b"x")
    getattr(loop, f"add_{kind}")(left, int)
    assert ticks(loop, ticker) >= TICKS_MIN
    getattr(loop, f"remove_{kind}")(left)
    left.close()
    right.close()


def test_beside_tasks_of_compiled_coroutines(loop: Loop, ticker: Ticker) -> None:
    """Steps without bytecode: an iterator in C that is awaited forever."""

    class Forever:
        def __await__(self) -> Any:
            return iter(functools.partial(next, iter([None]), None), 0)

    async def endless() -> None:
        await Forever()

    task = loop.create_task(endless())
    assert ticks(loop, ticker) >= TICKS_MIN
    task.cancel()
    loop.run_until_complete(asyncio.wait([task]))


def test_beside_a_protocol_in_c(loop: Loop, ticker: Ticker) -> None:
    received = bytearray()

    class Protocol(asyncio.Protocol):
        data_received = received.extend  # type: ignore[assignment]

    async def connect() -> asyncio.Transport:
        transport, _ = await loop.create_connection(Protocol, sock=left)
        return transport

    left, right = socket.socketpair()
    transport = loop.run_until_complete(connect())
    fd = os.dup(right.fileno())
    stop = threading.Event()

    def feed() -> None:
        with contextlib.suppress(OSError):
            while not stop.is_set():
                os.write(fd, b"x" * 64)

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        assert ticks(loop, ticker) >= TICKS_MIN
    finally:
        stop.set()
        transport.abort()
        loop.run_until_complete(asyncio.sleep(0))
        right.close()
        feeder.join()
        os.close(fd)
    assert received
