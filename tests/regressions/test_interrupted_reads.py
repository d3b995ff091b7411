"""An exception that leaves the loop between the kernel's bytes and the protocol.

On the ring the bytes for a `BufferedProtocol` are in a provided buffer before `get_buffer` is called.
A KeyboardInterrupt from `get_buffer` dropped that buffer, and the stream continued with a hole.
asyncio calls `get_buffer` before recv(2), so it loses nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import Peer, closed, pattern, socket_pair

if TYPE_CHECKING:
    from collections.abc import Callable

LEAVES = [KeyboardInterrupt, SystemExit]


class Interrupted(asyncio.BufferedProtocol):
    """Raises in chosen calls of `get_buffer` and `buffer_updated`, counted from 0."""

    def __init__(self, size: int, fails: Callable[[int], BaseException | None]) -> None:
        self.buffer = bytearray(size)
        self.data = bytearray()
        self.fails = fails
        self.calls = 0

    def step(self) -> None:
        number, self.calls = self.calls, self.calls + 1
        if error := self.fails(number):
            raise error

    def get_buffer(self, sizehint: int) -> bytearray:
        self.step()
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self.buffer[:nbytes]
        self.step()


def received(loop: asyncio.AbstractEventLoop, protocol: Interrupted, data: bytes) -> int:
    """Send `data` to the protocol, running the loop again after each interrupt; return their number."""
    ours, theirs = socket_pair()
    peer = Peer(theirs)

    async def begin() -> Any:
        transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
        return transport

    async def whole() -> None:
        await support.wait_until(lambda: len(protocol.data) >= len(data), "all bytes")

    transport = loop.run_until_complete(begin())
    sending = loop.create_task(peer.send(data))
    task = loop.create_task(whole())
    interrupts = 0
    for wanted in (task, sending):
        while not wanted.done():
            try:
                loop.run_until_complete(wanted)
            except (KeyboardInterrupt, SystemExit):
                interrupts += 1
    transport.close()
    loop.run_until_complete(closed(transport))
    peer.close()
    return interrupts


@pytest.mark.parametrize("error", LEAVES)
@pytest.mark.parametrize("size", [7, 100, 1 << 16])
def test_bytes_are_kept_when_get_buffer_is_interrupted(
    loop: asyncio.AbstractEventLoop, error: type[BaseException], size: int
) -> None:
    protocol = Interrupted(size, lambda number: error() if number < 4 else None)
    assert received(loop, protocol, pattern(2000)) == 4
    assert protocol.data == pattern(2000)


@pytest.mark.parametrize("every", [2, 3])
def test_interrupts_throughout_a_transfer_leave_no_hole(
    loop: asyncio.AbstractEventLoop, every: int
) -> None:
    """The second is `get_buffer` only, the third alternates; with provided buffers and without."""

    def fails(number: int) -> BaseException | None:
        return KeyboardInterrupt() if number % every == 0 and number < 200 else None

    protocol = Interrupted(5000, fails)
    assert received(loop, protocol, pattern(400_000)) > 20
    assert protocol.data == pattern(400_000)


def test_buffered_bytes_follow_interrupted_ones(loop: asyncio.AbstractEventLoop) -> None:
    protocol = Interrupted(10, lambda number: KeyboardInterrupt() if number == 1 else None)
    ours, theirs = socket_pair()

    async def begin() -> Any:
        transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
        return transport

    transport = loop.run_until_complete(begin())
    theirs.sendall(pattern(25))
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()

    async def rest() -> None:
        transport.pause_reading()
        theirs.sendall(b"more")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert protocol.data == pattern(10)
        transport.resume_reading()
        await support.wait_until(lambda: len(protocol.data) == 29, "all bytes")
        assert protocol.data == pattern(25) + b"more"
        transport.close()
        await closed(transport)

    loop.run_until_complete(rest())
    theirs.close()


def test_buffer_whose_memory_interrupts(loop: asyncio.AbstractEventLoop) -> None:
    """asyncio calls `len` on what `get_buffer` returned, which may run code as well."""

    class Memory(bytearray):
        failures = 2

        def __len__(self) -> int:
            if Memory.failures:
                Memory.failures -= 1
                raise KeyboardInterrupt
            return super().__len__()

    class Slow(Interrupted):
        def get_buffer(self, sizehint: int) -> bytearray:
            len(self.buffer)
            return super().get_buffer(sizehint)

    protocol = Slow(100, lambda _: None)
    protocol.buffer = Memory(100)
    Memory.failures = 2
    assert received(loop, protocol, pattern(300)) == 2
    assert protocol.data == pattern(300)
