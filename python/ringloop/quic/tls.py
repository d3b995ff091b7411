"""TLS names used by QUIC programs: alerts, cipher suites, session tickets.

Owns: the numbers of RFC 8446. Called by: `configuration`, `connection`, programs. Never does: TLS
itself; rustls does, in the native core.

Source: RFC 8446 §6, §B.4; the names are those of `aioquic.tls`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any

from ringloop._native.quic import SessionTicket

__all__ = [
    "AlertDescription",
    "Certificate",
    "CipherSuite",
    "Group",
    "SessionTicket",
    "SessionTicketFetcher",
    "SessionTicketHandler",
]


class AlertDescription(IntEnum):
    """TLS alerts: `error_code - 0x100` of a `ConnectionTerminated`."""

    close_notify = 0
    unexpected_message = 10
    bad_record_mac = 20
    record_overflow = 22
    handshake_failure = 40
    bad_certificate = 42
    unsupported_certificate = 43
    certificate_revoked = 44
    certificate_expired = 45
    certificate_unknown = 46
    illegal_parameter = 47
    unknown_ca = 48
    access_denied = 49
    decode_error = 50
    decrypt_error = 51
    protocol_version = 70
    insufficient_security = 71
    internal_error = 80
    inappropriate_fallback = 86
    user_canceled = 90
    missing_extension = 109
    unsupported_extension = 110
    unrecognized_name = 112
    bad_certificate_status_response = 113
    unknown_psk_identity = 115
    certificate_required = 116
    no_application_protocol = 120


class CipherSuite(IntEnum):
    """The cipher suites of TLS 1.3 that QUIC uses."""

    AES_128_GCM_SHA256 = 0x1301
    AES_256_GCM_SHA384 = 0x1302
    CHACHA20_POLY1305_SHA256 = 0x1303
    EMPTY_RENEGOTIATION_INFO_SCSV = 0x00FF


class Group(IntEnum):
    """Groups of the key exchange."""

    SECP256R1 = 0x0017
    SECP384R1 = 0x0018
    SECP521R1 = 0x0019
    X25519 = 0x001D
    X448 = 0x001E
    X25519MLKEM768 = 0x11EC


class Certificate:
    """A certificate of a peer, as DER."""

    __slots__ = ("_der",)

    def __init__(self, der: bytes) -> None:
        self._der = der

    def public_bytes(self, encoding: object = None) -> bytes:  # noqa: ARG002 (the shape of cryptography's)
        """Return the certificate in DER."""
        return self._der

    def to_cryptography(self) -> Any:
        """Return the certificate as a `cryptography.x509.Certificate`; needs that package."""
        from cryptography import x509  # noqa: PLC0415 (an optional package)

        return x509.load_der_x509_certificate(self._der)

    def __eq__(self, other: object) -> bool:
        return self._der == other._der if isinstance(other, Certificate) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._der)

    def __repr__(self) -> str:
        return f"<Certificate of {len(self._der)} bytes>"


SessionTicketHandler = Callable[[SessionTicket], None]
SessionTicketFetcher = Callable[[bytes], SessionTicket | None]
