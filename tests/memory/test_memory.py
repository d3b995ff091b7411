"""Memory: opening and dropping resources repeatedly leaves nothing behind.

Three counters see different leaks: Python's blocks (handles, transports, bytes), the C heap (the
engine's tables and queues), and the references of an object that passed through everything.
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import gc
import socket
import struct
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import serving

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

Loop = asyncio.AbstractEventLoop

CONNECTIONS = 10_000
CONNECTIONS_AT_ONCE = 100
# A leak of one transport per iteration would be several megabytes.
RESIDENT_GROWTH_MAX = 2 << 20
ITERATIONS = 3000


class _HeapInfo(ctypes.Structure):
    """mallinfo2(3)."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def native_bytes() -> int:
    """Bytes in use on the C heap; 0 if the C library does not report it."""
    libc = ctypes.CDLL(None)
    try:
        mallinfo2 = libc.mallinfo2
    except AttributeError:
        return 0
    mallinfo2.restype = _HeapInfo
    info = mallinfo2()
    return int(info.uordblks + info.hblkhd)


@dataclass
class Usage:
    """The current allocations."""

    blocks: int
    objects: int
    native: int

    @classmethod
    def now(cls) -> Usage:
        for _ in range(3):
            gc.collect()
        return cls(sys.getallocatedblocks(), len(gc.get_objects()), native_bytes())

    def assert_flat(self, before: Usage, iterations: int) -> None:
        """Fail if every iteration may have leaked a block, or a few bytes of the C heap."""
        assert self.blocks - before.blocks < iterations // 2, (before, self)
        assert self.objects - before.objects < iterations // 2, (before, self)
        # Tables and free lists grow to the size of one burst, and stay.
        assert self.native - before.native < iterations * 16, (before, self)


class Token:
    """An object whose references are counted."""

    def __call__(self, *args: object) -> None:
        pass


def until_flat(iterations: int, growth_bytes_max: int | None = None) -> Iterator[None]:
    """Let a `for` loop run its body until it leaks nothing, three times at most.

    A leak shows each time; the interpreter's table of interned strings doubles once. With
    `growth_bytes_max` the resident memory of the process is checked too.
    """
    for last in (False, False, True):
        before, resident = Usage.now(), support.resident_bytes()
        yield
        try:
            Usage.now().assert_flat(before, iterations)
            if growth_bytes_max is not None:
                grown = support.resident_bytes() - resident
                assert grown < growth_bytes_max, f"{grown >> 10} KiB more"
        except AssertionError:
            if last:
                raise
        else:
            return


def flat(
    scenario: Callable[[Token], Awaitable[None]],
    run: Callable[..., Any],
    iterations: int = ITERATIONS,
) -> None:
    """Run a scenario `iterations` times, twice; the second time must leave nothing."""
    token = Token()

    async def repeat() -> None:
        for _ in range(iterations):
            await scenario(token)
        # Let cancelled handles and the ready queue drain.
        for _ in range(3):
            await asyncio.sleep(0)

    run(repeat())
    references = sys.getrefcount(token)
    for _ in until_flat(iterations):
        run(repeat())
    assert sys.getrefcount(token) == references


def test_handles_leave_nothing(loop: Loop, run: Callable[..., Any]) -> None:
    async def scenario(token: Token) -> None:
        loop.call_soon(token)
        loop.call_soon(token, token, token, token)
        loop.call_soon(token, *[token] * 5, context=contextvars.Context())
        loop.call_soon(token, token).cancel()
        await asyncio.sleep(0)

    flat(scenario, run)


def test_handles_add_few_bytes_to_those_of_asyncio(loop: Loop) -> None:
    """Millions may be pending: a callback is in the words that asyncio's classes have anyway."""

    def added(handle: asyncio.Handle) -> int:
        mine = type(handle)
        base = next(base for base in mine.__mro__ if base.__module__ == "asyncio.events")
        return mine.__basicsize__ - base.__basicsize__

    assert added(loop.call_soon(print)) <= 8
    assert added(loop.call_soon_threadsafe(print)) <= 16
    assert added(loop.call_later(60, print)) <= 16


def test_handles_in_debug_mode_leave_nothing(loop: Loop, run: Callable[..., Any]) -> None:
    async def scenario(token: Token) -> None:
        loop.call_soon(token, token)
        repr(loop.call_soon(token, token))
        loop.call_later(10, token, token).cancel()
        await asyncio.sleep(0)

    loop.set_debug(True)
    # Capturing a stack for each is slow.
    flat(scenario, run, 500)
    loop.set_debug(False)


def test_timers_leave_nothing(loop: Loop, run: Callable[..., Any]) -> None:
    async def scenario(token: Token) -> None:
        loop.call_later(0, token, token)
        loop.call_later(60, token, token).cancel()
        loop.call_at(loop.time(), token, token, token, token, token)
        await asyncio.sleep(0)

    flat(scenario, run)


def test_tasks_and_futures_leave_nothing(loop: Loop, run: Callable[..., Any]) -> None:
    async def use(token: Token) -> Token:
        await asyncio.sleep(0)
        return token

    async def scenario(token: Token) -> None:
        assert await loop.create_task(use(token)) is token
        future = loop.create_future()
        future.add_done_callback(token)
        future.set_result(token)
        task = asyncio.ensure_future(use(token))
        task.cancel()
        await asyncio.sleep(0)

    flat(scenario, run)


