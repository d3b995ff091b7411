"""TLS with the user's `ssl.SSLContext`."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from typing import TYPE_CHECKING, Any

from tests.compatibility.registry import Group, NotMeasuredError
from tests.compatibility.rows.connections import ask, echo, end, open_server

if TYPE_CHECKING:
    from pathlib import Path

    from tests.compatibility.registry import Probe

group = Group("TLS")
SECRET = "secret"


def certificate(folder: Path, *, encrypted: bool = False) -> tuple[Path, Path]:
    """Create a self-signed certificate for localhost and its key."""
    chain, key = folder / "chain.pem", folder / "key.pem"
    secret = ("-passout", f"pass:{SECRET}") if encrypted else ("-nodes",)
    command = [
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
        *(*secret, "-days", "2", "-subj", "/CN=localhost"),
        *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
        *("-keyout", str(key), "-out", str(chain)),
    ]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        raise NotMeasuredError("no `openssl` command to make a certificate with") from None
    return chain, key


def contexts(folder: Path, *, encrypted: bool = False) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Create a server's context, and one of a client that trusts it."""
    chain, key = certificate(folder, encrypted=encrypted)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(chain, key, SECRET if encrypted else None)
    return server, ssl.create_default_context(cafile=chain)


async def serve(context: ssl.SSLContext, **arguments: Any) -> asyncio.Server:
    return await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context, **arguments)


async def talk(server: asyncio.Server, context: ssl.SSLContext, **arguments: Any) -> Any:
    """Connect, exchange a message, close; return the client's SSL object."""
    arguments.setdefault("server_hostname", "localhost")
    writer = await ask(*server.sockets[0].getsockname(), ssl=context, **arguments)
    tls = writer.get_extra_info("ssl_object")
    await end(writer)
    return tls


timeouts = group.row("ssl_handshake_timeout, ssl_shutdown_timeout")


@timeouts
def are_accepted(probe: Probe) -> None:
    server_context, client_context = contexts(probe.folder)

    async def main() -> None:
        limits = {"ssl_handshake_timeout": 60.0, "ssl_shutdown_timeout": 60.0}
        async with open_server(await serve(server_context, **limits)) as server:
            await talk(server, client_context, **limits)

    probe.run(main)


@timeouts
def silent_peer_ends_the_handshake(probe: Probe) -> None:
    _, client_context = contexts(probe.folder)

    async def main() -> None:
        async def say_nothing(reader: Any, writer: Any) -> None:
            await reader.read()
            writer.close()

        async with open_server(await asyncio.start_server(say_nothing, "127.0.0.1", 0)) as server:
            try:
                await talk(server, client_context, ssl_handshake_timeout=0.05)
            except ConnectionAbortedError as error:
                assert "handshake" in str(error)
            else:
                raise AssertionError("a handshake with nobody")

    probe.run(main)


upgrade = group.row("start_tls, both sides")


@upgrade
def in_the_middle_of_a_stream(probe: Probe) -> None:
    server_context, client_context = contexts(probe.folder)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readline() == b"STARTTLS\n"
        writer.write(b"go\n")
        await writer.drain()
        await writer.start_tls(server_context)
        await echo(reader, writer)

    async def main() -> None:
        async with open_server(await asyncio.start_server(answer, "127.0.0.1", 0)) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"STARTTLS\n")
            assert await reader.readline() == b"go\n"
            await writer.start_tls(client_context, server_hostname="localhost")
            writer.write(b"ping")
            assert await reader.readexactly(4) == b"ping"
            assert writer.get_extra_info("cipher")
            await end(writer)

    probe.run(main)


nested = group.row("TLS over TLS")


@nested
def through_an_outer_tunnel(probe: Probe) -> None:
    server_context, client_context = contexts(probe.folder)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await writer.start_tls(server_context)
        await echo(reader, writer)

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=server_context)
        async with open_server(server):
            reader, writer = await asyncio.open_connection(
                *server.sockets[0].getsockname(), ssl=client_context, server_hostname="localhost"
            )
            await writer.start_tls(client_context, server_hostname="localhost")
            writer.write(b"ping")
            assert await reader.readexactly(4) == b"ping"
            await end(writer)

    probe.run(main)


