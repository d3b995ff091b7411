"""Certificates that are taken by their hash."""

from __future__ import annotations

import hashlib
import ssl
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic, webtransport
from ringloop.webtransport._x509 import facts_of, unmet_rule
from tests.support import within
from tests.support.tls import openssl

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ringloop.webtransport import Session

    Run = Callable[[Any], Any]


async def idle(session: Session) -> None:
    """Wait for the end."""
    await session.wait_closed()


def test_certificate_is_what_browsers_demand() -> None:
    x509 = pytest.importorskip("cryptography.x509")
    made = webtransport.certificate_for_browsers("localhost")
    shown = x509.load_pem_x509_certificate(made.certificate)
    assert shown.public_key().curve.name == "secp256r1"
    lasts = shown.not_valid_after_utc - shown.not_valid_before_utc
    assert 13 <= lasts.total_seconds() / 86400 < 14
    assert made.hash == hashlib.sha256(ssl.PEM_cert_to_DER_cert(made.certificate.decode())).digest()
    assert ",".join(map(str, made.hash)) in made.javascript


def test_hash_is_of_any_form(tmp_path: Path) -> None:
    made = webtransport.certificate_for_browsers()
    text = made.certificate.decode()
    path = tmp_path / "one.pem"
    path.write_text("a comment\n" + text)
    der = ssl.PEM_cert_to_DER_cert(text)
    for form in (made.certificate, text, der, path, str(path)):
        assert webtransport.certificate_hash(form) == made.hash


def test_client_takes_the_certificate_of_a_hash_and_no_other(run: Run) -> None:
    async def main() -> None:
        made, other = (webtransport.certificate_for_browsers() for _ in range(2))
        server = await webtransport.serve(
            idle, "127.0.0.1", certificate=made.certificate, private_key=made.private_key
        )
        url = f"https://127.0.0.1:{server.address[1]}/"
        hashes = [other.hash, made.hash]
        opening = webtransport.open_session(url, certificate_hashes=hashes)
        async with server, await within(opening):
            with pytest.raises(quic.ConnectError, match="none of certificate_hashes"):
                await within(webtransport.open_session(url, certificate_hashes=[other.hash]))

    run(main())


def self_signed(folder: Path, days: int, *key: str) -> tuple[Path, Path]:
    """Create a certificate without an authority."""
    certificate, private_key = folder / "certificate.pem", folder / "key.pem"
    openssl(
        *("req", "-x509", "-nodes", "-days", str(days), "-subj", "/CN=localhost", "-newkey", *key),
        *("-keyout", str(private_key), "-out", str(certificate)),
    )
    return certificate, private_key


P256 = ("ec", "-pkeyopt", "ec_paramgen_curve:P-256")
P384 = ("ec", "-pkeyopt", "ec_paramgen_curve:P-384")


@pytest.mark.parametrize(
    ("days", "key", "cause"),
    [
        (30, P256, "it is valid for 30 days, where 14 are the most"),
        (10, ("rsa:2048",), "its key is of RSA, where ECDSA P-256 is required"),
        (10, P384, "its key is of ECDSA P-384"),
    ],
)
def test_certificate_that_browsers_would_refuse_is_refused(
    run: Run, tmp_path: Path, days: int, key: tuple[str, ...], cause: str
) -> None:
    """The rules of `serverCertificateHashes` hold also where the hash is the right one."""
    certificate, private_key = self_signed(tmp_path, days, *key)

    async def main() -> None:
        server = await webtransport.serve(
            idle, "127.0.0.1", certificate=certificate, private_key=private_key
        )
        async with server:
            opening = webtransport.open_session(
                f"https://127.0.0.1:{server.address[1]}/",
                certificate_hashes=[webtransport.certificate_hash(certificate)],
            )
            with pytest.raises(quic.ConnectError, match=cause):
                await within(opening)

    run(main())


def test_certificate_is_taken_while_it_is_valid() -> None:
    made = webtransport.certificate_for_browsers().certificate.decode()
    der = ssl.PEM_cert_to_DER_cert(made)
    facts = facts_of(der)
    second = timedelta(seconds=1)
    assert unmet_rule(der) is None
    assert unmet_rule(der, facts.not_before) is None
    assert unmet_rule(der, facts.not_after) is None
    assert "it is valid from" in (unmet_rule(der, facts.not_before - second) or "")
    assert "it was valid until" in (unmet_rule(der, facts.not_after + second) or "")


def test_certificates_of_all_ages_and_keys_are_read(tmp_path: Path) -> None:
    """Dates past 2049 are written otherwise (RFC 5280 §4.1.2.5)."""
    pem, _ = self_signed(tmp_path, 20_000, "ed25519")
    facts = facts_of(ssl.PEM_cert_to_DER_cert(pem.read_text()))
    assert (facts.is_v3, facts.key) == (True, "Ed25519")
    assert facts.not_after - facts.not_before == timedelta(days=20_000)
    assert facts.not_after.year > 2049


def test_no_cut_certificate_is_taken() -> None:
    der = ssl.PEM_cert_to_DER_cert(webtransport.certificate_for_browsers().certificate.decode())
    for end in range(len(der)):
        assert unmet_rule(der[:end]) == "it cannot be read"


@pytest.mark.parametrize("hashes", [[b"short"], bytes(32), ["ab" * 32]])
def test_hash_that_cannot_be_is_refused(run: Run, hashes: Any) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="certificate_hashes"):
            await webtransport.open_session("https://localhost/", certificate_hashes=hashes)

    run(main())


def test_limits_that_cannot_be_are_refused() -> None:
    wrong: list[dict[str, Any]] = [
        {"sessions": 0},
        {"sessions": 70_000},
        {"sessions": True},
        {"data": 0},
        {"data": 1 << 62},
        {"streams": 0},
        {"unidirectional_streams": (1 << 60) + 1},
    ]
    for keywords in wrong:
        with pytest.raises(quic.ConfigurationError, match=next(iter(keywords))):
            webtransport.SessionLimits(**keywords)
