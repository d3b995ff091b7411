"""Streams, the user's own sockets, datagrams and TLS."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import Any

from tests.windows.loops import on_every_loop

HOST = "127.0.0.1"
PAYLOAD = os.urandom(1 << 20)
# A certificate for localhost and its key in one file; else the command `openssl` makes them.
CERTIFICATE = "RINGLOOP_TEST_CERTIFICATE"


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send back what comes, until the end."""
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
    await writer.wait_closed()


async def exchange(case: unittest.TestCase, **options: Any) -> None:
    """Send the payload to the echo server and read it back, through streams."""
    server = await asyncio.start_server(echo, HOST, 0, ssl=options.pop("server_context", None))
    async with server:
        address = server.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(*address, **options)
        for _ in range(20):
            writer.write(b"small")
            assert await reader.readexactly(5) == b"small"
        sent = asyncio.ensure_future(send_all(writer))
        assert await reader.readexactly(len(PAYLOAD)) == PAYLOAD
        await sent
        if writer.can_write_eof():
            writer.write_eof()
            assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


async def send_all(writer: asyncio.StreamWriter) -> None:
    """Write the payload in pieces, as the peer takes them."""
    for at in range(0, len(PAYLOAD), 50_000):
        writer.write(PAYLOAD[at : at + 50_000])
        await writer.drain()


def listener() -> socket.socket:
    """Listen on a free port; non-blocking."""
    sock = socket.socket()
    sock.setblocking(False)
    sock.bind((HOST, 0))
    sock.listen()
    return sock


class Streams(unittest.TestCase):
    """Connections by transports."""

    @on_every_loop
    async def test_bytes_come_back_whole(self) -> None:
        await exchange(self)

    @on_every_loop
    async def test_many_connections_at_once(self) -> None:
        async def one(address: Any, number: int) -> bytes:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"%05d" % number)
            answer = await reader.readexactly(5)
            writer.close()
            await writer.wait_closed()
            return answer

        async with await asyncio.start_server(echo, HOST, 0) as server:
            address = server.sockets[0].getsockname()
            answers = await asyncio.gather(*(one(address, number) for number in range(60)))
        assert answers == [b"%05d" % number for number in range(60)]

    @on_every_loop
    async def test_refused_connection_is_that_error(self) -> None:
        with listener() as sock:
            address = sock.getsockname()
        with self.assertRaises(ConnectionRefusedError):
            await asyncio.open_connection(*address)
        with socket.socket() as sock:
            sock.setblocking(False)
            with self.assertRaises(ConnectionRefusedError):
                await asyncio.get_running_loop().sock_connect(sock, address)

    @on_every_loop
    async def test_paused_reader_holds_the_writer_back(self) -> None:
        arrived = asyncio.Event()
        received = list[bytes]()

        class Slow(asyncio.Protocol):
            def connection_made(self, transport: Any) -> None:
                self.transport = transport
                transport.pause_reading()
                asyncio.get_running_loop().call_later(0.05, transport.resume_reading)

            def data_received(self, data: bytes) -> None:
                received.append(data)

            def connection_lost(self, error: BaseException | None) -> None:
                arrived.set()

        loop = asyncio.get_running_loop()
        async with await loop.create_server(Slow, HOST, 0) as server:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(PAYLOAD * 4)
            writer.close()
            await writer.wait_closed()
            await arrived.wait()
        assert b"".join(received) == PAYLOAD * 4

    @on_every_loop
    async def test_file_is_sent(self) -> None:
        received = asyncio.get_running_loop().create_future()

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            received.set_result(await reader.read())
            writer.close()

        with tempfile.TemporaryFile() as file:
            file.write(PAYLOAD)
            file.seek(0)
            async with await asyncio.start_server(take, HOST, 0, limit=1 << 21) as server:
                _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
                loop = asyncio.get_running_loop()
                assert await loop.sendfile(writer.transport, file) == len(PAYLOAD)
                writer.close()
                assert await received == PAYLOAD
                await writer.wait_closed()

    @on_every_loop
    async def test_tls_verifies_and_carries(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = certificate(self, Path(folder))
            server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            server_context.load_cert_chain(path)
            context = ssl.create_default_context(cafile=path)
            await exchange(
                self, server_context=server_context, ssl=context, server_hostname="localhost"
            )
            with self.assertRaises(ssl.SSLCertVerificationError):
                await exchange(
                    self, server_context=server_context, ssl=context, server_hostname="other.test"
                )


def certificate(case: unittest.TestCase, folder: Path) -> str:
    """Return the file with a certificate and its key."""
    if given := os.environ.get(CERTIFICATE):
        return given
    if shutil.which("openssl") is None:
        case.skipTest("no `openssl` command to make certificates with")
    made, key = folder / "certificate.pem", folder / "key.pem"
    command = "openssl req -x509 -nodes -days 2 -subj /CN=localhost -newkey ec"
    more = "-pkeyopt ec_paramgen_curve:P-256 -addext subjectAltName=DNS:localhost"
    outputs = ["-out", str(made), "-keyout", str(key)]
    subprocess.run([*command.split(), *more.split(), *outputs], check=True, capture_output=True)
    made.write_text(made.read_text() + key.read_text())
    return str(made)


class Derived(socket.socket):
    """A class that leaves every method as it is."""


class Counting(socket.socket):
    """A class that sees what it receives."""

    received = 0

    def recv(self, *arguments: Any) -> bytes:
        data = super().recv(*arguments)
        Counting.received += len(data)
        return data


class OwnSockets(unittest.TestCase):
    """`sock_*` and `add_reader`, on sockets of the program."""

    @on_every_loop
    async def test_sockets_connect_send_and_receive(self) -> None:
        loop = asyncio.get_running_loop()
        with listener() as listening, socket.socket() as client:
            client.setblocking(False)
            accepting = asyncio.ensure_future(loop.sock_accept(listening))
            await loop.sock_connect(client, listening.getsockname())
            accepted, address = await accepting
            with accepted:
                assert address == client.getsockname()
                waiting = asyncio.ensure_future(loop.sock_recv(accepted, 100))
                await asyncio.sleep(0.01)
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
                await loop.sock_sendall(client, b"whole")
                buffer = bytearray(3)
                assert await loop.sock_recv_into(accepted, buffer) == 3
                assert bytes(buffer) + await loop.sock_recv(accepted, 100) == b"whole"
                sending = asyncio.ensure_future(loop.sock_sendall(client, PAYLOAD))
                received = bytearray()
                while len(received) < len(PAYLOAD):
                    received += await loop.sock_recv(accepted, 1 << 18)
                await sending
                assert received == PAYLOAD
                client.shutdown(socket.SHUT_WR)
                assert await loop.sock_recv(accepted, 100) == b""

    @on_every_loop
    async def test_sockets_of_a_class_of_the_programs_own_are_taken(self) -> None:
        loop = asyncio.get_running_loop()
        for kind in (Derived, Counting):
            Counting.received = 0
            with listener() as listening:
                client = kind()
                client.setblocking(False)
                accepting = asyncio.ensure_future(loop.sock_accept(listening))
                await loop.sock_connect(client, listening.getsockname())
                accepted, _ = await accepting
            with accepted:
                reader, writer = await asyncio.open_connection(sock=client)
                writer.write(b"hello")
                assert await loop.sock_recv(accepted, 100) == b"hello"
                await loop.sock_sendall(accepted, b"answer")
                assert await reader.readexactly(6) == b"answer"
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()
            assert Counting.received == (6 if kind is Counting else 0)
        sent = Derived(type=socket.SOCK_DGRAM)
        sent.bind((HOST, 0))
        transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, sock=sent)
        transport.close()

    @on_every_loop
    async def test_watchers_are_called_until_they_are_removed(self) -> None:
        loop = asyncio.get_running_loop()
        one, other = socket.socketpair()
        with one, other:
            one.setblocking(False)
            writable, readable = loop.create_future(), loop.create_future()
            loop.add_writer(one, writable.set_result, None)
            loop.call_soon(loop.call_soon, loop.remove_writer, one)
            loop.add_reader(one, lambda: readable.set_result(one.recv(10)))
            await writable
            other.send(b"x")
            assert await readable == b"x"
            assert loop.remove_reader(one)
            assert not loop.remove_reader(one)


