"""The TLS handshake, its result on both sides, and how it fails."""

from __future__ import annotations

import asyncio
import gc
import ssl
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import Recorder, exceptions_of, serving, socket_pair
from tests.support.tls import (
    Servers,
    close,
    connect,
    connected_tls,
    handshaking,
    plain_client,
    versions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.support.tls import Certificates

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

pytestmark = pytest.mark.usefixtures("tls_engine")


@pytest.mark.parametrize("version", versions(), ids=str)
def test_outcome_is_in_the_extra_info_of_both_sides(
    run: Run, certificates: Certificates, version: ssl.TLSVersion
) -> None:
    async def main() -> None:
        servers = Servers()
        client = certificates.client()
        client.maximum_version = version
        server_context = certificates.server()
        async with serving(servers, ssl=server_context) as (_, address):
            transport = await connect(address, client)
            name = version.name.replace("_", ".")
            assert transport.get_extra_info("sslcontext") is client
            assert transport._ssl_protocol._sslcontext is client  # aiohttp reads it
            ssl_object = transport.get_extra_info("ssl_object")
            assert isinstance(ssl_object, ssl.SSLObject)
            assert ssl_object.version() == name
            assert transport.get_extra_info("cipher") == ssl_object.cipher()
            assert transport.get_extra_info("compression") is None
            assert ("DNS", "localhost") in transport.get_extra_info("peercert")["subjectAltName"]
            assert transport.get_extra_info("peername") == address
            assert transport.get_extra_info("nothing", 7) == 7
            await support.wait_until(lambda: servers.made[0].transport)
            theirs = servers.made[0].transport
            assert theirs.get_extra_info("sslcontext") is server_context
            # The server did not request a client certificate.
            assert not theirs.get_extra_info("peercert")
            assert theirs.get_extra_info("ssl_object").version() == name
            assert theirs.get_extra_info("peername") == transport.get_extra_info("sockname")
            await close(transport)
            await servers.until_lost()

    run(main())


def test_connection_made_is_called_after_the_handshake(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with handshaking(protocol, certificates.client()) as (connecting, plain):
            hello = await plain.receive(5)
            # A handshake record; TLS 1.0 to 1.2 on the wire.
            assert hello[:2] == b"\x16\x03"
            assert protocol.events == []
            assert not connecting.done()

    run(main())


def test_alpn_is_negotiated(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        servers = Servers()
        server, client = certificates.server(), certificates.client()
        server.set_alpn_protocols(["h2", "http/1.1"])
        client.set_alpn_protocols(["spdy/3", "http/1.1"])
        async with serving(servers, ssl=server) as (_, address):
            transport = await connect(address, client)
            chosen = transport.get_extra_info("ssl_object").selected_alpn_protocol()
            assert chosen == "http/1.1"
            await support.wait_until(lambda: servers.made[0].transport)
            theirs = servers.made[0].transport.get_extra_info("ssl_object")
            assert theirs.selected_alpn_protocol() == "http/1.1"
            await close(transport)
            await servers.until_lost()

    run(main())


def test_session_is_resumed(run: Run, certificates: Certificates) -> None:
    """The server's context issues tickets; the test's peer is the client that resumes."""

    async def once(
        server: ssl.SSLContext, client: ssl.SSLContext, session: ssl.SSLSession | None
    ) -> tuple[ssl.SSLSession | None, list[Any]]:
        servers = Servers()
        async with serving(servers, ssl=server) as (_, address):
            peer = await plain_client(address, client, session)
            await peer.send_tls(b"ping")
            await support.wait_until(lambda: servers.made and servers.made[0].data)
            theirs = servers.made[0].transport.get_extra_info("ssl_object")
            reused = [peer.tls.session_reused, theirs.session_reused]
            servers.made[0].transport.abort()
            await servers.until_lost()
            peer.close()
            return peer.tls.session, reused

    async def main() -> None:
        contexts = certificates.server(), certificates.client()
        contexts[1].maximum_version = ssl.TLSVersion.TLSv1_2
        session, reused = await once(*contexts, None)
        assert reused == [False, False]
        _, reused = await once(*contexts, session)
        assert reused == [True, True]

    run(main())


def test_keylog_file_gets_the_secrets(run: Run, certificates: Certificates, tmp_path: Any) -> None:
    async def main() -> None:
        context = certificates.client()
        context.keylog_filename = str(tmp_path / "keys")
        protocol = Recorder()
        async with connected_tls(protocol, certificates, ssl=context) as (transport, peer):
            transport.write(b"ping")
            assert await peer.receive_tls(4) == b"ping"
        words = (tmp_path / "keys").read_text().split()
        assert "CLIENT_TRAFFIC_SECRET_0" in words

    run(main())


def test_clients_handshake_times_out(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        protocol = Recorder()
        handshake = handshaking(protocol, certificates.client(), ssl_handshake_timeout=0.05)
        async with handshake as (connecting, plain):
            words = r"SSL handshake is taking longer than 0\.05 seconds: aborting the connection"
            with pytest.raises(ConnectionAbortedError, match=words):
                await support.within(connecting)
            await plain.receive_all()
        assert protocol.events == []

    run(main())


def test_server_survives_a_handshake_timeout(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        servers = Servers()
        limits = {"ssl": certificates.server(), "ssl_handshake_timeout": 0.05}
        async with serving(servers, **limits) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            assert await support.within(reader.read()) == b""
            writer.close()
            await writer.wait_closed()
        assert [made.events for made in servers.made] == [[]]

    run(main())


@pytest.mark.parametrize("seconds", [0, -1])
@pytest.mark.parametrize("name", ["ssl_handshake_timeout", "ssl_shutdown_timeout"])
def test_invalid_timeout_is_refused(
    run: Run, certificates: Certificates, name: str, seconds: float
) -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        ours, theirs = socket_pair()
        with ours, theirs, pytest.raises(ValueError, match=f"{name} should be a positive number"):
            await loop.create_connection(
                Recorder,
                sock=ours,
                ssl=certificates.client(),
                server_hostname="localhost",
                **{name: seconds},
            )

    run(main())


def test_garbage_for_a_handshake_fails_on_either_side(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with handshaking(protocol, certificates.client()) as (connecting, plain):
            await plain.send(b"220 mail.example ESMTP\r\n")
            with pytest.raises(ssl.SSLError) as failed:
                await support.within(connecting)
            assert failed.value.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
            assert failed.value.library == "SSL"
        servers = Servers()
        async with serving(servers, ssl=certificates.server()) as (_, address):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            # An alert, or nothing: what matters is that it ends.
            await support.within(reader.read())
            writer.close()
            await writer.wait_closed()
        assert [*protocol.events, *servers.made[0].events] == []

    run(main())


@pytest.mark.parametrize("how", ["shut_down", "reset"])
def test_peer_that_closes_during_the_handshake(
    run: Run, certificates: Certificates, how: str
) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with handshaking(protocol, certificates.client()) as (connecting, plain):
            await plain.receive(5)
            getattr(plain, how)()
            with pytest.raises(ConnectionResetError):
                await support.within(connecting)
        assert protocol.events == []

    run(main())


def test_cancelled_handshake_leaves_nothing(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with handshaking(protocol, certificates.client()) as (connecting, plain):
            await plain.receive(5)
            connecting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await connecting
            await plain.receive_all()
        assert protocol.events == []

    run(main())


def test_failed_handshakes_of_a_server_need_no_collector(
    run: Run, loop_name: str, certificates: Certificates
) -> None:
    if loop_name == "asyncio":
        pytest.skip("asyncio leaves a cycle before 3.13 (gh-109534), and now and then after")
    protocols: list[weakref.ref[Any]] = []

    class Known(asyncio.Protocol):
        def __init__(self) -> None:
            protocols.append(weakref.ref(self))

    async def main() -> None:
        async with serving(Known, ssl=certificates.server()) as (_, address):
            for _ in range(10):
                reader, writer = await asyncio.open_connection(*address)
                writer.write(b"GET / HTTP/1.0\r\n\r\n")
                await support.within(reader.read())
                writer.close()
                await writer.wait_closed()
            await support.wait_until(
                lambda: all(ref() is None for ref in protocols), "the protocols"
            )
            assert len(protocols) == 10

    gc.collect()
    gc.disable()
    try:
        run(main())
    finally:
        gc.enable()


def test_failed_handshake_is_reported_in_debug_mode_only_to_the_log(
    loop: asyncio.AbstractEventLoop, run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        with exceptions_of(loop) as reports:
            async with serving(Recorder, ssl=certificates.server()) as (_, address):
                reader, writer = await asyncio.open_connection(*address)
                writer.write(b"\0" * 100)
                await support.within(reader.read())
                writer.close()
                await writer.wait_closed()
        # An ssl.SSLError is an OSError, and those are not reported.
        assert reports == []

    run(main())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"ssl": None, "ssl_handshake_timeout": 1}, "ssl_handshake_timeout is only meaningful"),
        ({"ssl": None, "ssl_shutdown_timeout": 1}, "ssl_shutdown_timeout is only meaningful"),
        ({"ssl": None, "server_hostname": "x"}, "server_hostname is only meaningful with ssl"),
    ],
)
def test_arguments_of_tls_without_tls_are_refused(
    run: Run, arguments: dict[str, Any], words: str
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(ValueError, match=words):
            await loop.create_connection(Recorder, "127.0.0.1", 9, **arguments)

    run(main())