semantics = group.row("all of SSLContext: ALPN, SNI, sessions, keylog, client and encrypted keys")


@semantics
def alpn(probe: Probe) -> None:
    server_context, client_context = contexts(probe.folder)
    server_context.set_alpn_protocols(["h2", "http/1.1"])
    client_context.set_alpn_protocols(["h2"])

    async def main() -> None:
        async with open_server(await serve(server_context)) as server:
            tls = await talk(server, client_context)
            assert tls.selected_alpn_protocol() == "h2"

    probe.run(main)


@semantics
def name_callback(probe: Probe) -> None:
    server_context, client_context = contexts(probe.folder)
    seen = []
    server_context.sni_callback = lambda tls, name, context: seen.append(name)

    async def main() -> None:
        async with open_server(await serve(server_context)) as server:
            await talk(server, client_context)

    probe.run(main)
    assert seen == ["localhost"]


@semantics
def client_certificate(probe: Probe) -> None:
    server_context, client_context = contexts(probe.folder)
    server_context.verify_mode = ssl.CERT_REQUIRED
    server_context.load_verify_locations(probe.folder / "chain.pem")
    client_context.load_cert_chain(probe.folder / "chain.pem", probe.folder / "key.pem")
    seen = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(writer.get_extra_info("peercert"))
        await echo(reader, writer)

    async def main() -> None:
        server = await asyncio.start_server(note, "127.0.0.1", 0, ssl=server_context)
        async with open_server(server):
            await talk(server, client_context)

    probe.run(main)
    assert seen[0]["subject"] == ((("commonName", "localhost"),),)


@semantics
def key_log(probe: Probe) -> None:
    server_context, client_context = contexts(probe.folder)
    log = probe.folder / "keys.log"
    client_context.keylog_filename = str(log)

    async def main() -> None:
        async with open_server(await serve(server_context)) as server:
            await talk(server, client_context)

    probe.run(main)
    assert "SECRET" in log.read_text() or "CLIENT_RANDOM" in log.read_text()


@semantics
def encrypted_key(probe: Probe) -> None:
    server_context, client_context = contexts(probe.folder, encrypted=True)

    async def main() -> None:
        async with open_server(await serve(server_context)) as server:
            await talk(server, client_context)

    probe.run(main)


@semantics
def wrong_name_is_refused(probe: Probe) -> None:
    server_context, client_context = contexts(probe.folder)

    async def main() -> None:
        async with open_server(await serve(server_context)) as server:
            asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
            try:
                await talk(server, client_context, server_hostname="example.org")
            except ssl.SSLCertVerificationError as error:
                assert error.verify_code == 62
            else:
                raise AssertionError("connected to another name")
            # Wait until the server sees EOF.
            await asyncio.sleep(0.01)

    probe.run(main)


@semantics
def server_session_is_resumed(probe: Probe) -> None:
    server_context, client_context = contexts(probe.folder)
    client_context.maximum_version = ssl.TLSVersion.TLSv1_2
    seen = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(writer.get_extra_info("ssl_object").session_reused)
        await echo(reader, writer)

    async def main() -> None:
        server = await asyncio.start_server(note, "127.0.0.1", 0, ssl=server_context)
        async with open_server(server):
            session = None
            for _ in range(2):
                session = await asyncio.to_thread(resume, server.sockets[0].getsockname(), session)

    def resume(address: Any, session: ssl.SSLSession | None) -> ssl.SSLSession | None:
        with (
            socket.create_connection(address) as sock,
            client_context.wrap_socket(
                sock, server_hostname="localhost", session=session
            ) as client,
        ):
            client.sendall(b"ping")
            assert client.recv(4) == b"ping"
            return client.session

    probe.run(main)
    assert seen == [False, True]


ending = group.row("a truncated TLS stream is not mistaken for a closed one")


@ending
def close_notify_is_an_end(probe: Probe) -> None:
    server_context, client_context = contexts(probe.folder)

    async def main() -> None:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"bye")
            writer.close()

        server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=server_context)
        async with open_server(server):
            reader, writer = await asyncio.open_connection(
                *server.sockets[0].getsockname(), ssl=client_context, server_hostname="localhost"
            )
            assert await reader.read() == b"bye"
            await end(writer)

    probe.run(main)
