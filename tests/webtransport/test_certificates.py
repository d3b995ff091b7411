"""Certificates that are taken by their hash."""

from __future__ import annotations

import hashlib
import ssl
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic, webtransport
from tests.support import within

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