def test_messages_of_other_threads_leave_nothing(loop: Loop, run: Callable[..., Any]) -> None:
    token = Token()

    def send() -> None:
        for _ in range(ITERATIONS):
            loop.call_soon_threadsafe(token, token)

    async def drain() -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    async def burst() -> None:
        thread = threading.Thread(target=send)
        thread.start()
        # Blocks the loop: all messages are queued at once, the most the queues will ever hold.
        thread.join()
        await drain()

    async def stream() -> None:
        thread = threading.Thread(target=send)
        thread.start()
        await support.wait_until(lambda: not thread.is_alive())
        await drain()

    for _ in range(2):
        run(burst())
    references = sys.getrefcount(token)
    # Enough rounds to make a leak larger than the variation of a queue's capacity.
    rounds = 8
    for _ in until_flat(rounds * ITERATIONS):
        for _ in range(rounds):
            run(stream())
    assert sys.getrefcount(token) == references


def test_burst_of_messages_frees_its_memory(loop: Loop, run: Callable[..., Any]) -> None:
    messages = 300_000

    def send() -> None:
        for _ in range(messages):
            loop.call_soon_threadsafe(int)

    async def burst() -> None:
        thread = threading.Thread(target=send)
        thread.start()
        thread.join()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    before = Usage.now()
    for _ in range(2):
        run(burst())
    # Each queue of handles would take more than two megabytes.
    assert Usage.now().native - before.native < 1 << 20


def test_watchers_leave_nothing(loop: Loop, run: Callable[..., Any]) -> None:
    left, right = socket.socketpair()

    async def scenario(token: Token) -> None:
        loop.add_reader(left, token, token)
        loop.add_reader(left, token, token, token)
        loop.add_writer(left, token)
        await asyncio.sleep(0)
        loop.remove_reader(left)
        loop.remove_writer(left)

    flat(scenario, run)
    left.close()
    right.close()


class Echo(asyncio.Protocol):
    """Echoes what it receives."""

    transport: Any

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


@pytest.mark.parametrize("count", [10, 5000, 100_000])
def test_bytes_leave_nothing(loop: Loop, run: Callable[..., Any], count: int) -> None:
    payload = bytes(range(250)) * (count // 250 + 1)
    rounds = ITERATIONS if count < 100_000 else ITERATIONS // 10

    async def exchange(address: tuple[str, int]) -> None:
        reader, writer = await asyncio.open_connection(*address)
        for _ in range(rounds):
            writer.write(payload)
            assert await reader.readexactly(len(payload)) == payload
        writer.close()
        await writer.wait_closed()

    async def main() -> None:
        async with serving(Echo) as (_, address):
            await exchange(address)
            references = sys.getrefcount(payload)
            for _ in until_flat(max(rounds, 1000)):
                await exchange(address)
                await exchange(address)
            assert sys.getrefcount(payload) == references

    run(main())


def reset(sock: socket.socket) -> None:
    """Close with RST, which leaves no TIME_WAIT."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


@pytest.mark.timeout(300)
def test_ten_thousand_connections_leak_nothing(loop: Loop, run: Callable[..., Any]) -> None:
    made = lost = opened = 0

    class Counted(Echo):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            nonlocal made
            made += 1
            super().connection_made(transport)

        def connection_lost(self, exc: Exception | None) -> None:
            nonlocal lost
            lost += 1

    async def batch(address: tuple[str, int]) -> None:
        nonlocal opened
        opened += CONNECTIONS_AT_ONCE
        clients = [socket.create_connection(address) for _ in range(CONNECTIONS_AT_ONCE)]
        for client in clients:
            client.sendall(b"hello")
        await support.wait_until(lambda: made == opened)
        for client in clients:
            # Whether they have received their answer or not.
            reset(client)
        await support.wait_until(lambda: lost == made)

    async def main() -> None:
        async with serving(Counted, backlog=CONNECTIONS_AT_ONCE) as (_, address):
            for _ in range(10):
                await batch(address)
            for _ in until_flat(CONNECTIONS, RESIDENT_GROWTH_MAX):
                for _ in range(CONNECTIONS // CONNECTIONS_AT_ONCE):
                    await batch(address)

    run(main())
    assert made == lost == opened >= CONNECTIONS + 10 * CONNECTIONS_AT_ONCE


def test_client_connections_leave_memory_flat(loop: Loop, run: Callable[..., Any]) -> None:
    async def once() -> None:
        left, right = socket.socketpair()
        transport, _ = await loop.create_connection(Echo, sock=left)
        right.send(b"x")
        transport.write(b"y")
        await asyncio.sleep(0)
        transport.abort()
        right.close()

    async def main() -> None:
        for _ in range(500):
            await once()
        await asyncio.sleep(0.01)
        for _ in until_flat(2000, RESIDENT_GROWTH_MAX):
            for _ in range(2000):
                await once()
            await asyncio.sleep(0.01)

    run(main())


def test_loops_leave_nothing(loop_factory: support.LoopFactory) -> None:
    def once() -> None:
        loop = loop_factory()
        loop.call_later(10, print)
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    for _ in range(20):
        once()
    for _ in until_flat(400, RESIDENT_GROWTH_MAX):
        for _ in range(100):
            once()
