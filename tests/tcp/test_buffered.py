"""`asyncio.BufferedProtocol` on a TCP transport: bytes go into the protocol's own memory."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import (
    SOCKET_BUFFER_BYTES,
    Peer,
    Recorder,
    closed,
    connected,
    exceptions_of,
    pattern,
    socket_pair,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]


class Buffered(asyncio.BufferedProtocol):
    """Receives through a buffer of a given size."""

    def __init__(self, size: int) -> None:
        self.buffer = bytearray(size)
        self.data = bytearray()
        self.hints: set[int] = set()
        self.events: list[str] = []
        self.reason: BaseException | None = None
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> Any:
        self.hints.add(sizehint)
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        assert 0 < nbytes <= len(self.buffer)
        self.data += self.buffer[:nbytes]
        self.buffer[:nbytes] = b"\xff" * nbytes

    def eof_received(self) -> None:
        self.events.append("eof_received")

    def connection_lost(self, exc: Exception | None) -> None:
        self.reason = exc
        self.events.append("connection_lost")

    async def until_lost(self) -> None:
        await support.wait_until(lambda: "connection_lost" in self.events, "connection_lost")

    async def until(self, count: int) -> None:
        await support.wait_until(lambda: len(self.data) >= count, f"{count} bytes", timeout=30)


@pytest.mark.parametrize("buffer_size", [1, 7, 1000, 16 * 1024, 65_536, 1 << 20])
@pytest.mark.parametrize("size", [1, 5_000, 400_000])
def test_bytes_arrive_whole_and_in_order(run: Run, buffer_size: int, size: int) -> None:
    size = min(size, buffer_size * 2000)

    async def main() -> None:
        protocol = Buffered(buffer_size)
        async with connected(protocol, SOCKET_BUFFER_BYTES) as (_, peer):
            await peer.send(pattern(size))
            await protocol.until(size)
            assert protocol.data == pattern(size)
            assert protocol.hints == {-1}

    run(main())


@pytest.mark.parametrize("kind", [bytearray, lambda data: memoryview(bytearray(data))])
def test_any_writable_buffer_is_accepted(run: Run, kind: Callable[[bytes], Any]) -> None:
    async def main() -> None:
        protocol = Buffered(100)
        protocol.buffer = kind(bytes(100))
        async with connected(protocol) as (_, peer):
            await peer.send(b"hello")
            await protocol.until(5)
            assert protocol.data == b"hello"

    run(main())


def test_slice_of_a_view_is_not_overrun(run: Run) -> None:
    memory = bytearray(b"." * 30)

    class Window(Buffered):
        def get_buffer(self, sizehint: int) -> Any:
            return memoryview(memory)[10:20]

        def buffer_updated(self, nbytes: int) -> None:
            self.data += memory[10 : 10 + nbytes]

    async def main() -> None:
        protocol = Window(1)
        async with connected(protocol) as (_, peer):
            await peer.send(b"abcdefghijklmnopqrstuvwxyz")
            await protocol.until(26)
            assert protocol.data == b"abcdefghijklmnopqrstuvwxyz"
            assert memory[:10] == memory[20:] == b"." * 10

    run(main())


def test_buffer_is_released_before_buffer_updated(run: Run) -> None:
    class Resizes(Buffered):
        def buffer_updated(self, nbytes: int) -> None:
            self.data += self.buffer[:nbytes]
            self.buffer.extend(b"more")  # BufferError while it is exported

    async def main() -> None:
        protocol = Resizes(64)
        async with connected(protocol) as (_, peer):
            await peer.send(pattern(1000))
            await protocol.until(1000)
            assert protocol.data == pattern(1000)

    run(main())


def test_buffer_is_released_between_messages(run: Run) -> None:
    async def main() -> None:
        protocol = Buffered(64)
        async with connected(protocol) as (_, peer):
            await peer.send(b"one")
            await protocol.until(3)
            protocol.buffer.extend(b"more")
            await peer.send(b"two")
            await protocol.until(6)
            assert protocol.data == b"onetwo"

    run(main())


def test_end_of_stream(run: Run) -> None:
    async def main() -> None:
        protocol = Buffered(64)
        async with connected(protocol) as (_, peer):
            await peer.send(b"last")
            peer.close()
            await protocol.until_lost()
            assert protocol.data == b"last"
            assert protocol.events == ["eof_received", "connection_lost"]
            assert protocol.reason is None

    run(main())


def fails(error: BaseException) -> Any:
    def get_buffer(_hint: int) -> Any:
        raise error

    return get_buffer


@pytest.mark.parametrize(
    "buffer",
    [bytearray(), b"read-only", "text", None, 5, memoryview(b"read-only")],
    ids=["empty", "bytes", "str", "None", "int", "read-only view"],
)
def test_a_buffer_that_cannot_be_filled_ends_the_connection(
    loop: asyncio.AbstractEventLoop, run: Run, buffer: Any
) -> None:
    async def main() -> None:
        protocol = Buffered(1)
        protocol.buffer = buffer
        with exceptions_of(loop) as contexts:
            async with connected(protocol) as (_, peer):
                await peer.send(b"x")
                await protocol.until_lost()
            (context,) = contexts
            assert protocol.reason is context["exception"]
            assert isinstance(protocol.reason, (RuntimeError, TypeError, BufferError))
            assert protocol.data == b""

    run(main())


@pytest.mark.parametrize("method", ["get_buffer", "buffer_updated"])
@pytest.mark.parametrize("size", [1, 100_000])
def test_an_exception_ends_the_connection(
    loop: asyncio.AbstractEventLoop, run: Run, method: str, size: int
) -> None:
    error = ZeroDivisionError()

    async def main() -> None:
        protocol = Buffered(64)
        setattr(protocol, method, fails(error))
        with exceptions_of(loop) as contexts:
            async with connected(protocol) as (_, peer):
                await peer.send(bytes(size))
                await protocol.until_lost()
            (context,) = contexts
            assert protocol.reason is error
            assert context["exception"] is error
            assert context["message"] == f"Fatal error: protocol.{method}() call failed."
            assert protocol.events == ["connection_lost"]

    run(main())


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_interrupt_leaves_the_loop_and_nothing_is_lost(
    loop: asyncio.AbstractEventLoop, error: type[BaseException]
) -> None:
    ours, theirs = socket_pair()

    class Interrupted(Buffered):
        def buffer_updated(self, nbytes: int) -> None:
            first = not self.data
            super().buffer_updated(nbytes)
            if first:
                raise error

    protocol = Interrupted(100)

    async def begin() -> Any:
        transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
        return transport

    async def rest(transport: Any, peer: Peer) -> None:
        await protocol.until(5000)
        assert protocol.data == pattern(5000)
        transport.close()
        await closed(transport)
        peer.close()

    transport = loop.run_until_complete(begin())
    theirs.sendall(pattern(5000))
    with pytest.raises(error):
        loop.run_forever()
    loop.run_until_complete(rest(transport, Peer(theirs)))


@pytest.mark.parametrize("end", ["close", "abort"])
def test_ending_inside_buffer_updated_stops_delivery(run: Run, end: str) -> None:
    class Ends(Buffered):
        def buffer_updated(self, nbytes: int) -> None:
            super().buffer_updated(nbytes)
            getattr(self.transport, end)()

    async def main() -> None:
        protocol = Ends(100)
        async with connected(protocol) as (_, peer):
            await peer.send(pattern(50_000))
            await protocol.until_lost()
            assert protocol.data == pattern(50_000)[:100]
            assert protocol.events == ["connection_lost"]

    run(main())


@pytest.mark.parametrize("end", ["close", "abort"])
def test_ending_inside_get_buffer(run: Run, end: str) -> None:
    class Ends(Buffered):
        def get_buffer(self, sizehint: int) -> Any:
            getattr(self.transport, end)()
            return super().get_buffer(sizehint)

    async def main() -> None:
        protocol = Ends(100)
        async with connected(protocol) as (_, peer):
            await peer.send(b"x" * 1000)
            await protocol.until_lost()
            assert len(protocol.data) <= 100
            assert protocol.events == ["connection_lost"]

    run(main())


@pytest.mark.parametrize("size", [300, 100_000])
def test_pausing_inside_buffer_updated(run: Run, size: int) -> None:
    class Pauses(Buffered):
        def buffer_updated(self, nbytes: int) -> None:
            assert self.transport.is_reading()
            super().buffer_updated(nbytes)
            self.transport.pause_reading()
            asyncio.get_running_loop().call_soon(self.transport.resume_reading)

    async def main() -> None:
        protocol = Pauses(97)
        async with connected(protocol) as (_, peer):
            await peer.send(pattern(size))
            await protocol.until(size)
            assert protocol.data == pattern(size)

    run(main())


def test_swapping_to_a_plain_protocol_inside_buffer_updated(run: Run) -> None:
    plain = Recorder()

    class Swaps(Buffered):
        def buffer_updated(self, nbytes: int) -> None:
            super().buffer_updated(nbytes)
            self.transport.set_protocol(plain)

    async def main() -> None:
        protocol = Swaps(100)
        data = pattern(200_000)
        async with connected(protocol) as (_, peer):
            await peer.send(data)
            await support.wait_until(lambda: len(plain.data) == len(data) - 100, "the rest")
            assert protocol.data + plain.data == data

    run(main())


def test_swapping_to_a_buffered_protocol_inside_data_received(run: Run) -> None:
    buffered = Buffered(333)

    class Swaps(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            buffered.transport = self.transport
            self.transport.set_protocol(buffered)

    async def main() -> None:
        protocol = Swaps()
        data = pattern(400_000)
        async with connected(protocol, SOCKET_BUFFER_BYTES) as (_, peer):
            await peer.send(data)
            await support.wait_until(
                lambda: len(protocol.data) + len(buffered.data) == len(data), "all bytes"
            )
            assert len(protocol.chunks) == 1
            assert protocol.data + buffered.data == data

    run(main())


def test_buffered_data_goes_to_the_current_protocol(run: Run) -> None:
    async def main() -> None:
        first, second = Recorder(), Buffered(3)
        async with connected(first) as (transport, peer):
            await peer.send(b"one")
            await support.wait_until(lambda: first.data == b"one", "the first message")
            transport.pause_reading()
            await peer.send(b"two and three")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            transport.set_protocol(second)
            transport.resume_reading()
            await second.until(13)
            assert first.data == b"one"
            assert second.data == b"two and three"
            transport.set_protocol(first)
            peer.sock.shutdown(socket.SHUT_WR)
            await first.until_lost()

    run(main())
