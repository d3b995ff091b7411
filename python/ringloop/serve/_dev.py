"""`--dev`: a certificate for local development, and how to have a browser accept it."""

from __future__ import annotations

import base64
import hashlib
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ringloop._native import quic as _quic
from ringloop.quic._certificate import _as_certified
from ringloop.quic._der import elements

if TYPE_CHECKING:
    from ringloop.serve._settings import Address

__all__ = ["DAYS", "DevCertificate", "hint"]

DAYS = 13
"""Browsers accept certificates by hash if valid for at most 14 days; it starts an hour ago."""

_LOCAL = ("localhost", "127.0.0.1", "::1")
# Elements of a certificate's first part before its key: version, number, algorithm, issuer, dates,
# subject (RFC 5280 §4.1).
_KEY_INDEX = 6


@dataclass(frozen=True)
class DevCertificate:
    """An untrusted certificate of P-256 in files, and what identifies it."""

    certificate: Path
    private_key: Path
    names: tuple[str, ...]
    der: bytes

    @classmethod
    def made(cls, folder: str, hosts: set[str]) -> DevCertificate:
        """Make one for this machine's own names and `hosts`; only its owner can read the key.

        ConfigurationError: a host that no certificate can be for.
        """
        names = (*_LOCAL, *sorted(hosts.difference(_LOCAL, {"", "0.0.0.0", "::"})))  # noqa: S104
        certified = [_as_certified(name) for name in names]
        _, _, certificate, key = _quic.sign_certificate(certified, DAYS, None)
        files = cls(
            Path(folder, "dev.pem"),
            Path(folder, "dev.key"),
            names,
            ssl.PEM_cert_to_DER_cert(certificate),
        )
        files.certificate.write_text(certificate, "ascii")
        descriptor = os.open(files.private_key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(key)
        return files

    @property
    def hash(self) -> bytes:
        """SHA-256 of the certificate, for `serverCertificateHashes` of WebTransport."""
        return hashlib.sha256(self.der).digest()

    @property
    def pin(self) -> str:
        """SHA-256 of the public key in Base64, for Chromium's command line."""
        (whole,) = elements(self.der)
        signed, *_ = elements(whole.content)
        key = elements(signed.content)[_KEY_INDEX]
        return base64.b64encode(hashlib.sha256(key.whole).digest()).decode()


def hint(made: DevCertificate, tcp: Address | None, quic: Address) -> str:
    """Return how to use it, for the served addresses."""
    numbers = ",".join(map(str, made.hash))
    place = f"localhost:{quic[1]}"
    url = f"https://localhost:{quic[1] if tcp is None else tcp[1]}/"
    return f"""\
{url} for local work: a certificate for {", ".join(made.names)}, good for {DAYS} days

Chromium, with HTTP/3 at once:
  chromium --user-data-dir=/tmp/ringloop-dev --origin-to-force-quic-on={place} \\
    --ignore-certificate-errors-spki-list={made.pin} {url}
WebTransport, in any page:
  new WebTransport("https://{place}/", {{serverCertificateHashes:
    [{{algorithm: "sha-256", value: new Uint8Array([{numbers}])}}]}})
curl:
  curl --insecure --http3 {url}

"""
