"""`ringloop.quic.buffer` and `.packet`: the RFC's examples, bounds, and truncation at any point."""

from __future__ import annotations

import pytest

from ringloop.quic.buffer import (
    UINT_VAR_MAX,
    Buffer,
    BufferReadError,
    BufferWriteError,
    encode_uint_var,
    size_uint_var,
)
from ringloop.quic.packet import (
    QuicPacketType,
    QuicProtocolVersion,
    QuicTransportParameters,
    decode_transport_parameters,
    encode_quic_version_negotiation,
    pretty_protocol_version,
    pull_quic_header,
)

# RFC 9000, A.1.
EXAMPLES = {
    151288809941952652: "c2197c5eff14e88c",
    494878333: "9d7f3e7d",
    15293: "7bbd",
    37: "25",
}


@pytest.mark.parametrize(("value", "encoded"), EXAMPLES.items())
def test_variable_length_integers_are_those_of_the_rfc(value: int, encoded: str) -> None:
    assert encode_uint_var(value).hex() == encoded
    assert size_uint_var(value) == len(encoded) // 2
    buf = Buffer(data=bytes.fromhex(encoded))
    assert buf.pull_uint_var() == value
    assert buf.eof()


def test_a_longer_form_than_needed_is_read_too() -> None:
    assert Buffer(data=bytes.fromhex("4025")).pull_uint_var() == 37


@pytest.mark.parametrize("value", [-1, UINT_VAR_MAX + 1])
def test_numbers_that_do_not_fit_are_refused(value: int) -> None:
    with pytest.raises(ValueError):
        encode_uint_var(value)
    with pytest.raises(ValueError):
        Buffer(capacity=16).push_uint_var(value)


def test_buffer_reads_what_was_written() -> None:
    buf = Buffer(capacity=32)
    buf.push_uint8(1)
    buf.push_uint16(2)
    buf.push_uint32(3)
    buf.push_uint64(4)
    buf.push_bytes(memoryview(b"bytes"))
    buf.push_uint_var(16384)
    assert buf.tell() == len(buf.data) == 24
    again = Buffer(data=buf.data)
    numbers = (again.pull_uint8(), again.pull_uint16(), again.pull_uint32(), again.pull_uint64())
    assert numbers == (1, 2, 3, 4)
    assert again.pull_bytes(5) == b"bytes"
    assert again.pull_uint_var() == 16384
    assert again.eof()


def test_nothing_is_read_or_written_out_of_bounds() -> None:
    buf = Buffer(data=b"\x80\x00")
    for read in (buf.pull_uint32, buf.pull_uint64, buf.pull_uint_var):
        with pytest.raises(BufferReadError):
            read()
    for length in (3, -1):
        with pytest.raises(BufferReadError):
            buf.pull_bytes(length)
    for where in (3, -1):
        with pytest.raises(BufferReadError):
            buf.seek(where)
    for start, end in ((1, 0), (0, 3), (-1, 1)):
        with pytest.raises(BufferReadError):
            buf.data_slice(start, end)
    assert buf.tell() == 0
    buf.seek(2)
    with pytest.raises(BufferReadError):
        buf.pull_uint_var()
    with pytest.raises(BufferWriteError):
        buf.push_uint8(1)


def initial(version: int, kind: int) -> bytes:
    head = bytes([0xC0 | kind << 4]) + version.to_bytes(4, "big")
    return head + b"\x02\x01\x02\x01\x09" + b"\x03tok" + b"\x40\x20" + bytes(32)


@pytest.mark.parametrize(("version", "kind"), [(1, 0), (0x6B3343CF, 1)])
def test_an_initial_packet_of_each_version(version: int, kind: int) -> None:
    buf = Buffer(data=initial(version, kind) + b"more")
    header = pull_quic_header(buf, host_cid_length=8)
    assert header.version == version
    assert header.packet_type is QuicPacketType.INITIAL
    assert header.packet_length == len(initial(version, kind))
    assert (header.destination_cid, header.source_cid, header.token) == (b"\1\2", b"\x09", b"tok")


def test_truncated_packet_is_a_value_error() -> None:
    packet = initial(1, 0)
    for end in range(len(packet)):
        with pytest.raises(ValueError):
            pull_quic_header(Buffer(data=packet[:end]), host_cid_length=8)


def test_short_headers_need_the_length_of_the_id() -> None:
    packet = b"\x40" + b"12345678" + bytes(20)
    header = pull_quic_header(Buffer(data=packet), host_cid_length=8)
    assert header.packet_type is QuicPacketType.ONE_RTT
    assert header.destination_cid == b"12345678"
    assert header.version is None
    with pytest.raises(ValueError, match="host_cid_length"):
        pull_quic_header(Buffer(data=packet))
    with pytest.raises(ValueError, match="fixed bit"):
        pull_quic_header(Buffer(data=b"\x00" + packet[1:]), host_cid_length=8)


def test_a_retry_packet_shows_its_token_and_tag() -> None:
    packet = b"\xf0\x00\x00\x00\x01\x00\x01\x07" + b"token" + bytes(range(16))
    header = pull_quic_header(Buffer(data=packet))
    assert header.packet_type is QuicPacketType.RETRY
    assert (header.token, header.integrity_tag) == (b"token", bytes(range(16)))


def test_a_version_negotiation_is_read_as_it_was_written() -> None:
    packet = encode_quic_version_negotiation(b"source", b"destination", [1, 0x6B3343CF])
    header = pull_quic_header(Buffer(data=packet))
    assert header.packet_type is QuicPacketType.VERSION_NEGOTIATION
    assert header.version == QuicProtocolVersion.NEGOTIATION
    assert header.supported_versions == [1, 0x6B3343CF]
    assert (header.source_cid, header.destination_cid) == (b"source", b"destination")
    assert header.packet_length == len(packet)


def test_unknown_transport_parameters_are_ignored() -> None:
    encoded = bytes.fromhex("0008") + b"original" + bytes.fromhex("04048000ffff 0c00 7fff0142")
    assert decode_transport_parameters(encoded) == QuicTransportParameters(
        original_destination_connection_id=b"original",
        initial_max_data=0xFFFF,
        disable_active_migration=True,
    )
    with pytest.raises(ValueError):
        decode_transport_parameters(encoded[:-1])


def test_versions_have_names() -> None:
    assert pretty_protocol_version(1) == "0x00000001 (VERSION_1)"
    assert pretty_protocol_version(7) == "0x00000007 (UNKNOWN)"
