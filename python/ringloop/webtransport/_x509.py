"""What a certificate has to be that is taken by its hash (W3C WebTransport, `serverCertificateHashes`).

Owns: the rules, and reading the few fields of X.509 that they are about. Called by: `_connect`. Never
does: verify a signature; the hash stands for that.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from ringloop.quic._der import elements

if TYPE_CHECKING:
    from ringloop.quic._der import Element

__all__ = ["Facts", "facts_of", "unmet_rule"]

_VALIDITY_MAX: Final = timedelta(days=14)
_P256: Final = "ECDSA P-256"
_EC: Final = bytes.fromhex("2a8648ce3d0201")
# Object identifiers of RFC 3279, 5480 and 8410, of curves where the algorithm is EC.
_KEYS: Final = {
    bytes.fromhex("2a8648ce3d030107"): _P256,
    bytes.fromhex("2b81040022"): "ECDSA P-384",
    bytes.fromhex("2b81040023"): "ECDSA P-521",
    bytes.fromhex("2a864886f70d010101"): "RSA",
    bytes.fromhex("2a864886f70d01010a"): "RSA-PSS",
    bytes.fromhex("2b6570"): "Ed25519",
}

_UTC_TIME: Final = 0x17
_VERSION: Final = 0xA0
_X509_V3: Final = 2
# UTCTime has two digits: from 50 on they are of the last century (RFC 5280 §4.1.2.5.1).
_CENTURY_PIVOT: Final = "50"


class Facts(NamedTuple):
    """What the rules ask of a certificate."""

    is_v3: bool
    not_before: datetime
    not_after: datetime
    key: str
    """Its algorithm, such as "ECDSA P-256"; the identifier in hex where it is not known."""


def unmet_rule(certificate: bytes, now: datetime | None = None) -> str | None:
    """Return the rule that a certificate (DER) does not keep, in words; None: it keeps all."""
    try:
        facts = facts_of(certificate)
    except ValueError:
        return "it cannot be read"
    if not facts.is_v3:
        return "it is not of version 3 of X.509"
    if facts.key != _P256:
        return f"its key is of {facts.key}, where {_P256} is required"
    return _unmet_time(facts, now or datetime.now(UTC))


def _unmet_time(facts: Facts, now: datetime) -> str | None:
    if (lasts := facts.not_after - facts.not_before) > _VALIDITY_MAX:
        return f"it is valid for {lasts / timedelta(days=1):.4g} days, where 14 are the most"
    if now < facts.not_before:
        return f"it is valid from {facts.not_before} on, and here it is {now:%F %T}+00:00"
    if now > facts.not_after:
        return f"it was valid until {facts.not_after}"
    return None


def facts_of(certificate: bytes) -> Facts:
    """Read a certificate in DER (RFC 5280 §4.1); ValueError where it is none."""
    try:
        (whole,) = elements(certificate)
        fields = elements(elements(whole.content)[0].content)
        is_v3 = False
        if fields[0].tag == _VERSION:
            (version,) = elements(fields.pop(0).content)
            is_v3 = int.from_bytes(version.content) == _X509_V3
        _serial, _signature, _issuer, validity, _subject, key, *_ = fields
        not_before, not_after = map(_time, elements(validity.content))
        algorithm, _ = elements(key.content)
        named, *parameters = elements(algorithm.content)
    except IndexError as error:
        raise ValueError("a field is missing") from error
    if named.content == _EC and parameters:
        named = parameters[0]
    identifier = named.content
    return Facts(is_v3, not_before, not_after, _KEYS.get(identifier, identifier.hex()))


def _time(element: Element) -> datetime:
    text = element.content.decode("ascii")
    if element.tag == _UTC_TIME:
        text = ("19" if text >= _CENTURY_PIVOT else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
