"""Certificates that a browser accepts by their hash, without an authority: for development."""

from __future__ import annotations

import hashlib
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ringloop._native import quic as _quic
from ringloop.quic._certificate import _as_certified

if TYPE_CHECKING:
    import os

__all__ = ["BrowserCertificate", "certificate_for_browsers", "certificate_hash"]

# Browsers take at most 14 days; it begins an hour ago.
_DAYS = 13


@dataclass(frozen=True)
class BrowserCertificate:
    """A certificate of 13 days, with its key, in PEM."""

    certificate: bytes
    """For `certificate=`."""
    private_key: bytes
    """For `private_key=`; secret."""
    hash: bytes
    """SHA-256 of the certificate: the `value` of a browser's `serverCertificateHashes`."""

    @property
    def javascript(self) -> str:
        """The second argument of a page's `new WebTransport(url, ...)`."""
        numbers = ",".join(map(str, self.hash))
        return f'{{serverCertificateHashes:[{{algorithm:"sha-256",value:new Uint8Array([{numbers}])}}]}}'


def certificate_for_browsers(*names: str) -> BrowserCertificate:
    """Make a certificate that browsers accept by its hash, without an authority to install.

    `names` are the names and addresses that pages connect to; by default "localhost", 127.0.0.1 and
    ::1. The key is of ECDSA P-256, and the certificate is valid for 13 days, because the
    `serverCertificateHashes` of browsers require that type and at most 14 days.

    `ConfigurationError`: a name that no certificate can be for.
    """
    wanted = tuple(map(_as_certified, names or ("localhost", "127.0.0.1", "::1")))
    _, _, certificate, private_key = _quic.sign_certificate(list(wanted), _DAYS, None)
    return BrowserCertificate(
        certificate.encode(), private_key.encode(), certificate_hash(certificate)
    )


def certificate_hash(certificate: bytes | str | os.PathLike[str]) -> bytes:
    """Return the SHA-256 hash of a certificate in DER or PEM (its first one), or of a file's path."""
    if isinstance(certificate, str) and certificate.startswith("-----BEGIN"):
        data = certificate.encode()
    elif isinstance(certificate, bytes):
        data = certificate
    else:
        data = Path(certificate).read_bytes()
    begin, end = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"
    if begin in data:
        pem = data[data.index(begin) :].partition(end)[0] + end
        data = ssl.PEM_cert_to_DER_cert(pem.decode("ascii"))
    return hashlib.sha256(data).digest()
