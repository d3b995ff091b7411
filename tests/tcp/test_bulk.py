"""Messages of all sizes in both directions at once, on every read and write path of the transport.

A transport reads small messages through the buffer pool and bulk data directly into an object, and
sends small writes at the end of the iteration and large ones immediately. These tests cross the
thresholds at random; a failure prints the seed, which `RINGLOOP_TEST_SEED` sets.
"""

from __future__ import annotations

import asyncio
import os
import random
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import SOCKET_BUFFER_BYTES, Recorder, closed, pattern, serving, socket_pair

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

SIZE_MAX = 4 << 20
SEED = int(os.environ.get("RINGLOOP_TEST_SEED", str(random.SystemRandom().randrange(1 << 32))))
# Messages are slices of one block: creating them takes longer than sending them.
BLOCK = pattern(SIZE_MAX + 65_536)


def message(chance: random.Random, size_max: int = SIZE_MAX) -> bytes:
    """Bytes of a random size; small ones are as likely as large ones."""
    size = int(2 ** chance.uniform(0, size_max.bit_length() - 1))
    start = chance.randrange(65_536)
    return BLOCK[start : start + size]


class End(Recorder):
    """One end of a connection: writes a list of messages under flow control."""

    def __init__(self) -> None:
        super().__init__()
        self.may_write = asyncio.Event()
        self.may_write.set()

    def data_received(self, data: bytes) -> None:
        self.data += data

    def pause_writing(self) -> None:
        self.may_write.clear()

    def resume_writing(self) -> None:
        self.may_write.set()

    async def write(self, messages: list[bytes], chance: random.Random) -> None:
        for data in messages:
            await self.may_write.wait()
            match chance.randrange(4):
                case 0:
                    cut = chance.randrange(len(data) + 1)
                    self.transport.writelines([data[:cut], data[cut:]])
                case 1:
                    self.transport.write(bytearray(data))
                case _:
                    self.transport.write(data)
            if chance.randrange(3) == 0:
                await asyncio.sleep(0)


class BufferedEnd(asyncio.BufferedProtocol):
    """Receives for an `End` into a buffer of random size."""

    def __init__(self, end: End, chance: random.Random) -> None:
        self.end = end
        self.chance = chance
        self.buffer = bytearray()

    def get_buffer(self, sizehint: int) -> bytearray:
        self.buffer = bytearray(int(2 ** self.chance.uniform(0, 19)))
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.end.data += self.buffer[:nbytes]

    def pause_writing(self) -> None:
        self.end.pause_writing()

    def resume_writing(self) -> None:
        self.end.resume_writing()

    def eof_received(self) -> bool:
        return self.end.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.end.connection_lost(exc)


async def pair(buffer_bytes: int | None) -> tuple[End, End]:
    """Two transports connected to each other."""
    loop = asyncio.get_running_loop()
    ends = []
    for sock in socket_pair(buffer_bytes):
        sock.setblocking(False)
        _, end = await loop.create_connection(End, sock=sock)
        ends.append(end)
    return ends[0], ends[1]


async def finish(*ends: End) -> None:
    for end in ends:
        end.transport.abort()
    for end in ends:
        await end.until_lost()
        await closed(end.transport)


async def exchange(ends: tuple[End, End], chance: random.Random, count: int) -> None:
    """Send `count` messages each way at once, and check what arrives."""
    sent = [[message(chance) for _ in range(count)] for _ in ends]
    before = [len(end.data) for end in ends]
    writing = [
        asyncio.ensure_future(end.write(messages, random.Random(chance.random())))
        for end, messages in zip(ends, sent, strict=True)
    ]
    for end, start, messages in zip(ends, before, reversed(sent), strict=True):
        expected = b"".join(messages)
        await support.wait_until(
            lambda: len(end.data) - start >= len(expected),  # noqa: B023
            f"{len(expected)} bytes (seed {SEED})",
            timeout=30,
        )
        assert end.data[start:] == expected, f"seed {SEED}"
    await asyncio.gather(*writing)


@pytest.mark.parametrize("round_number", range(4))
@pytest.mark.parametrize("buffer_bytes", [None, SOCKET_BUFFER_BYTES])
def test_random_sizes_both_ways(run: Run, round_number: int, buffer_bytes: int | None) -> None:
    async def main() -> None:
        chance = random.Random(SEED + round_number)
        ends = await pair(buffer_bytes)
        await exchange(ends, chance, 40)
        await finish(*ends)

    run(main())


def test_interactive_and_bulk_in_turns(run: Run) -> None:
    async def main() -> None:
        left, right = await pair(None)
        position = 0
        for size in [1, 1, 1, 200_000, 1, *[40] * 20, 1_000_000, 16_384, 16_385, 32_768] * 5:
            data = BLOCK[position % 1000 : position % 1000 + size]
            left.transport.write(data)
            await support.wait_until(
                lambda: len(right.data) >= position + size,  # noqa: B023
                f"{size} bytes",
            )
            assert right.data[position:] == data
            position += size
        await finish(left, right)

    run(main())


def test_several_connections(run: Run) -> None:
    async def main() -> None:
        pairs = [await pair(None) for _ in range(8)]
        await asyncio.gather(
            *(exchange(ends, random.Random(SEED + number), 12) for number, ends in enumerate(pairs))
        )
        for ends in pairs:
            await finish(*ends)

    run(main())


@pytest.mark.parametrize("round_number", range(3))
def test_protocols_swapped_in_the_middle(run: Run, round_number: int) -> None:
    async def main() -> None:
        chance = random.Random(SEED + round_number)
        ends = await pair(None)
        going = asyncio.ensure_future(exchange(ends, chance, 30))
        swaps = random.Random(SEED - round_number)
        while not going.done():
            for end in ends:
                buffered = swaps.randrange(2)
                end.transport.set_protocol(BufferedEnd(end, swaps) if buffered else end)
                if swaps.randrange(2):
                    end.transport.pause_reading()
            await asyncio.sleep(0.001)
            for end in ends:
                end.transport.resume_reading()
            await asyncio.sleep(0)
        await going
        await finish(*ends)

    run(main())


def test_flood_of_tiny_messages(run: Run) -> None:
    """More receives complete at once than the pool has buffers."""

    async def main() -> None:
        pairs = [await pair(None) for _ in range(100)]
        for number, (left, _) in enumerate(pairs):
            left.transport.write(pattern(50_000, number))
        for number, (_, right) in enumerate(pairs):
            await support.wait_until(lambda: len(right.data) == 50_000, "50,000 bytes")  # noqa: B023
            assert right.data == pattern(50_000, number)
        for ends in pairs:
            await finish(*ends)

    run(main())


def test_write_everything_and_close(run: Run) -> None:
    class Sends(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            chance = random.Random(SEED)
            for _ in range(20):
                self.transport.write(message(chance, 200_000))
            self.transport.close()

    async def main() -> None:
        chance = random.Random(SEED)
        expected = b"".join(message(chance, 200_000) for _ in range(20))
        loop = asyncio.get_running_loop()
        async with serving(Sends) as (_, address):
            for _ in range(10):
                transport, protocol = await loop.create_connection(Recorder, *address)
                await protocol.until_lost()
                await closed(transport)
                assert protocol.data == expected, f"seed {SEED}"
                assert protocol.reason is None

    run(main())
