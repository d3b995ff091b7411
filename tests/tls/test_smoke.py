"""TLS with the standard library's state machine over our transport.

The certificate is self-signed and made by the `openssl` command for each run; only these tests trust
it.
"""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import exceptions_of, pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    Run = Callable[[Coroutine[Any, Any, Any]], Any]
    Contexts = tuple[ssl.SSLContext, ssl.SSLContext]


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    """A server's context, and one of a client that trusts it."""
    if shutil.which("openssl") is None:
        pytest.skip("no `openssl` command to make a certificate with")
    folder: Path = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    return server, ssl.create_default_context(cafile=certificate)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


@pytest.mark.parametrize("size", [1, 1000, 16_384, 16_385, 3_000_000])
def test_echo(run: Run, contexts: Contexts, size: int) -> None:
    async def main() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=contexts[0])
        async with server:
            reader, writer = await asyncio.open_connection(
                *server.sockets[0].getsockname(), ssl=contexts[1], server_hostname="localhost"
            )
            assert writer.get_extra_info("ssl_object").version() in ("TLSv1.2", "TLSv1.3")
            assert writer.get_extra_info("peername") == server.sockets[0].getsockname()
            data = pattern(size)
            for _ in range(3):
                writer.write(data)
                assert await support.within(reader.readexactly(size), 30) == data
            writer.close()
            await support.within(writer.wait_closed())

    run(main())


def test_many_connections(run: Run, contexts: Contexts) -> None:
    async def one(address: Any, number: int) -> None:
        reader, writer = await asyncio.open_connection(
            *address, ssl=contexts[1], server_hostname="localhost"
        )
        data = pattern(20_000, number)
        writer.write(data)
        assert await reader.readexactly(len(data)) == data
        writer.close()
        await writer.wait_closed()

    async def main() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=contexts[0])
        async with server:
            address = server.sockets[0].getsockname()
            await support.within(asyncio.gather(*(one(address, n) for n in range(20))), 30)

    run(main())


def test_start_tls(run: Run, contexts: Contexts) -> None:
    async def upgrades(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readline() == b"STARTTLS\n"
        writer.write(b"OK\n")
        await writer.drain()
        await writer.start_tls(contexts[0])
        await echo(reader, writer)

    async def main() -> None:
        server = await asyncio.start_server(upgrades, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"STARTTLS\n")
            assert await reader.readline() == b"OK\n"
            await writer.start_tls(contexts[1], server_hostname="localhost")
            writer.write(b"secret")
            assert await support.within(reader.readexactly(6)) == b"secret"
            writer.close()
            await support.within(writer.wait_closed())

    run(main())


def test_untrusted_certificate_fails_on_both_sides(
    loop: asyncio.AbstractEventLoop, run: Run, contexts: Contexts
) -> None:
    async def main() -> None:
        loop.set_debug(True)
        with exceptions_of(loop) as reports:
            server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=contexts[0])
            async with server:
                with pytest.raises(ssl.SSLCertVerificationError):
                    await asyncio.open_connection(
                        *server.sockets[0].getsockname(),
                        ssl=ssl.create_default_context(),
                        server_hostname="localhost",
                    )
                await support.wait_until(lambda: reports, "the server's report")
            assert isinstance(reports[0]["exception"], (ssl.SSLError, ConnectionError))

    run(main())


def test_plain_client_of_a_tls_server(run: Run, contexts: Contexts) -> None:
    async def main() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=contexts[0])
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            await support.within(reader.read())
            writer.close()
            await writer.wait_closed()
            # And the server keeps serving.
            reader, writer = await asyncio.open_connection(
                *server.sockets[0].getsockname(), ssl=contexts[1], server_hostname="localhost"
            )
            writer.write(b"x")
            assert await support.within(reader.readexactly(1)) == b"x"
            writer.close()
            await support.within(writer.wait_closed())

    run(main())


def test_client_that_never_starts_the_handshake(run: Run, contexts: Contexts) -> None:
    async def main() -> None:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()
            await writer.wait_closed()
            done.set()

        done = asyncio.Event()
        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        async with server:
            with pytest.raises(ConnectionAbortedError, match="handshake is taking longer"):
                await asyncio.open_connection(
                    *server.sockets[0].getsockname(),
                    ssl=contexts[1],
                    server_hostname="localhost",
                    ssl_handshake_timeout=0.05,
                )
            await support.within(done.wait())

    run(main())
