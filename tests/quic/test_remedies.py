"""A refused handshake names a remedy, at the end that refused it and at the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic
from ringloop._native import quic as native
from ringloop.quic.asyncio import connect
from ringloop.quic.configuration import QuicConfiguration
from ringloop.quic.errors import TlsError
from tests.quic import shape
from tests.quic.support import dialled, served
from tests.quic.test_error_texts import dated
from tests.support import wait_until, within
from tests.support.tls import openssl

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]


@dataclass
class Refused:
    """Both ends' errors of one handshake."""

    client: quic.ConnectionClosed
    server: quic.ConnectionClosed

    def says(self, name: str, client: str, server: str) -> None:
        """Compare the remedies."""
        for error, remedy in ((self.client, client), (self.server, server)):
            assert isinstance(error, TlsError)
            assert f", {name}): {error.reason}. Remedy: " in str(error)
            assert remedy in str(error).partition("Remedy: ")[2]
            # The remedy is for local users; the peer gets only the cause.
            assert "Remedy" not in error.reason
        assert self.client.by_peer != self.server.by_peer


def refused(
    run: Run, certificates: Certificates, server: dict[str, Any] | None = None, **client: Any
) -> Refused:
    seen: list[quic.ConnectionClosed] = []

    async def main() -> Refused:
        settings = {"on_handshake_failed": lambda _, error: seen.append(error), **(server or {})}
        async with served(certificates, **settings) as endpoint:
            known: dict[str, Any] = {"ca_file": certificates.authority, "alpn": ["test"]}
            known = {**known, "server_name": "localhost", **client}
            with pytest.raises(quic.TlsError) as caught:
                async with quic.connect(*endpoint.address[:2], **known) as connection:
                    # A refused client has already completed the handshake on its side.
                    await within(connection.wait_closed())
                    assert connection.error is not None
                    raise connection.error
            await wait_until(lambda: bool(seen), "the server's error")
        return Refused(caught.value, seen[0])

    both: Refused = run(main())
    return both


def shown(pair: tuple[Any, Any]) -> dict[str, Any]:
    return {"certificate": pair[0], "private_key": pair[1]}


def test_expired(run: Run, certificates: Certificates) -> None:
    both = refused(run, certificates, shown(dated(certificates, -10, -3)))
    both.says("certificate_expired", "set this machine's clock", "certificate NAME --overwrite")


def test_wrong_name(run: Run, certificates: Certificates) -> None:
    pair = certificates.issue("elsewhere", "DNS:a.example,IP:192.0.2.1")
    both = refused(run, certificates, shown(pair))
    both.says("bad_certificate", "server_name=", "for the name that the peer connects to")


def test_unknown_issuer(run: Run, certificates: Certificates) -> None:
    both = refused(run, certificates, ca_file=certificates.issue("another")[0])
    both.says("unknown_ca", "set ca_file=", "(its ca_file=)")


def test_self_signed(run: Run, certificates: Certificates, tmp_path: Path) -> None:
    pair = tmp_path / "own.pem", tmp_path / "own.key"
    openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-subj", "/CN=own", "-addext", "subjectAltName=DNS:localhost"),
        *("-addext", "basicConstraints=critical,CA:FALSE"),
        *("-keyout", str(pair[1]), "-out", str(pair[0])),
    )
    both = refused(run, certificates, shown(pair))
    both.says("unknown_ca", "a self-signed certificate itself", "have the peer trust")
    # And the remedy works.
    handshake(run, certificates, shown(pair), ca_file=pair[0])


def handshake(run: Run, certificates: Certificates, server: dict[str, Any], **client: Any) -> None:
    async def main() -> None:
        async with served(certificates, **server) as endpoint:
            known = {"alpn": ["test"], "server_name": "localhost", **client}
            async with quic.connect(*endpoint.address[:2], **known) as connection:
                await within(connection.ping())

    run(main())


def test_authority_as_a_leaf(run: Run, certificates: Certificates) -> None:
    pair = certificates.authority, certificates.folder / "authority.key"
    both = refused(run, certificates, shown(pair), ca_file=certificates.issue()[0])
    text = "one that an authority has signed (python -m ringloop.quic certificate NAME)"
    both.says("certificate_unknown", text, text)


def test_recreated_authority(run: Run, certificates: Certificates, tmp_path: Path) -> None:
    both = refused(run, certificates, ca_file=type(certificates)(tmp_path).authority)
    both.says("decrypt_error", "set ca_file=", "have the peer trust")


