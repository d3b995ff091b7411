"""A close takes effect at once: code after it may block, or bind the same address."""

from __future__ import annotations

import asyncio
import os
import select
import socket
from typing import TYPE_CHECKING, Any

import pytest

from tests import support

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

# A peer that has not seen the end by then would wait forever.
BLOCKING_SECONDS = support.PATIENCE_SECONDS


def pair() -> tuple[socket.socket, socket.socket]:
    """Create a non-blocking socket and its blocking peer."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(BLOCKING_SECONDS)
    return ours, theirs


def can_bind(address: Any, kind: socket.SocketKind) -> bool:
    with socket.socket(type=kind) as sock:
        try:
            sock.bind(address)
        except OSError:
            return False
    return True


async def until_it_waits() -> None:
    """Let the loop submit the receive or the poll to the kernel."""
    for _ in range(5):
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("ending", ["close", "abort"])
def test_peer_of_a_transport_sees_the_end(run: Run, ending: str) -> None:
    async def main() -> None:
        ours, theirs = pair()
        transport, _ = await asyncio.get_running_loop().create_connection(
            asyncio.Protocol, sock=ours
        )
        await until_it_waits()
        getattr(transport, ending)()
        # `connection_lost` was scheduled first.
        await asyncio.sleep(0)
        with theirs:
            assert theirs.recv(1) == b""

    run(main())


def test_peer_of_a_written_transport_sees_eof(run: Run) -> None:
    async def main() -> None:
        ours, theirs = pair()
        lost = asyncio.Event()

        class Told(asyncio.Protocol):
            def connection_lost(self, exc: Exception | None) -> None:
                lost.set()

        transport, _ = await asyncio.get_running_loop().create_connection(Told, sock=ours)
        await until_it_waits()
        transport.write(b"bye")
        transport.close()
        await support.within(lost.wait())
        with theirs:
            assert theirs.recv(3) == b"bye"
            assert theirs.recv(1) == b""

    run(main())


def test_address_of_an_endpoint_is_free(run: Run) -> None:
    async def main() -> None:
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
        )
        address = transport.get_extra_info("sockname")
        await until_it_waits()
        assert not can_bind(address, socket.SOCK_DGRAM)
        transport.close()
        await asyncio.sleep(0)
        assert can_bind(address, socket.SOCK_DGRAM)

    run(main())


def test_address_of_a_server_is_free(run: Run) -> None:
    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        await until_it_waits()
        assert not can_bind(address, socket.SOCK_STREAM)
        server.close()
        assert can_bind(address, socket.SOCK_STREAM)
        with socket.socket() as client, pytest.raises(ConnectionRefusedError):
            client.connect(address)
        await support.within(server.wait_closed())

    run(main())


@pytest.mark.parametrize("direction", ["reader", "writer"])
@pytest.mark.parametrize("waits", [True, False])
def test_closed_watched_socket_is_released(run: Run, direction: str, waits: bool) -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        ours, theirs = pair()
        if direction == "writer":
            fill(ours)
        getattr(loop, f"add_{direction}")(ours, print)
        if waits:
            await until_it_waits()
        getattr(loop, f"remove_{direction}")(ours)
        ours.close()
        with theirs:
            while theirs.recv(65536):
                pass

    run(main())


def fill(sock: socket.socket) -> None:
    """Send until the kernel's buffer is full."""
    try:
        while True:
            sock.send(bytes(65536))
    except BlockingIOError:
        pass


def test_address_is_free_after_a_cancelled_accept(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        listening = socket.create_server(("127.0.0.1", 0))
        listening.setblocking(False)
        address = listening.getsockname()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(loop.sock_accept(listening), 0.02)
        listening.close()
        assert can_bind(address, socket.SOCK_STREAM)

    run(main())


def test_peer_sees_eof_after_a_cancelled_receive(run: Run) -> None:
    async def main() -> None:
        ours, theirs = pair()
        receive = asyncio.ensure_future(asyncio.get_running_loop().sock_recv(ours, 1))
        await until_it_waits()
        receive.cancel()
        with pytest.raises(asyncio.CancelledError):
            await receive
        ours.close()
        with theirs:
            assert theirs.recv(1) == b""

    run(main())


def test_other_end_of_a_pipe_sees_the_end(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        read_end, write_end = os.pipe()
        transport, _ = await loop.connect_write_pipe(
            asyncio.BaseProtocol, os.fdopen(write_end, "wb", 0)
        )
        await until_it_waits()
        transport.close()
        await asyncio.sleep(0)
        try:
            assert select.select([read_end], [], [], BLOCKING_SECONDS)[0]
            assert os.read(read_end, 1) == b""
        finally:
            os.close(read_end)

    run(main())
