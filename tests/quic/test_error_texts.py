"""Error messages of refused certificates and failed handshakes name the cause and what is known."""

from __future__ import annotations

import asyncio
import datetime
import errno
import socket
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic
from ringloop.quic.asyncio import connect
from ringloop.quic.configuration import QuicConfiguration
from tests.quic.support import Pair, both, client_config, dialled, served
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]


def refusal(
    run: Run, certificates: Certificates, server: dict[str, Any] | None = None, **client: Any
) -> quic.TlsError:
    async def main() -> quic.TlsError:
        async with served(certificates, **(server or {})) as endpoint:
            with pytest.raises(quic.TlsError) as refused:
                async with dialled(certificates, endpoint.address, **client):
                    pass
        return refused.value

    error: quic.TlsError = run(main())
    return error


def dated(certificates: Certificates, begin: int, end: int) -> tuple[Any, Any]:
    """Sign another certificate, with its validity in days from now."""
    x509 = pytest.importorskip("cryptography.x509")
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    hashes = pytest.importorskip("cryptography.hazmat.primitives.hashes")
    authority_key = certificates.folder / "authority.key"
    signer = serialization.load_pem_private_key(authority_key.read_bytes(), None)
    issuer = x509.load_pem_x509_certificate(certificates.authority.read_bytes())
    certificate, key = certificates.issue()
    good = x509.load_pem_x509_certificate(certificate.read_bytes())
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .issuer_name(issuer.subject)
        .subject_name(good.subject)
        .public_key(good.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + datetime.timedelta(days=begin))
        .not_valid_after(now + datetime.timedelta(days=end))
    )
    for extension in good.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    return builder.sign(signer, hashes.SHA256()), key


def test_expired_certificate_error_names_the_date(run: Run, certificates: Certificates) -> None:
    certificate, key = dated(certificates, -10, -3)
    error = refusal(run, certificates, {"certificate": certificate, "private_key": key})
    assert "certificate expired on 20" in error.reason
    assert "UTC, 3 days ago" in error.reason


def test_not_yet_valid_certificate_error_names_the_date(
    run: Run, certificates: Certificates
) -> None:
    certificate, key = dated(certificates, 3, 10)
    error = refusal(run, certificates, {"certificate": certificate, "private_key": key})
    assert "certificate is not valid before 20" in error.reason
    assert "UTC, in 2 days" in error.reason or "UTC, in 3 days" in error.reason


def test_names_of_the_certificate(run: Run, certificates: Certificates) -> None:
    certificate, key = certificates.issue("elsewhere", "DNS:a.example,IP:192.0.2.1")
    error = refusal(run, certificates, {"certificate": certificate, "private_key": key})
    assert 'is not for "localhost": it is for a.example, 192.0.2.1' in error.reason


def test_addresses_of_the_certificate_have_their_standard_form(
    run: Run, certificates: Certificates
) -> None:
    names = ["::1", "192.0.2.1", "fe80::", "2001:db8::1:0:0:2", "::"]
    shown = ",".join(f"IP:{ip_address(name).exploded}" for name in names)
    certificate, key = certificates.issue("numbers", shown)
    error = refusal(run, certificates, {"certificate": certificate, "private_key": key})
    assert f'is not for "localhost": it is for {", ".join(names)}' in error.reason


def test_untrusted_issuer(run: Run, certificates: Certificates) -> None:
    other, _ = certificates.issue("another")
    error = refusal(run, certificates, ca_file=other)
    assert 'is signed by "authority", an authority that is not trusted here' in error.reason


def test_authority_of_the_same_name(run: Run, certificates: Certificates, tmp_path: Path) -> None:
    error = refusal(run, certificates, ca_file=type(certificates)(tmp_path).authority)
    assert "is another one of the same name" in error.reason


def test_alpn_error_names_the_protocols_of_both(run: Run, certificates: Certificates) -> None:
    error = refusal(run, certificates, {"alpn": ["a", "b"]}, alpn=["c"])
    assert 'the client offers "c", the server speaks "a", "b"' in error.reason


def test_authority_as_a_leaf(run: Run, certificates: Certificates) -> None:
    own = {
        "certificate": certificates.authority,
        "private_key": certificates.folder / "authority.key",
    }
    error = refusal(run, certificates, own, ca_file=certificates.issue()[0])
    assert "CA:TRUE" in error.reason


def test_certificate_and_key_swapped(certificates: Certificates) -> None:
    certificate, key = certificates.issue()
    with pytest.raises(quic.ConfigurationError, match="are swapped"):
        quic.ServerConfig(certificate=key, private_key=certificate)


def test_key_of_another_certificate(certificates: Certificates) -> None:
    certificate, _ = certificates.issue()
    _, key = certificates.issue("another")
    with pytest.raises(quic.ConfigurationError, match="is another certificate's"):
        quic.ServerConfig(certificate=certificate, private_key=key)


