"""Clients of HTTP/3 that a test writes byte by byte, over a connection of `ringloop.quic`."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ringloop import quic
from ringloop.quic.buffer import encode_uint_var
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from tests.support.tls import Certificates

# A control stream's type, and SETTINGS: datagrams, and WebTransport as of draft 02.
SETTINGS = b"\x00\x04" + b"\x07" + b"\x33\x01" + encode_uint_var(0x2B603742) + b"\x01"
NO_SETTINGS = b""


def frame(kind: int, payload: bytes = b"") -> bytes:
    return encode_uint_var(kind) + encode_uint_var(len(payload)) + payload


def number(value: int, bits: int, flags: int) -> bytes:
    """An integer with a prefix (RFC 7541 §5.1)."""
    full = (1 << bits) - 1
    if value < full:
        return bytes([flags | value])
    out, value = bytearray([flags | full]), value - full
    while value >= 128:
        out.append(value % 128 | 128)
        value //= 128
    return bytes([*out, value])


def headers(*fields: tuple[bytes, bytes]) -> bytes:
    """HEADERS without tables (RFC 9204 §4.5.6)."""
    lines = b"".join(
        number(len(name), 3, 0x20) + name + number(len(value), 7, 0) + value
        for name, value in fields
    )
    return frame(1, b"\0\0" + lines)


PLACE = ((b":scheme", b"https"), (b":authority", b"localhost"), (b":path", b"/"))
GET = headers((b":method", b"GET"), *PLACE)
POST = headers((b":method", b"POST"), *PLACE)
CONNECT = headers((b":method", b"CONNECT"), (b":protocol", b"webtransport"), *PLACE)


@asynccontextmanager
async def raw_client(
    certificates: Certificates, address: Any, settings: bytes = SETTINGS, **keywords: Any
) -> AsyncIterator[quic.Connection]:
    """Open a connection whose control stream starts so."""
    opening = quic.open_connection(
        *address[:2],
        alpn=["h3"],
        ca_file=certificates.authority,
        server_name="localhost",
        **keywords,
    )
    async with await within(opening) as connection:
        if settings:
            control = await within(connection.open_stream(unidirectional=True))
            control.write(settings)
            # Without a reference it would be finished, which no control stream may be.
            connection.control = control  # type: ignore[attr-defined]
        yield connection


async def asked(connection: quic.Connection, *parts: bytes, end: bool = False) -> quic.Stream:
    """Send the bytes of a request on a new stream."""
    stream = await within(connection.open_stream())
    for part in parts:
        stream.write(part)
    if end:
        stream.finish()
    return stream


async def closed(connection: quic.Connection) -> int | None:
    """Wait until the server has closed a connection; its code."""
    await within(connection.wait_closed())
    error = connection.error
    assert isinstance(error, quic.ConnectionClosedByPeer), error
    return error.code


def pieces(data: bytes, size: int) -> Iterable[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))
