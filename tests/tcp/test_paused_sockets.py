"""A paused transport reads nothing from the kernel: another reader of the socket gets the data."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import Recorder, a_few_turns, closed, connected, socket_pair

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

Pair = tuple[socket.socket, socket.socket]


def unix_pair() -> Pair:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    return ours, theirs


def heir_of(transport: Any) -> socket.socket:
    """A duplicate of the socket, as another library would use it."""
    heir = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
    heir.setblocking(False)
    return heir


@pytest.mark.parametrize("make", [socket_pair, unix_pair])
@pytest.mark.parametrize("before", [0, 1, 40])
def test_bytes_received_while_paused_go_to_the_next_reader(
    run: Run, make: Callable[[], Pair], before: int
) -> None:
    """After no, one and many messages: by then the ring receives in another mode."""

    async def main() -> None:
        ours, theirs = make()
        protocol = Recorder()
        transport: Any
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
        for count in range(before):
            theirs.sendall(b"m" * 9000)
            await support.wait_until(lambda: len(protocol.data) == 9000 * (count + 1))  # noqa: B023
        for round_ in range(3):
            transport.pause_reading()
            await a_few_turns()
            theirs.sendall(b"for the heir")
            await a_few_turns()
            with heir_of(transport) as heir:
                assert heir.recv(99, socket.MSG_PEEK) == b"for the heir"
                assert heir.recv(99) == b"for the heir"
            assert len(protocol.data) == 9000 * before + round_
            transport.resume_reading()
            theirs.sendall(b"x")
            await support.wait_until(lambda: len(protocol.data) == 9000 * before + round_ + 1)  # noqa: B023
        transport.abort()
        await closed(transport)
        theirs.close()

    run(main())


def test_bytes_of_the_same_callback_go_to_the_next_reader(run: Run) -> None:
    """Paused and sent to within one iteration of the loop."""

    async def main() -> None:
        async with connected(Recorder()) as (transport, peer):
            await a_few_turns()
            transport.pause_reading()
            await peer.send(b"for the heir")
            await a_few_turns()
            with heir_of(transport) as heir:
                assert heir.recv(99) == b"for the heir"

    run(main())


def test_pause_inside_data_received(run: Run) -> None:
    class Once(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.pause_reading()

    async def main() -> None:
        protocol = Once()
        async with connected(protocol) as (transport, peer):
            await peer.send(b"mine")
            await support.wait_until(lambda: protocol.data == b"mine")
            await a_few_turns()
            await peer.send(b"the heir's")
            await a_few_turns()
            with heir_of(transport) as heir:
                assert heir.recv(99) == b"the heir's"

    run(main())


def test_pause_in_connection_made(run: Run) -> None:
    class Never(Recorder):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            transport.pause_reading()

    async def main() -> None:
        async with connected(Never()) as (transport, peer):
            await peer.send(b"the heir's")
            await a_few_turns()
            with heir_of(transport) as heir:
                assert heir.recv(99) == b"the heir's"

    run(main())


def test_eof_received_while_paused_goes_to_the_next_reader(run: Run) -> None:
    async def main() -> None:
        async with connected(Recorder()) as (transport, peer):
            await a_few_turns()
            transport.pause_reading()
            await a_few_turns()
            await peer.send(b"last")
            peer.sock.shutdown(socket.SHUT_WR)
            await a_few_turns()
            with heir_of(transport) as heir:
                assert heir.recv(99) == b"last"
                assert heir.recv(99) == b""

    run(main())


def test_pause_of_a_pipe(run: Run) -> None:
    async def main() -> None:
        reader, writer = os.pipe()
        protocol = Recorder()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(reader, "rb", 0))
        os.write(writer, b"first")
        await support.wait_until(lambda: protocol.data == b"first")
        transport.pause_reading()
        await a_few_turns()
        os.write(writer, b"for the heir")
        await a_few_turns()
        assert os.read(reader, 99) == b"for the heir"
        transport.resume_reading()
        os.write(writer, b"second")
        await support.wait_until(lambda: protocol.data == b"firstsecond")
        transport.close()
        os.close(writer)
        await a_few_turns()

    run(main())


def test_full_reader_leaves_the_rest_in_the_kernel(run: Run) -> None:
    """A StreamReader pauses at twice its limit."""

    async def main() -> None:
        ours, theirs = unix_pair()
        reader, writer = await asyncio.open_connection(sock=ours, limit=1000)
        theirs.sendall(b"a" * 3000)
        await a_few_turns()
        theirs.sendall(b"b" * 500)
        await a_few_turns()
        with heir_of(writer) as heir:
            assert heir.recv(999) == b"b" * 500
        assert await support.within(reader.readexactly(3000)) == b"a" * 3000
        writer.close()
        await writer.wait_closed()
        theirs.close()

    run(main())
