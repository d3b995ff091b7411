"""TLS alerts in plain words (RFC 8446 §6): what each means, and the remedy.

Called by: `errors`. Never does: guess; a remedy follows from the alert and its sender.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["cause", "remedy"]


class _Alert(NamedTuple):
    cause: str
    """Said where the end that refused says nothing itself."""
    here: str = ""
    """What helps where this end has refused."""
    there: str = ""
    """What helps where the peer has."""


_COMMAND: Final = "python -m ringloop.quic certificate NAME"
_BUG: Final = "look for a fault of either stack, or for something between them that changes packets"
_TLS13: Final = (
    "use a version of the peer's library that has TLS 1.3 for QUIC, and leave TLS 1.3 on"
)
_ALPN: Final = "name the same protocol at both ends (alpn=), letter by letter"
_SNI: Final = (
    "have the server's sni= name what clients ask for, or certificate= stand for all others"
)
_PURPOSE: Final = "extendedKeyUsage serverAuth (of a client's: clientAuth), or without any"

_ALERTS: Final = {
    10: _Alert("a message came that does not belong there", _BUG, _BUG),
    20: _Alert("a message could not be decrypted", _BUG, _BUG),
    40: _Alert(
        "no cipher suite, key exchange or kind of certificate in common",
        "let the peer have AES-GCM or ChaCha20-Poly1305, X25519 or P-256, and ECDSA, Ed25519 or RSA",
        "look at the peer's cipher suites, groups and kinds of certificates; it may want one of this"
        " end (certificate=)",
    ),
    42: _Alert(
        "the certificate is not for this name, or cannot be read",
        "connect by a name that the certificate has (server_name=), or have it made for this one"
        f" ({_COMMAND})",
        f"give certificate= one that is for the name that the peer connects to ({_COMMAND})",
    ),
    43: _Alert(
        "the certificate is of a kind, or for a purpose, that does not do",
        f"have the peer's certificate made with {_PURPOSE}",
        f"have this end's certificate made with {_PURPOSE}",
    ),
    44: _Alert(
        "the certificate has been revoked",
        "have the peer's certificate made anew",
        "have this end's certificate made anew",
    ),
    45: _Alert(
        "the certificate has expired, or is not valid yet",
        "have the peer's certificate made anew, or set this machine's clock",
        f"have this end's certificate made anew ({_COMMAND} --overwrite), or the peer's clock set",
    ),
    46: _Alert(
        "the certificate is not acceptable",
        f"have the peer show one that an authority has signed ({_COMMAND})",
        f"give certificate= one that an authority has signed ({_COMMAND})",
    ),
    47: _Alert("a message has a value that cannot be", _BUG, _BUG),
    48: _Alert(
        "the certificate is signed by an authority that is not trusted",
        "give the authority that has signed it as ca_file= (a self-signed certificate itself)",
        "have the peer trust the authority of this end's certificate (its ca_file=), and give"
        " certificate= what stands between the two as well",
    ),
    49: _Alert(
        "not let in",
        _SNI,
        "ask for a name that the server has a certificate for (server_name=)",
    ),
    50: _Alert("a message cannot be read", _BUG, _BUG),
    51: _Alert(
        "a signature, or a check over the handshake, is wrong",
        "give the authority that has signed the certificate as ca_file=: it may have been made anew",
        "have the peer trust the authority that has signed the certificate: it may have been made anew",
    ),
    70: _Alert("no version of TLS in common", _TLS13, _TLS13),
    71: _Alert("what is offered is too weak"),
    80: _Alert("something failed", there="look at the peer's log"),
    86: _Alert("an older version was tried again", _TLS13, _TLS13),
    90: _Alert("the handshake was given up"),
    109: _Alert("the handshake lacks what QUIC or TLS 1.3 needs", _TLS13, _TLS13),
    110: _Alert("an extension came that was not asked for", _BUG, _BUG),
    112: _Alert(
        "the server does not know the name",
        _SNI,
        "ask for a name that the server has a certificate for (server_name=)",
    ),
    113: _Alert("the certificate's status is refused"),
    115: _Alert("the session is not known any more", there="connect anew"),
    116: _Alert(
        "the client has shown no certificate",
        "have the client give certificate= and private_key=, or take client_auth='optional'",
        "give certificate= and private_key=, signed by an authority that the server trusts",
    ),
    120: _Alert("no common ALPN protocol", _ALPN, _ALPN),
}


def cause(alert: int) -> str:
    """Return what an alert means."""
    known = _ALERTS.get(alert)
    return known.cause if known is not None else ""


def remedy(alert: int, *, by_peer: bool) -> str:
    """Return what helps at this end; nothing where that is not known."""
    known = _ALERTS.get(alert)
    if known is None:
        return ""
    return known.there if by_peer else known.here