def test_certificate_for_another_purpose(run: Run, certificates: Certificates) -> None:
    pair = certificates.issue("clients-only", "DNS:localhost\nextendedKeyUsage=clientAuth")
    both = refused(run, certificates, shown(pair))
    both.says("unsupported_certificate", "serverAuth", "serverAuth")


def test_client_without_a_certificate(run: Run, certificates: Certificates) -> None:
    wanted = {"client_auth": "required", "ca_file": certificates.authority}
    both = refused(run, certificates, wanted)
    both.says("certificate_required", "set certificate= and private_key=", "'optional'")


def test_untrusted_client_certificate(run: Run, certificates: Certificates, tmp_path: Path) -> None:
    other = quic.make_certificate("client.example", directory=tmp_path)
    wanted = {"client_auth": "required", "ca_file": certificates.authority}
    pair = other.certificate, other.private_key
    both = refused(run, certificates, wanted, **shown(pair))
    both.says("unknown_ca", "(its ca_file=)", "set ca_file=")


def test_protocols(run: Run, certificates: Certificates) -> None:
    both = refused(run, certificates, {"alpn": ["a", "b"]}, alpn=["c"])
    both.says("no_application_protocol", "(alpn=)", "(alpn=)")
    for error in (both.client, both.server):
        assert 'the client offers "c", the server speaks "a", "b"' in str(error)


def test_name_without_a_certificate(run: Run, certificates: Certificates) -> None:
    config = quic.ServerConfig(sni={"a.example": certificates.issue()}, alpn=["test"])
    both = refused(run, certificates, {"configuration": config})
    both.says("access_denied", "server_name=", "sni=")


