"""Transports on message-based sockets: each write is one message, each read returns one message."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import select
import socket
import tty
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import ORACLE, wait_until
from tests.support.pipes import LOST

if TYPE_CHECKING:
    from collections.abc import Iterator

Run = Any

# asyncio reads 256 KiB at a time; these are sizes around which a smaller read would truncate.
SIZES = (1, 4096, 16_384, 16_385, 65_537, 100_000)
KINDS = (socket.SOCK_SEQPACKET, socket.SOCK_DGRAM)


class Messages(asyncio.Protocol):
    """Records the data of each call separately."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.calls: list[Any] = []

    def data_received(self, data: bytes) -> None:
        self.got.append(data)

    def eof_received(self) -> None:
        self.calls.append("eof")

    def connection_lost(self, exc: BaseException | None) -> None:
        self.calls.append(("lost", type(exc)))


class Filling(asyncio.BufferedProtocol):
    """Like `Messages`, with a buffer of its own."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.memory = bytearray(1 << 18)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.memory

    def buffer_updated(self, nbytes: int) -> None:
        self.got.append(bytes(self.memory[:nbytes]))


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, peer = socket.socketpair(socket.AF_UNIX, request.param)
    with contextlib.closing(ours), contextlib.closing(peer):
        for end in (ours, peer):
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        yield ours, peer


def messages_of(peer: socket.socket) -> list[bytes]:
    got: list[bytes] = []
    with contextlib.suppress(BlockingIOError):
        while message := peer.recv(1 << 18):
            got.append(message)
    return got


async def opened(kind: str, loop: Any, sock: socket.socket, protocol: Any) -> Any:
    """Create a transport on `sock`, as applications do."""
    if kind == "read pipe":
        return (await loop.connect_read_pipe(lambda: protocol, sock))[0]
    if kind == "write pipe":
        return (await loop.connect_write_pipe(lambda: protocol, sock))[0]
    # Refused by create_connection(sock=): users of HCI and SEQPACKET sockets call it directly.
    waiter = loop.create_future()
    transport = loop._make_socket_transport(sock, protocol, waiter)
    await waiter
    return transport


@pytest.mark.parametrize("protocol_type", [Messages, Filling])
@pytest.mark.parametrize("kind", ["read pipe", "stream"])
def test_each_read_takes_one_message_whole(
    loop: Any, run: Run, pair: Any, kind: str, protocol_type: type
) -> None:
    if kind == "read pipe" and protocol_type is Filling:
        pytest.skip("pipe transports know data_received only")

    async def main() -> None:
        ours, peer = pair
        protocol: Any = protocol_type()
        transport = await opened(kind, loop, ours, protocol)
        expected = []
        # One by one, and twenty small ones: the transport must not adapt its reads to small
        # messages.
        for size in [*SIZES, *[10] * 20, *SIZES]:
            message = os.urandom(8) * (size // 8 + 1)
            expected.append(message[:size])
            peer.send(expected[-1])
            await wait_until(lambda: len(protocol.got) == len(expected))
        assert protocol.got == expected
        transport.close()
        await asyncio.sleep(0)

    run(main())


@pytest.mark.parametrize("kind", ["read pipe", "stream"])
def test_messages_that_wait_are_delivered_one_by_one(
    loop: Any, run: Run, pair: Any, kind: str
) -> None:
    async def main() -> None:
        ours, peer = pair
        for number in range(5):
            peer.send(b"%d" % number)
        protocol = Messages()
        transport = await opened(kind, loop, ours, protocol)
        await wait_until(lambda: len(protocol.got) == 5)
        assert protocol.got == [b"0", b"1", b"2", b"3", b"4"]
        transport.close()
        await asyncio.sleep(0)

    run(main())


def test_an_empty_message_is_the_end_as_in_asyncio(loop: Any, run: Run, pair: Any) -> None:
    async def main() -> None:
        ours, peer = pair
        protocol = Messages()
        await opened("read pipe", loop, ours, protocol)
        peer.send(b"last")
        peer.send(b"")
        await wait_until(lambda: LOST in protocol.calls)
        assert protocol.got == [b"last"]
        assert protocol.calls == ["eof", LOST]

    run(main())


@pytest.mark.parametrize("kind", ["write pipe", "stream"])
def test_each_write_of_an_iteration_is_a_message(loop: Any, run: Run, pair: Any, kind: str) -> None:
    async def main() -> None:
        ours, peer = pair
        transport = await opened(kind, loop, ours, Messages())
        for message in (b"one", bytearray(b"two"), b"three", b"4" * 20_000, b"five"):
            transport.write(message)
        # The iteration has not ended, and they have arrived.
        assert messages_of(peer) == [b"one", b"two", b"three", b"4" * 20_000, b"five"]
        transport.writelines([b"a", b"", b"bc"])
        assert messages_of(peer) == [b"abc"]
        transport.write(b"")
        assert messages_of(peer) == []
        transport.close()
        await asyncio.sleep(0)

    run(main())


@pytest.mark.parametrize("kind", ["write pipe", "stream"])
def test_messages_queued_for_a_full_peer_stay_separate(
    loop: Any, run: Run, pair: Any, kind: str, loop_name: str
) -> None:
    if loop_name == ORACLE:
        pytest.skip("asyncio joins what waits for room")

    async def main() -> None:
        ours, peer = pair
        transport = await opened(kind, loop, ours, Messages())
        sent: list[bytes] = []
        while transport.get_write_buffer_size() < 100:
            sent.append(b"%06d" % len(sent))
            transport.write(sent[-1])
        transport.writelines([b"to", b"gether"])
        sent.append(b"together")
        transport.close()
        got: list[bytes] = []

        def all_are_there() -> bool:
            got.extend(messages_of(peer))
            return len(got) >= len(sent)

        await wait_until(all_are_there)
        assert got == sent

    run(main())


def test_too_long_message_fails_in_write(loop: Any, run: Run, pair: Any) -> None:
    async def main() -> None:
        ours, peer = pair
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        protocol = Messages()
        transport = await opened("write pipe", loop, ours, protocol)
        transport.write(b"short")
        transport.write(bytes(1 << 17))
        await wait_until(lambda: protocol.calls)
        assert protocol.calls == [("lost", OSError)]
        assert messages_of(peer) == [b"short"]

    run(main())


@pytest.mark.parametrize("room", [1 << 20, 4096])
def test_a_packet_pipe_keeps_packets(loop: Any, run: Run, loop_name: str, room: int) -> None:
    if loop_name == ORACLE and room == 4096:
        pytest.skip("asyncio joins what waits for room")

    async def main() -> None:
        reader, writer = os.pipe2(os.O_DIRECT | os.O_NONBLOCK)
        with os.fdopen(reader, "rb", 0) as source, os.fdopen(writer, "wb", 0) as target:
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, room)
            protocol = Messages()
            written, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, target)
            expected = [b"one", b"two", b"3" * 4096, b"four"]
            for packet in expected:
                written.write(packet)
            read, _ = await loop.connect_read_pipe(lambda: protocol, source)
            await wait_until(lambda: len(protocol.got) == 4)
            assert protocol.got == expected
            read.close()
            written.close()
            await asyncio.sleep(0)

    run(main())


def test_a_device_gets_each_write_by_itself(loop: Any, run: Run) -> None:
    async def main() -> None:
        # A terminal does not keep write boundaries. Bytes that arrive while the loop is blocked
        # show that the write was made immediately. A kernel thread delivers them.
        master, slave = pty.openpty()
        tty.setraw(slave)
        with os.fdopen(master, "rb", 0) as source, os.fdopen(slave, "wb", 0) as target:
            transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, target)
            transport.write(b"a")
            transport.write(b"b")
            got = b""
            while len(got) < 2 and select.select([source], [], [], 10)[0]:
                got += source.read(10)
            assert got == b"ab"
            transport.close()
            await asyncio.sleep(0)

    run(main())
