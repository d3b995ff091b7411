"""TLS authentication: names, certificates and keys, and how wrong ones are refused."""

from __future__ import annotations

import ssl
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import Recorder, serving
from tests.support.tls import (
    Servers,
    TlsPeer,
    accepted_tls,
    close,
    connect,
    handshaking,
    plain_client,
    versions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.support.tls import Certificates

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

pytestmark = pytest.mark.usefixtures("tls_engine")


def test_sni_callback_switches_the_context(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        servers = Servers()
        default, other = certificates.server(), certificates.server("other", "DNS:other.example")
        asked: list[str | None] = []

        def choose(ssl_object: Any, name: str | None, context: ssl.SSLContext) -> None:
            asked.append(name)
            assert context is default
            if name == "other.example":
                ssl_object.context = other

        default.sni_callback = choose
        async with serving(servers, ssl=default) as (_, address):
            for name in ("localhost", "other.example"):
                transport = await connect(address, certificates.client(), server_hostname=name)
                names = transport.get_extra_info("peercert")["subjectAltName"]
                assert ("DNS", name) in names
                transport.write(b"x" * 20_000)
                await support.wait_until(lambda: len(servers.made[-1].data) == 20_000)
                await close(transport)
            assert asked == ["localhost", "other.example"]
            await servers.until_lost()

    run(main())


@pytest.mark.parametrize("raises", [False, True])
def test_sni_callback_that_refuses_or_raises_fails_the_handshake(
    run: Run, certificates: Certificates, monkeypatch: pytest.MonkeyPatch, raises: bool
) -> None:
    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    asked: list[str | None] = []

    def refuse(ssl_object: Any, name: str | None, context: ssl.SSLContext) -> int:
        asked.append(name)
        if raises:
            raise ZeroDivisionError
        return ssl.AlertDescription.ALERT_DESCRIPTION_ACCESS_DENIED

    async def main() -> None:
        servers = Servers()
        context = certificates.server()
        context.sni_callback = refuse
        async with serving(servers, ssl=context) as (_, address):
            # asyncio closes silently: the alert is created, but never sent.
            with pytest.raises((ssl.SSLError, ConnectionResetError)):
                await plain_client(address, certificates.client())
        assert asked == ["localhost"]
        assert servers.made[0].events == []
        assert [item.exc_type for item in ignored] == [ZeroDivisionError] * raises

    run(main())


@pytest.mark.parametrize("requirement", [ssl.CERT_OPTIONAL, ssl.CERT_REQUIRED])
def test_client_certificate_is_seen_by_the_server(
    run: Run, certificates: Certificates, requirement: ssl.VerifyMode
) -> None:
    async def main() -> None:
        servers = Servers()
        context = certificates.server()
        context.load_verify_locations(certificates.authority)
        context.verify_mode = requirement
        async with serving(servers, ssl=context) as (_, address):
            transport = await connect(address, certificates.client("client"))
            await support.wait_until(lambda: servers.made[0].transport)
            subject = servers.made[0].transport.get_extra_info("peercert")["subject"]
            assert subject == ((("commonName", "client"),),)
            await close(transport)
            await servers.until_lost()

    run(main())


@pytest.mark.parametrize("version", versions(), ids=str)
def test_client_learns_why_the_server_refused_it(
    run: Run, certificates: Certificates, version: ssl.TLSVersion
) -> None:
    async def main() -> None:
        context, client = certificates.server(), certificates.client()
        context.load_verify_locations(certificates.authority)
        context.verify_mode = ssl.CERT_REQUIRED
        client.maximum_version = version
        protocol = Recorder()
        async with handshaking(protocol, client) as (connecting, plain):
            peer = TlsPeer(plain.sock, context, server_side=True)
            with pytest.raises(ssl.SSLError, match="peer did not return a certificate"):
                await peer.handshake()
            if version == ssl.TLSVersion.TLSv1_2:
                with pytest.raises(ssl.SSLError) as failed:
                    await support.within(connecting)
                error: BaseException | None = failed.value
                reason, words = "SSLV3_ALERT_HANDSHAKE_FAILURE", "alert handshake failure"
                assert protocol.events == []
            else:
                # With TLS 1.3 the client is done before the server has checked it.
                await support.within(connecting)
                await protocol.until_lost()
                error = protocol.reason
                reason, words = "TLSV13_ALERT_CERTIFICATE_REQUIRED", "alert certificate required"
                assert protocol.events == ["connection_made", "connection_lost"]
            assert type(error) is ssl.SSLError
            assert (error.reason, error.library, error.errno) == (reason, "SSL", 1)
            assert words in str(error)

    run(main())


def test_client_without_a_required_certificate_is_refused(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        servers = Servers()
        context = certificates.server()
        context.load_verify_locations(certificates.authority)
        context.verify_mode = ssl.CERT_REQUIRED
        async with serving(servers, ssl=context) as (_, address):
            # TLS 1.3: the client is done, and sees the closed connection when it reads.
            peer = await plain_client(address, certificates.client())
            with pytest.raises((ssl.SSLError, ConnectionResetError)):
                await support.within(peer.receive_tls(1))
            peer.close()
        assert servers.made[0].events == []

    run(main())


def refusals() -> list[Any]:
    return [
        pytest.param("wrong-name", "DNS:other.example", 2, "Hostname mismatch", id="name"),
        pytest.param("expired", "DNS:localhost", -1, "expired", id="expired"),
    ]


@pytest.mark.parametrize(("name", "alternative", "days", "words"), refusals())
def test_wrong_certificate_is_refused(
    run: Run, certificates: Certificates, name: str, alternative: str, days: int, words: str
) -> None:
    certificates.issue(name, alternative, days=days)

    async def main() -> None:
        servers = Servers()
        async with serving(servers, ssl=certificates.server(name, alternative)) as (_, address):
            with pytest.raises(ssl.SSLCertVerificationError, match=words) as refused:
                await connect(address, certificates.client())
            assert refused.value.verify_code in (10, 62)
            assert refused.value.reason == "CERTIFICATE_VERIFY_FAILED"

    run(main())


def test_untrusted_certificate_is_refused_and_ends_only_its_connection(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        servers = Servers()
        async with serving(servers, ssl=certificates.server()) as (_, address):
            with pytest.raises(ssl.SSLCertVerificationError, match=r"self-signed|unable to get"):
                await connect(address, ssl.create_default_context())
            await close(await connect(address, certificates.client()))
            await servers.made[-1].until_lost()

    run(main())


def test_encrypted_key_asks_for_its_password(run: Run, certificates: Certificates) -> None:
    certificate, key = certificates.issue("locked", password="open sesame")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key, password=lambda: b"open sesame")

    async def main() -> None:
        async with accepted_tls(Recorder(), certificates, ssl=context) as (transport, peer):
            transport.write(b"ping")
            assert await peer.receive_tls(4) == b"ping"

    run(main())


@pytest.mark.skipif(sys.version_info < (3, 13), reason="pre-shared keys came with CPython 3.13")
def test_pre_shared_key_replaces_a_certificate(run: Run) -> None:
    def context(purpose: int) -> ssl.SSLContext:
        made = ssl.SSLContext(purpose)
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
        made.maximum_version = ssl.TLSVersion.TLSv1_2
        made.set_ciphers("PSK")
        return made

    async def main() -> None:
        servers = Servers()
        server = context(ssl.PROTOCOL_TLS_SERVER)
        client = context(ssl.PROTOCOL_TLS_CLIENT)
        asked: list[Any] = []

        def key_of(name: str | None) -> bytes:
            asked.append(name)
            return b"secret"

        server.set_psk_server_callback(key_of, "hint")  # type: ignore[attr-defined]
        client.set_psk_client_callback(  # type: ignore[attr-defined]
            lambda hint: ("client" if hint == "hint" else "nobody", b"secret")
        )
        async with serving(servers, ssl=server) as (_, address):
            transport = await connect(address, client)
            assert "PSK" in transport.get_extra_info("cipher")[0]
            transport.write(b"ping")
            await support.wait_until(lambda: servers.made[0].data == b"ping")
            assert asked == ["client"]
            await close(transport)
            await servers.until_lost()

    run(main())
