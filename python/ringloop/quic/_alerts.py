"""TLS alerts in plain words (RFC 8446 §6): what each means, and the remedy.

Called by: `errors`. Never does: guess; a remedy follows from the alert and its sender.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["cause", "remedy"]


class _Alert(NamedTuple):
    cause: str
    """Used when the refusing end gives no reason."""
    here: str = ""
    """Remedy if this end refused."""
    there: str = ""
    """Remedy if the peer refused."""


_COMMAND: Final = "python -m ringloop.quic certificate NAME"
_BUG: Final = "look for a bug in either stack, or for a middlebox that changes packets"
_TLS13: Final = (
    "use a version of the peer's library that has TLS 1.3 for QUIC, and do not disable TLS 1.3"
)
_ALPN: Final = "offer the same protocol at both ends (alpn=); names are compared byte by byte"
_SNI: Final = "add the name to the server's sni=, or set certificate= for all other names"
_PURPOSE: Final = "extendedKeyUsage serverAuth (clients: clientAuth), or without extendedKeyUsage"

_ALERTS: Final = {
    10: _Alert("unexpected message", _BUG, _BUG),
    20: _Alert("a message failed to decrypt", _BUG, _BUG),
    40: _Alert(
        "no common cipher suite, key exchange group or certificate type",
        "enable AES-GCM or ChaCha20-Poly1305, X25519 or P-256, and ECDSA, Ed25519 or RSA at the peer",
        "check the peer's cipher suites, groups and certificate types; it may require a certificate"
        " of this end (certificate=)",
    ),
    42: _Alert(
        "the certificate is not valid for this name, or cannot be parsed",
        "connect to a name in the certificate (server_name=), or issue one for this name"
        f" ({_COMMAND})",
        f"set certificate= to one for the name that the peer connects to ({_COMMAND})",
    ),
    43: _Alert(
        "the certificate's type or purpose is not allowed",
        f"reissue the peer's certificate with {_PURPOSE}",
        f"reissue this end's certificate with {_PURPOSE}",
    ),
    44: _Alert(
        "the certificate has been revoked",
        "renew the peer's certificate",
        "renew this end's certificate",
    ),
    45: _Alert(
        "the certificate has expired, or is not valid yet",
        "renew the peer's certificate, or set this machine's clock",
        f"renew this end's certificate ({_COMMAND} --overwrite), or set the peer's clock",
    ),
    46: _Alert(
        "the certificate is not acceptable",
        f"have the peer present one that an authority has signed ({_COMMAND})",
        f"set certificate= to one that an authority has signed ({_COMMAND})",
    ),
    47: _Alert("a message has an illegal value", _BUG, _BUG),
    48: _Alert(
        "the certificate is signed by an authority that is not trusted",
        "set ca_file= to the authority that signed it (a self-signed certificate itself)",
        "have the peer trust the authority of this end's certificate (its ca_file=), and include"
        " the intermediates in certificate=",
    ),
    49: _Alert(
        "access denied",
        _SNI,
        "request a name that the server has a certificate for (server_name=)",
    ),
    50: _Alert("a message cannot be parsed", _BUG, _BUG),
    51: _Alert(
        "a signature or a handshake check is invalid",
        "set ca_file= to the authority that signed the certificate: it may have been recreated",
        "have the peer trust the authority that signed the certificate: it may have been recreated",
    ),
    70: _Alert("no common TLS version", _TLS13, _TLS13),
    71: _Alert("the offered parameters are too weak"),
    80: _Alert("something failed", there="check the peer's log"),
    86: _Alert("inappropriate fallback to an older version", _TLS13, _TLS13),
    90: _Alert("the handshake was cancelled"),
    109: _Alert("the handshake lacks an extension that QUIC or TLS 1.3 requires", _TLS13, _TLS13),
    110: _Alert("unsolicited extension", _BUG, _BUG),
    112: _Alert(
        "the server has no certificate for the name",
        _SNI,
        "request a name that the server has a certificate for (server_name=)",
    ),
    113: _Alert("the certificate's OCSP status was rejected"),
    115: _Alert("the session is no longer known", there="connect again"),
    116: _Alert(
        "the client presented no certificate",
        "set certificate= and private_key= at the client, or use client_auth='optional'",
        "set certificate= and private_key=, signed by an authority that the server trusts",
    ),
    120: _Alert("no common ALPN protocol", _ALPN, _ALPN),
}


def cause(alert: int) -> str:
    """Return what an alert means."""
    known = _ALERTS.get(alert)
    return known.cause if known is not None else ""


def remedy(alert: int, *, by_peer: bool) -> str:
    """Return the remedy at this end; empty if unknown."""
    known = _ALERTS.get(alert)
    if known is None:
        return ""
    return known.there if by_peer else known.here
