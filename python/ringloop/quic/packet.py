"""Parses the unprotected parts of packets; the numbers of RFC 9000.

Owns: error codes, packet and frame types, the parser of unprotected headers, the packets that a
server sends before a connection exists. Called by: programs that route datagrams themselves
(hypercorn does). Never does: decrypt; the native core does.

Source: RFC 8999, RFC 9000 §17, RFC 9369 §3.2; the names are those of `aioquic.quic.packet`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Final

from ringloop.quic.buffer import Buffer

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "CONNECTION_ID_MAX_SIZE",
    "PACKET_FIXED_BIT",
    "PACKET_LONG_HEADER",
    "PACKET_NUMBER_MAX_SIZE",
    "PACKET_SPIN_BIT",
    "PACKET_TYPE_INITIAL",
    "RETRY_INTEGRITY_TAG_SIZE",
    "STATELESS_RESET_TOKEN_SIZE",
    "QuicErrorCode",
    "QuicFrameType",
    "QuicHeader",
    "QuicPacketType",
    "QuicProtocolVersion",
    "QuicTransportParameters",
    "decode_transport_parameters",
    "encode_quic_version_negotiation",
    "is_long_header",
    "pretty_protocol_version",
    "pull_quic_header",
]

PACKET_LONG_HEADER: Final = 0x80
PACKET_FIXED_BIT: Final = 0x40
PACKET_SPIN_BIT: Final = 0x20
CONNECTION_ID_MAX_SIZE: Final = 20
PACKET_NUMBER_MAX_SIZE: Final = 4
RETRY_INTEGRITY_TAG_SIZE: Final = 16
STATELESS_RESET_TOKEN_SIZE: Final = 16


class QuicErrorCode(IntEnum):
    """Transport error codes (RFC 9000 §20.1); 0x100 to 0x1ff carry a TLS alert."""

    NO_ERROR = 0x0
    INTERNAL_ERROR = 0x1
    CONNECTION_REFUSED = 0x2
    FLOW_CONTROL_ERROR = 0x3
    STREAM_LIMIT_ERROR = 0x4
    STREAM_STATE_ERROR = 0x5
    FINAL_SIZE_ERROR = 0x6
    FRAME_ENCODING_ERROR = 0x7
    TRANSPORT_PARAMETER_ERROR = 0x8
    CONNECTION_ID_LIMIT_ERROR = 0x9
    PROTOCOL_VIOLATION = 0xA
    INVALID_TOKEN = 0xB
    APPLICATION_ERROR = 0xC
    CRYPTO_BUFFER_EXCEEDED = 0xD
    KEY_UPDATE_ERROR = 0xE
    AEAD_LIMIT_REACHED = 0xF
    NO_VIABLE_PATH = 0x10
    VERSION_NEGOTIATION_ERROR = 0x11
    CRYPTO_ERROR = 0x100


class QuicPacketType(Enum):
    """Packet types, independent of their encoding in a version."""

    INITIAL = 0
    ZERO_RTT = 1
    HANDSHAKE = 2
    RETRY = 3
    VERSION_NEGOTIATION = 4
    ONE_RTT = 5


PACKET_TYPE_INITIAL: Final = QuicPacketType.INITIAL
"""The older name of `QuicPacketType.INITIAL`."""


class QuicProtocolVersion(IntEnum):
    """Versions as encoded in long headers; 0 marks a version negotiation."""

    NEGOTIATION = 0
    VERSION_1 = 0x0000_0001
    VERSION_2 = 0x6B33_43CF


class QuicFrameType(IntEnum):
    """Frame types (RFC 9000 §12.4, RFC 9221)."""

    PADDING = 0x00
    PING = 0x01
    ACK = 0x02
    ACK_ECN = 0x03
    RESET_STREAM = 0x04
    STOP_SENDING = 0x05
    CRYPTO = 0x06
    NEW_TOKEN = 0x07
    STREAM_BASE = 0x08
    MAX_DATA = 0x10
    MAX_STREAM_DATA = 0x11
    MAX_STREAMS_BIDI = 0x12
    MAX_STREAMS_UNI = 0x13
    DATA_BLOCKED = 0x14
    STREAM_DATA_BLOCKED = 0x15
    STREAMS_BLOCKED_BIDI = 0x16
    STREAMS_BLOCKED_UNI = 0x17
    NEW_CONNECTION_ID = 0x18
    RETIRE_CONNECTION_ID = 0x19
    PATH_CHALLENGE = 0x1A
    PATH_RESPONSE = 0x1B
    TRANSPORT_CLOSE = 0x1C
    APPLICATION_CLOSE = 0x1D
    HANDSHAKE_DONE = 0x1E
    DATAGRAM = 0x30
    DATAGRAM_WITH_LENGTH = 0x31


# The two type bits of a long header (RFC 9000 §17.2); version 2 rotates them by one (RFC 9369 §3.2).
_LONG_TYPES: Final = (
    QuicPacketType.INITIAL,
    QuicPacketType.ZERO_RTT,
    QuicPacketType.HANDSHAKE,
    QuicPacketType.RETRY,
)


@dataclass
class QuicHeader:
    """The fields of a packet that are readable before its protection is removed."""

    version: int | None
    """The version; `None` in short headers."""
    packet_type: QuicPacketType
    packet_length: int
    """Bytes of the whole packet; a datagram may hold several."""
    destination_cid: bytes
    source_cid: bytes
    """Empty in short headers."""
    token: bytes = b""
    """The address token; in Initial and Retry packets."""
    integrity_tag: bytes = b""
    """In Retry packets."""
    supported_versions: list[int] = field(default_factory=list)
    """In Version Negotiation packets."""


def is_long_header(first_byte: int) -> bool:
    """Return whether a packet with this first byte has a long header."""
    return bool(first_byte & PACKET_LONG_HEADER)


def pretty_protocol_version(version: int) -> str:
    """Return a version's number and, if it has one, its name."""
    try:
        name = QuicProtocolVersion(version).name
    except ValueError:
        name = "UNKNOWN"
    return f"0x{version:08x} ({name})"