def test_missing_files_are_named(certificates: Certificates, tmp_path: Path) -> None:
    missing = tmp_path / "missing.pem"
    certificate, _ = certificates.issue()
    for keywords in (
        {"certificate": missing},
        {"certificate": certificate, "private_key": missing},
        {"certificate": certificate, "private_key": certificates.folder / "localhost.key"}
        | {"client_auth": "required", "ca_file": missing},
    ):
        with pytest.raises(FileNotFoundError) as caught:
            quic.ServerConfig(**keywords)  # type: ignore[arg-type]
        assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, str(missing))
    with pytest.raises(FileNotFoundError, match=r"missing\.pem"):
        quic.ClientConfig(ca_path=missing)


@pytest.fixture
def silent() -> Iterator[tuple[str, int]]:
    """Give the address of a socket that is never read."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()


@pytest.mark.parametrize("limit", ["idle_timeout", "handshake_timeout"])
def test_no_answer_names_the_address(
    run: Run, certificates: Certificates, silent: tuple[str, int], limit: str
) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError) as caught:
            async with dialled(certificates, silent, **{limit: 0.2}, initial_rtt=0.02):
                pass
        assert f"no answer from 127.0.0.1:{silent[1]}" in str(caught.value)
        assert isinstance(caught.value, quic.ConnectionClosed)
        assert caught.value.in_handshake

    run(within(main()))


def test_no_answer_names_all_tried_addresses(
    run: Run, certificates: Certificates, silent: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        families = socket.AF_INET, socket.SOCK_DGRAM, 17, ""
        found = [(*families, (host, silent[1])) for host in ("127.0.0.1", "127.0.0.2")]

        async def both_of_them(*_arguments: object, **_keywords: object) -> list[Any]:
            return found

        monkeypatch.setattr(loop, "getaddrinfo", both_of_them)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as second:
            second.bind(("127.0.0.2", silent[1]))
            with pytest.raises(quic.HandshakeTimeout) as caught:
                await quic.open_connection(
                    "localhost", silent[1], ca_file=certificates.authority, handshake_timeout=0.2
                )
        for host in ("127.0.0.1", "127.0.0.2"):
            assert f"no answer from {host}:{silent[1]}" in str(caught.value)

    run(within(main()))


@pytest.mark.parametrize("limit", ["idle_timeout", "handshake_timeout"])
def test_no_answer_in_the_aioquic_api(run: Run, silent: tuple[str, int], limit: str) -> None:
    configuration = QuicConfiguration(is_client=True, **{limit: 0.2})  # type: ignore[arg-type]
    configuration.initial_rtt = 0.02

    async def main() -> None:
        with pytest.raises(
            ConnectionError, match=f"no answer from 127.0.0.1:{silent[1]}"
        ) as caught:
            async with connect(*silent, configuration=configuration):
                pass
        assert isinstance(caught.value, TimeoutError)

    run(within(main()))


def test_connection_refused_has_its_name(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with served(certificates, max_connections=1) as server:
            async with dialled(certificates, server.address):
                with pytest.raises(quic.TransportError) as caught:
                    async with dialled(certificates, server.address):
                        pass
        assert str(caught.value) == (
            "the peer closed the connection during the handshake with CONNECTION_REFUSED (0x2): "
            "it accepts no more connections now"
        )
        assert (caught.value.code, caught.value.reason) == (2, "")

    run(within(main()))


def test_application_close_during_the_handshake(certificates: Certificates) -> None:
    pair = Pair.make(certificates)
    client = pair.connect(client_config(certificates))
    for datagram, _ in pair.client.datagrams_to_send(pair.now):
        pair.server.receive_datagram(datagram, ("192.0.2.1", 40000), pair.now)
    client.close(7, "never mind", pair.now)
    assert str(client.error) == (
        "the connection was closed here during the handshake with code 7: never mind"
    )
    pair.run_until(lambda: pair.server.counts()[4])
    assert pair.server.counts()[7:] == [0, 0, 1, 0]
    ((_, error),) = pair.server.take_failures()
    assert str(error) == (
        "the peer closed the connection during the handshake with APPLICATION_ERROR (0xc): "
        "its program closed the connection"
    )


def test_alerts_have_their_names(run: Run, certificates: Certificates) -> None:
    error = refusal(run, certificates, alpn=["another"])
    assert "during the handshake with CRYPTO_ERROR (0x178, no_application_protocol): " in str(error)


def test_later_errors_do_not_mention_the_handshake(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            client.close(3)
            await within(server.wait_closed())
            for end in (client.error, server.error):
                assert end is not None
                assert not end.in_handshake
                assert "handshake" not in str(end)

    run(main())


def test_datagram_too_long(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, _):
            longest = client.max_datagram_size
            assert longest is not None
            text = f"{longest + 900} bytes is longer than the path carries: at most {longest} bytes"
            with pytest.raises(quic.DatagramError, match=text):
                await client.send_datagram(bytes(longest + 900))

    run(main())