class Datagrams(unittest.TestCase):
    """UDP by endpoints and by `sock_*`."""

    @on_every_loop
    async def test_datagrams_come_back_with_their_boundaries(self) -> None:
        loop = asyncio.get_running_loop()

        class Echo(asyncio.DatagramProtocol):
            def connection_made(self, transport: Any) -> None:
                self.transport = transport

            def datagram_received(self, data: bytes, address: Any) -> None:
                self.transport.sendto(data, address)

        class Take(asyncio.DatagramProtocol):
            def __init__(self) -> None:
                self.received: asyncio.Queue[tuple[bytes, Any]] = asyncio.Queue()

            def datagram_received(self, data: bytes, address: Any) -> None:
                self.received.put_nowait((data, address))

        server, _ = await loop.create_datagram_endpoint(Echo, local_addr=(HOST, 0))
        address = server.get_extra_info("sockname")
        client, taken = await loop.create_datagram_endpoint(Take, remote_addr=address)
        for number in range(30):
            client.sendto(b"%d" % number * (number + 1))
            assert await taken.received.get() == (b"%d" % number * (number + 1), address)
        client.close()
        server.close()

    @on_every_loop
    async def test_sockets_send_to_and_receive_from(self) -> None:
        loop = asyncio.get_running_loop()
        with (
            socket.socket(type=socket.SOCK_DGRAM) as one,
            socket.socket(type=socket.SOCK_DGRAM) as other,
        ):
            for sock in (one, other):
                sock.setblocking(False)
                sock.bind((HOST, 0))
            waiting = asyncio.ensure_future(loop.sock_recvfrom(other, 100))
            assert await loop.sock_sendto(one, b"datagram", other.getsockname()) == 8
            assert await waiting == (b"datagram", one.getsockname())
