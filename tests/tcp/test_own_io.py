"""Socket subclasses that override `recv`, `send` and the like: the transport calls their methods."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import MORE_THAN_THE_KERNEL_TAKES, Echo, Recorder, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.support.tls import Certificates

    Run = Callable[[Coroutine[Any, Any, Any]], Any]


class Counting(socket.socket):
    """Counts its bytes."""

    received = 0
    sent = 0

    def recv(self, *args: Any) -> bytes:
        data = super().recv(*args)
        self.received += len(data)
        return data

    def recv_into(self, *args: Any) -> int:
        count = super().recv_into(*args)
        self.received += count
        return count

    def send(self, *args: Any) -> int:
        count = super().send(*args)
        self.sent += count
        return count

    def sendmsg(self, *args: Any) -> int:
        count = super().sendmsg(*args)
        self.sent += count
        return count

    def recvfrom(self, *args: Any) -> tuple[bytes, Any]:
        data, address = super().recvfrom(*args)
        self.received += len(data)
        return data, address

    def sendto(self, *args: Any) -> int:
        count = super().sendto(*args)
        self.sent += count
        return count


def counting(address: Any, kind: socket.SocketKind = socket.SOCK_STREAM) -> Counting:
    sock = Counting(socket.AF_INET, kind)
    sock.connect(address)
    sock.setblocking(False)
    return sock


def test_bytes_pass_through_its_methods(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with serving(Echo) as (_, address):
            recorder = Recorder()
            sock = counting(address)
            transport, _ = await loop.create_connection(lambda: recorder, sock=sock)
            assert isinstance(transport, asyncio.Transport)
            payload = bytes(MORE_THAN_THE_KERNEL_TAKES)
            transport.write(payload)
            transport.writelines([b"one", b"two"])
            total = len(payload) + 6
            await support.wait_until(lambda: len(recorder.data) == total, "the echo")
            assert (sock.sent, sock.received) == (total, total)
            transport.close()
            await support.wait_until(lambda: recorder.events[-1] == "connection_lost")
            assert sock.fileno() == -1

    run(main())


def test_tls_passes_through_its_methods(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with serving(Echo, ssl=certificates.server()) as (_, address):
            recorder = Recorder()
            sock = counting(address)
            transport, _ = await loop.create_connection(
                lambda: recorder, sock=sock, ssl=certificates.client(), server_hostname="localhost"
            )
            transport.write(b"question")
            await support.wait_until(lambda: recorder.data == b"question", "the echo")
            assert sock.sent > 8
            assert sock.received > 8
            transport.close()
            await support.wait_until(lambda: recorder.events[-1] == "connection_lost")

    run(main())


def test_datagrams_pass_through_its_methods(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with socket.socket(type=socket.SOCK_DGRAM) as peer:
            peer.bind(("127.0.0.1", 0))
            got: asyncio.Queue[bytes] = asyncio.Queue()

            class Collect(asyncio.DatagramProtocol):
                def datagram_received(self, data: bytes, addr: Any) -> None:
                    got.put_nowait(data)

            sock = counting(peer.getsockname(), socket.SOCK_DGRAM)
            transport, _ = await loop.create_datagram_endpoint(Collect, sock=sock)
            transport.sendto(b"there")
            assert peer.recv(10) == b"there"
            peer.sendto(b"back", sock.getsockname())
            assert await got.get() == b"back"
            assert (sock.sent, sock.received) == (5, 4)
            transport.close()
            await asyncio.sleep(0)

    run(main())


def test_its_descriptor_is_the_transports(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with serving(Echo) as (_, address):
            sock = counting(address)
            transport, _ = await loop.create_connection(asyncio.Protocol, sock=sock)
            with pytest.raises(RuntimeError, match="is used by transport"):
                loop.add_reader(sock, print)
            assert "fd=" in repr(transport)
            transport.abort()
            await asyncio.sleep(0)
            assert "closed" in repr(transport)

    run(main())


def test_plain_subclass_is_a_plain_socket(run: Run, loop_name: str) -> None:
    class Named(socket.socket):
        name = "a name is no method"

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with serving(Echo) as (_, address):
            sock = Named()
            sock.connect(address)
            sock.setblocking(False)
            transport, _ = await loop.create_connection(asyncio.Protocol, sock=sock)
            native = type(transport).__module__.startswith("ringloop")
            assert native == (loop_name != support.ORACLE)
            assert "_own_io" not in type(transport).__module__
            transport.abort()
            await asyncio.sleep(0)

    run(main())
