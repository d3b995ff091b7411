"""QUIC, HTTP/3 and WebTransport between two ends of one process."""

from __future__ import annotations

import asyncio
import os
import ssl
import tempfile
import unittest
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ringloop import h3, quic, webtransport
from tests.windows.loops import IS_WINDOWS, on_every_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HOST = "127.0.0.1"
PAYLOAD = os.urandom(1 << 19)


async def echo(stream: quic.Stream) -> None:
    """Send back what comes on a stream, until its end."""
    async for chunk in stream.chunks():
        stream.write(chunk)
        await stream.drain()


@asynccontextmanager
async def certificate() -> AsyncIterator[quic.CertificateFiles]:
    """Make files for `localhost`."""
    with tempfile.TemporaryDirectory() as folder:
        yield quic.make_certificate("localhost", directory=folder)


async def serving(
    files: quic.CertificateFiles, host: str = HOST, *, handler: Any = None
) -> quic.Server:
    """Return a server on a new port, which returns the bytes of streams if it has no other handler."""
    return await quic.serve(
        host=host,
        port=0,
        handler=handler,
        stream_handler=None if handler else echo,
        certificate=files.certificate,
        private_key=files.private_key,
        alpn=["echo"],
    )


@asynccontextmanager
async def connected(
    files: quic.CertificateFiles, host: str = HOST, *, handler: Any = None, **keywords: Any
) -> AsyncIterator[quic.Connection]:
    """Connect to a new server."""
    server = await serving(files, host, handler=handler)
    connecting = quic.connect(
        host,
        server.address[1],
        server_name="localhost",
        **{"ca_file": files.ca_file, "alpn": ["echo"], **keywords},
    )
    async with server, connecting as connection:
        yield connection


async def exchange(connection: quic.Connection) -> None:
    """Send the payload on a stream, and read it back."""
    stream = await connection.open_stream()

    async def send() -> None:
        for at in range(0, len(PAYLOAD), 50_000):
            stream.write(PAYLOAD[at : at + 50_000])
            await stream.drain()
        stream.finish()

    sending = asyncio.ensure_future(send())
    assert await stream.read_to_end() == PAYLOAD
    await sending


class Quic(unittest.TestCase):
    """Connections, streams and datagrams."""

    @on_every_loop
    async def test_stream_comes_back_whole(self) -> None:
        async with certificate() as files, connected(files) as connection:
            await exchange(connection)

    @on_every_loop
    async def test_stream_comes_back_whole_by_ipv6(self) -> None:
        async with certificate() as files, connected(files, "::1") as connection:
            await exchange(connection)

    @on_every_loop
    async def test_many_streams_at_once(self) -> None:
        async def one(connection: quic.Connection, number: int) -> bytes:
            stream = await connection.open_stream()
            stream.write(b"%05d" % number)
            stream.finish()
            return bytes(await stream.read_to_end())

        async with certificate() as files, connected(files) as connection:
            answers = await asyncio.gather(*(one(connection, number) for number in range(50)))
        assert answers == [b"%05d" % number for number in range(50)]

    @on_every_loop
    async def test_datagrams_come_back(self) -> None:
        async def handler(connection: quic.Connection) -> None:
            while True:
                for data in await connection.receive_datagrams():
                    await connection.send_datagram(data)

        async with (
            certificate() as files,
            connected(files, handler=handler) as connection,
        ):
            for number in range(20):
                await connection.send_datagram(b"%d" % number)
                assert bytes(await connection.receive_datagram()) == b"%d" % number
            connection.close()

    @on_every_loop
    async def test_unknown_certificate_is_refused(self) -> None:
        async with certificate() as files, certificate() as others:
            with self.assertRaises(quic.TlsError):
                async with connected(files, ca_file=others.ca_file):
                    pass

    @on_every_loop
    async def test_connecting_to_no_server_fails(self) -> None:
        async with certificate() as files:
            server = await serving(files)
            port = server.address[1]
            server.close()
            await server.wait_closed()
            # Linux says that the port is closed; elsewhere time passes.
            with self.assertRaises((quic.Unreachable, quic.HandshakeTimeout)):
                await quic.open_connection(
                    HOST, port, verify=False, alpn=["echo"], handshake_timeout=0.5
                )

    @unittest.skipUnless(IS_WINDOWS, "of Windows")
    def test_shared_port_is_not_implemented(self) -> None:
        with self.assertRaises(NotImplementedError):
            quic.bind_workers(HOST, count=2)


class Http(unittest.TestCase):
    """Requests and sessions."""

    @on_every_loop
    async def test_requests_are_answered(self) -> None:
        async def handler(request: h3.Request) -> None:
            body = await request.read()
            await request.respond(200, {"x-length": str(len(body))}, body[::-1])

        async with certificate() as files:
            server = await h3.serve(
                handler, HOST, 0, certificate=files.certificate, private_key=files.private_key
            )
            to = (HOST, server.address[1])
            async with (
                server,
                h3.connect("localhost", 443, connect_to=to, ca_file=files.ca_file) as client,
            ):
                for size in (0, 10, 200_000):
                    response = await client.request("POST", "/", body=PAYLOAD[:size])
                    assert response.status == 200
                    assert response.header("x-length") == str(size)
                    assert await response.read() == PAYLOAD[:size][::-1]

    @on_every_loop
    async def test_session_carries_streams_and_datagrams(self) -> None:
        async def handler(session: webtransport.Session) -> None:
            session.send_datagram(await session.receive_datagram())
            async for stream in session:
                await stream.send(await stream.read())
                stream.finish()

        made = webtransport.certificate_for_browsers("localhost")
        server = await webtransport.serve(
            handler,
            HOST,
            0,
            certificate=made.certificate,
            private_key=made.private_key,
        )
        connecting = webtransport.connect(
            "https://localhost/",
            connect_to=(HOST, server.address[1]),
            certificate_hashes=[made.hash],
        )
        async with server, connecting as session:
            session.send_datagram(b"datagram")
            assert bytes(await session.receive_datagram()) == b"datagram"
            stream = await session.open_stream()
            await stream.send(b"ping")
            stream.finish()
            assert bytes(await stream.read()) == b"ping"


class Certificates(unittest.TestCase):
    """The files of `make_certificate`."""

    def test_files_are_of_one_authority_and_are_not_replaced(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            first = quic.make_certificate("localhost", directory=folder)
            second = quic.make_certificate("other.test", directory=folder)
            assert first.ca_file == second.ca_file
            with self.assertRaises(FileExistsError):
                quic.make_certificate("localhost", directory=folder)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(first.certificate, first.private_key)
