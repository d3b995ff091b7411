"""Events of an HTTP/3 connection, with the names and fields of `aioquic.h3.events`."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "DataReceived",
    "DatagramReceived",
    "H3Event",
    "Headers",
    "HeadersReceived",
    "PushPromiseReceived",
    "WebTransportStreamDataReceived",
]

Headers = list[tuple[bytes, bytes]]
"""Fields by name and value, in their order, pseudo-header fields first."""


class H3Event:
    """Base of all events."""


@dataclass
class HeadersReceived(H3Event):
    """A request, a response (interim ones as well), or trailers."""

    headers: Headers
    """The fields, as they came."""
    stream_id: int
    """The request's stream."""
    stream_ended: bool
    """Whether the message ends with them."""
    push_id: int | None = None
    """Always None: there are no pushes."""


@dataclass
class DataReceived(H3Event):
    """A part of a body, or its end."""

    data: bytes
    """The next bytes; empty for the end alone."""
    stream_id: int
    """The request's stream."""
    stream_ended: bool
    """Whether the message ends with them."""
    push_id: int | None = None
    """Always None: there are no pushes."""


@dataclass
class DatagramReceived(H3Event):
    """A datagram of a request (RFC 9297)."""

    data: bytes
    """The payload."""
    stream_id: int
    """The request's stream, which may not exist yet, or have ended."""


@dataclass
class WebTransportStreamDataReceived(H3Event):
    """Bytes of a stream of WebTransport, or its end."""

    data: bytes
    """The next bytes; empty for the end alone."""
    stream_id: int
    """The stream; bytes are sent on it by `QuicConnection.send_stream_data`."""
    stream_ended: bool
    """Whether the stream ends with them."""
    session_id: int
    """The stream of the session's request."""


@dataclass
class PushPromiseReceived(H3Event):
    """A server's push promise; never occurs, as pushes are not allowed."""

    headers: Headers
    """The request's fields."""
    push_id: int
    """The push's number."""
    stream_id: int
    """The stream of the request that it belongs to."""
