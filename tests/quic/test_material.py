"""Certificates and keys in all supported forms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic
from tests.quic.support import dialled, served
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]

SECRET = "open sesame"


def handshake(run: Run, certificates: Certificates, **keywords: Any) -> None:
    async def main() -> None:
        async with served(certificates, **keywords) as server:
            async with dialled(certificates, server.address) as connection:
                await within(connection.ping())

    run(main())


@pytest.mark.parametrize("password", [SECRET, SECRET.encode(), lambda: SECRET])
def test_key_with_a_password(run: Run, certificates: Certificates, password: Any) -> None:
    pytest.importorskip("cryptography")
    certificate, key = certificates.issue("locked", password=SECRET)
    handshake(run, certificates, certificate=certificate, private_key=key, password=password)


def test_key_with_a_password_in_der(run: Run, certificates: Certificates) -> None:
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    certificate, key = certificates.issue("locked", password=SECRET)
    loaded = serialization.load_pem_private_key(key.read_bytes(), SECRET.encode())
    der = loaded.private_bytes(
        serialization.Encoding.DER,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(SECRET.encode()),
    )
    handshake(run, certificates, certificate=certificate, private_key=der, password=SECRET)


def test_objects_of_cryptography(run: Run, certificates: Certificates) -> None:
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    x509 = pytest.importorskip("cryptography.x509")
    certificate, key = certificates.issue()
    shown = x509.load_pem_x509_certificate(certificate.read_bytes())
    issuer = x509.load_pem_x509_certificate(certificates.authority.read_bytes())
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    for chain in (shown, [shown, issuer]):
        handshake(run, certificates, certificate=chain, private_key=loaded)
    config = quic.ServerConfig(certificate=certificate, private_key=key, alpn=["test"])
    config.set_certificate(shown, loaded, "localhost")
    handshake(run, certificates, configuration=config)


def test_missing_password_of_a_key(certificates: Certificates) -> None:
    certificate, key = certificates.issue("locked", password=SECRET)
    with pytest.raises(quic.ConfigurationError, match="encrypted: give its password"):
        quic.ServerConfig(certificate=certificate, private_key=key)


def test_wrong_password_is_a_configuration_error(certificates: Certificates) -> None:
    pytest.importorskip("cryptography")
    certificate, key = certificates.issue("locked", password=SECRET)
    with pytest.raises(quic.ConfigurationError, match="cannot be decrypted: wrong password"):
        quic.ServerConfig(certificate=certificate, private_key=key, password="another")
    with pytest.raises(quic.ConfigurationError, match="encrypted: give its password"):
        quic.ServerConfig(certificate=certificate, private_key=key, password="")


def test_wrong_password_that_ends_in_valid_padding(certificates: Certificates) -> None:
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    certificate, key = certificates.issue("locked", password=SECRET)
    loaded = serialization.load_pem_private_key(key.read_bytes(), SECRET.encode())
    encryption = serialization.BestAvailableEncryption(SECRET.encode())
    for _ in range(2_000):
        locked = loaded.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
        )
        with pytest.raises(quic.ConfigurationError, match="cannot be decrypted: wrong password"):
            quic.ServerConfig(certificate=certificate, private_key=locked, password="another")


def test_password_for_an_unencrypted_key(certificates: Certificates) -> None:
    pytest.importorskip("cryptography")
    certificate, key = certificates.issue()
    with pytest.raises(quic.ConfigurationError, match="not encrypted: leave out its password"):
        quic.ServerConfig(certificate=certificate, private_key=key, password=SECRET)