def pull_quic_header(buf: Buffer, host_cid_length: int | None = None) -> QuicHeader:
    """Read a packet's header; the position ends after its unprotected part.

    `host_cid_length`: the length of this end's connection ids; needed for short headers, which do
    not contain it.
    Errors: `ValueError` (`BufferReadError` among them) for an invalid or truncated packet.
    """
    start = buf.tell()
    first = buf.pull_uint8()
    if not is_long_header(first):
        return _pull_short(buf, first, start, host_cid_length)
    version = buf.pull_uint32()
    destination = _pull_connection_id(buf, "Destination")
    source = _pull_connection_id(buf, "Source")
    if version == QuicProtocolVersion.NEGOTIATION:
        header = QuicHeader(version, QuicPacketType.VERSION_NEGOTIATION, 0, destination, source)
        while not buf.eof():
            header.supported_versions.append(buf.pull_uint32())
    else:
        _require_fixed_bit(first)
        header = QuicHeader(version, _long_type(first, version), 0, destination, source)
        if header.packet_type is QuicPacketType.RETRY:
            header.token = buf.pull_bytes(buf.capacity - buf.tell() - RETRY_INTEGRITY_TAG_SIZE)
            header.integrity_tag = buf.pull_bytes(RETRY_INTEGRITY_TAG_SIZE)
    end = buf.tell()
    if header.packet_type in _WITH_LENGTH:
        if header.packet_type is QuicPacketType.INITIAL:
            header.token = buf.pull_bytes(buf.pull_uint_var())
        protected = buf.pull_uint_var()
        end = buf.tell() + protected
        if end > buf.capacity:
            raise ValueError("Packet payload is truncated")
    header.packet_length = end - start
    return header


_WITH_LENGTH: Final = frozenset(_LONG_TYPES) - {QuicPacketType.RETRY}


def _pull_short(buf: Buffer, first: int, start: int, cid_length: int | None) -> QuicHeader:
    _require_fixed_bit(first)
    if cid_length is None:
        raise ValueError(
            "A short header does not contain the length of its connection id: give host_cid_length"
        )
    destination = buf.pull_bytes(cid_length)
    length = buf.capacity - start
    return QuicHeader(None, QuicPacketType.ONE_RTT, length, destination, b"")


