"""What refuses a certificate says why, with what is known of it."""

from __future__ import annotations

import datetime
import errno
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic
from tests.quic.support import dialled, served

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.tls import Certificates

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
    """Sign another certificate, valid between two days from now."""
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


def test_expired_since_when(run: Run, certificates: Certificates) -> None:
    certificate, key = dated(certificates, -10, -3)
    error = refusal(run, certificates, {"certificate": certificate, "private_key": key})
    assert "certificate expired on 20" in error.reason
    assert "UTC, 3 days ago" in error.reason


def test_not_valid_before_when(run: Run, certificates: Certificates) -> None:
    certificate, key = dated(certificates, 3, 10)
    error = refusal(run, certificates, {"certificate": certificate, "private_key": key})
    assert "certificate is not valid before 20" in error.reason
    assert "UTC, in 2 days" in error.reason or "UTC, in 3 days" in error.reason


def test_names_of_the_certificate(run: Run, certificates: Certificates) -> None:
    certificate, key = certificates.issue("elsewhere", "DNS:a.example,IP:192.0.2.1")
    error = refusal(run, certificates, {"certificate": certificate, "private_key": key})
    assert 'is not for "localhost": it is for a.example, 192.0.2.1' in error.reason


def test_issuer_that_is_not_trusted(run: Run, certificates: Certificates) -> None:
    other, _ = certificates.issue("another")
    error = refusal(run, certificates, ca_file=other)
    assert 'is signed by "authority", an authority that is not trusted here' in error.reason


def test_authority_of_the_same_name(run: Run, certificates: Certificates, tmp_path: Path) -> None:
    error = refusal(run, certificates, ca_file=type(certificates)(tmp_path).authority)
    assert "is another one of the same name" in error.reason


def test_protocols_of_both(run: Run, certificates: Certificates) -> None:
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