def test_versions(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with served(certificates, versions=[2]) as endpoint:
            known: dict[str, Any] = {"ca_file": certificates.authority, "alpn": ["test"]}
            with pytest.raises(quic.VersionMismatch, match=r"version 1 .* at both ends"):
                await within(
                    quic.open_connection(*endpoint.address[:2], version=1, versions=[1], **known)
                )

    run(main())


def test_remedies_in_the_aioquic_api(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with shape.served(certificates) as server:
            client = QuicConfiguration(
                alpn_protocols=["test"], cafile=str(certificates.issue("another")[0])
            )
            with pytest.raises(ConnectionError, match=r"Remedy: .* ca_file="):
                async with connect("localhost", shape.port_of(server), configuration=client):
                    pass

    run(main())


def test_names_of_all_alerts() -> None:
    # RFC 8446 §6.
    names = {
        10: "unexpected_message",
        40: "handshake_failure",
        42: "bad_certificate",
        45: "certificate_expired",
        48: "unknown_ca",
        70: "protocol_version",
        109: "missing_extension",
        112: "unrecognized_name",
        116: "certificate_required",
        120: "no_application_protocol",
    }
    for alert, name in names.items():
        for by_peer in (False, True):
            error = TlsError(0x100 + alert, "", by_peer, is_application=False)
            who = "the peer" if by_peer else "this end"
            assert str(error).startswith(f"{who} closed the connection with CRYPTO_ERROR ")
            said, _, remedy = str(error).partition(". Remedy: ")
            assert said.partition(f" ({0x100 + alert:#x}, {name}): ")[2]
            assert remedy
    assert "TLS 1.3" in str(TlsError(0x100 + 70, "", by_peer=True, is_application=False))
    unknown = TlsError(0x1FF, "words", by_peer=True, is_application=False)
    assert str(unknown).endswith("CRYPTO_ERROR (0x1ff): words")
    assert unknown.alert == 255


# --- mismatched certificates and keys -------------------------------------------------------------


def of_shape(certificate: Any, key: Any) -> object:
    configuration = QuicConfiguration(is_client=False)
    configuration.load_cert_chain(certificate, key)
    return configuration.server_config()


def of_files(certificate: Any, key: Any) -> object:
    return quic.ServerConfig(certificate=certificate, private_key=key)


def test_swapped_certificate_and_key_in_either_api(certificates: Certificates) -> None:
    certificate, key = certificates.issue()
    for make in (of_shape, of_files):
        with pytest.raises(quic.ConfigurationError, match="are swapped: give each") as caught:
            make(key, certificate)
        assert f"(certificate: {key}, private_key: {certificate})" in str(caught.value)
    configuration = QuicConfiguration(is_client=False)
    configuration.certificate, configuration.private_key = (
        key.read_bytes(),
        certificate.read_bytes(),
    )
    with pytest.raises(quic.ConfigurationError, match="are swapped"):
        configuration.server_config()


def test_key_of_another_certificate_in_either_api(certificates: Certificates) -> None:
    certificate, _ = certificates.issue()
    _, key = certificates.issue("another")
    for make in (of_shape, of_files):
        with pytest.raises(quic.ConfigurationError, match="give the one that this certificate"):
            make(certificate, key)


def test_one_without_the_other(certificates: Certificates) -> None:
    certificate, key = certificates.issue()
    known: dict[str, Any] = {"ca_file": certificates.authority}
    for make in (lambda **it: quic.ClientConfig(**known, **it), quic.ServerConfig):
        with pytest.raises(quic.ConfigurationError, match="give it as private_key=") as caught:
            make(certificate=certificate)
        assert f"(certificate: {certificate})" in str(caught.value)
        with pytest.raises(quic.ConfigurationError, match="private_key= needs the certificate"):
            make(private_key=key)
    with pytest.raises(quic.ConfigurationError, match="certificate NAME makes one"):
        quic.ServerConfig()


def test_path_in_the_place_of_material(certificates: Certificates) -> None:
    certificate, key = map(str, certificates.issue())
    configuration = QuicConfiguration(is_client=False, certificate=certificate, private_key=key)
    with pytest.raises(quic.ConfigurationError, match=r"files are read by load_cert_chain"):
        configuration.server_config()


# --- settings of the wrong type -------------------------------------------------------------------

MATERIAL = ["ca_data", "certificate", "private_key"]
PATHS = ["ca_file", "ca_path", "token_store", "qlog"]


@pytest.mark.parametrize("value", [1, 1.5, object(), {}, [1], [object()]])
@pytest.mark.parametrize("name", [*MATERIAL, *PATHS])
def test_wrong_type_names_its_keyword(certificates: Certificates, name: str, value: Any) -> None:
    certificate, key = certificates.issue()
    shown = {"certificate": certificate, "private_key": key} if name in MATERIAL else {}
    given: dict[str, Any] = {"verify": False, **shown, name: value}
    with pytest.raises(TypeError, match=rf"\b{name}\b"):
        quic.ClientConfig(**given)


@pytest.mark.parametrize("name", MATERIAL)
def test_invalid_contents_name_their_keyword(certificates: Certificates, name: str) -> None:
    certificate, key = certificates.issue()
    given: dict[str, Any] = {"certificate": certificate, "private_key": key, name: b"nothing"}
    with pytest.raises(quic.ConfigurationError, match=rf"\b{name}: "):
        quic.ClientConfig(**given)


def test_wrong_type_error_does_not_show_the_value(certificates: Certificates) -> None:
    certificate, _ = certificates.issue()
    secret = {"key": "a secret"}
    wrong: list[Any] = [secret, [secret]]
    for given in wrong:
        with pytest.raises(TypeError, match="not dict") as caught:
            quic.ServerConfig(certificate=certificate, private_key=given)
        assert "secret" not in str(caught.value)


def test_wrong_type_in_sni_names_it(certificates: Certificates) -> None:
    wrong: Any = {"a.example": (1, 2)}
    with pytest.raises(TypeError, match=r"sni=…\): certificate is a path"):
        quic.ServerConfig(sni=wrong)


def test_wrong_version_names_its_keyword() -> None:
    with pytest.raises(ValueError, match=r"^versions: 0x7 is not a supported version of QUIC"):
        native.Endpoint(versions=[7])
    with pytest.raises(ValueError, match=r"^version: 0x7 is not a supported version of QUIC"):
        quic.ClientConfig(verify=False, version=7)


def test_version_unsupported_by_the_endpoint() -> None:
    endpoint = native.Endpoint(versions=[1])
    config = quic.ClientConfig(verify=False, version=2)
    with pytest.raises(quic.ConnectError, match="give it versions="):
        endpoint.connect(config, ("192.0.2.1", 443), "localhost")


@pytest.mark.parametrize("off", ["client", "server"])
def test_disabled_datagrams_error_names_the_keyword(
    run: Run, certificates: Certificates, off: str
) -> None:
    async def main() -> None:
        settings: dict[str, Any] = {"datagram_receive_buffer": None}
        server = settings if off == "server" else {}
        client = settings if off == "client" else {}
        async with served(certificates, **server) as endpoint:
            async with dialled(certificates, endpoint.address, **client) as connection:
                here = "at this end: set datagram_receive_buffer="
                there = "the peer accepts no datagrams: .*datagram_receive_buffer"
                with pytest.raises(quic.DatagramError, match=here if off == "client" else there):
                    await within(connection.send_datagram(b"x"))

    run(main())