def _pull_connection_id(buf: Buffer, whose: str) -> bytes:
    length = buf.pull_uint8()
    if length > CONNECTION_ID_MAX_SIZE:
        raise ValueError(f"{whose} CID is too long ({length} bytes)")
    return buf.pull_bytes(length)


def _require_fixed_bit(first: int) -> None:
    if not first & PACKET_FIXED_BIT:
        raise ValueError("Packet fixed bit is zero")


def _long_type(first: int, version: int) -> QuicPacketType:
    turned = 1 if version == QuicProtocolVersion.VERSION_2 else 0
    return _LONG_TYPES[((first >> 4) - turned) & 3]


def encode_quic_version_negotiation(
    source_cid: bytes, destination_cid: bytes, supported_versions: Iterable[int]
) -> bytes:
    """Write the response to a packet of an unsupported version (RFC 8999 §6)."""
    # All bits but the first are arbitrary; RFC 9000 §17.2.1 requires the fixed bit if other protocols
    # share the port.
    parts = [
        bytes([PACKET_LONG_HEADER | os.urandom(1)[0]]),
        QuicProtocolVersion.NEGOTIATION.to_bytes(4, "big"),
        bytes([len(destination_cid)]),
        destination_cid,
        bytes([len(source_cid)]),
        source_cid,
    ]
    parts += [version.to_bytes(4, "big") for version in supported_versions]
    return b"".join(parts)


@dataclass
class QuicTransportParameters:
    """Transport parameters (RFC 9000 §18.2, RFC 9221 §3); `None`: not sent."""

    original_destination_connection_id: bytes | None = None
    max_idle_timeout: int | None = None
    stateless_reset_token: bytes | None = None
    max_udp_payload_size: int | None = None
    initial_max_data: int | None = None
    initial_max_stream_data_bidi_local: int | None = None
    initial_max_stream_data_bidi_remote: int | None = None
    initial_max_stream_data_uni: int | None = None
    initial_max_streams_bidi: int | None = None
    initial_max_streams_uni: int | None = None
    ack_delay_exponent: int | None = None
    max_ack_delay: int | None = None
    disable_active_migration: bool = False
    active_connection_id_limit: int | None = None
    initial_source_connection_id: bytes | None = None
    retry_source_connection_id: bytes | None = None
    max_datagram_frame_size: int | None = None


_NUMBERS: Final = {
    0x01: "max_idle_timeout",
    0x03: "max_udp_payload_size",
    0x04: "initial_max_data",
    0x05: "initial_max_stream_data_bidi_local",
    0x06: "initial_max_stream_data_bidi_remote",
    0x07: "initial_max_stream_data_uni",
    0x08: "initial_max_streams_bidi",
    0x09: "initial_max_streams_uni",
    0x0A: "ack_delay_exponent",
    0x0B: "max_ack_delay",
    0x0E: "active_connection_id_limit",
    0x20: "max_datagram_frame_size",
}
_STRINGS: Final = {
    0x00: "original_destination_connection_id",
    0x02: "stateless_reset_token",
    0x0F: "initial_source_connection_id",
    0x10: "retry_source_connection_id",
}
_DISABLE_ACTIVE_MIGRATION: Final = 0x0C


def decode_transport_parameters(encoded: bytes) -> QuicTransportParameters:
    """Read encoded transport parameters; unknown ones are skipped.

    Errors: `ValueError` for truncated input.
    """
    parameters = QuicTransportParameters()
    buf = Buffer(data=encoded)
    while not buf.eof():
        number = buf.pull_uint_var()
        value = buf.pull_bytes(buf.pull_uint_var())
        if number in _NUMBERS:
            setattr(parameters, _NUMBERS[number], Buffer(data=value).pull_uint_var())
        elif number in _STRINGS:
            setattr(parameters, _STRINGS[number], value)
        elif number == _DISABLE_ACTIVE_MIGRATION:
            parameters.disable_active_migration = True
    return parameters
