"""Events of connections, from `ringloop.quic.events`, and of sessions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from ringloop.quic.events import (
    ConnectionIdIssued,
    ConnectionIdRetired,
    ConnectionTerminated,
    DatagramFrameReceived,
    HandshakeCompleted,
    PingAcknowledged,
    ProtocolNegotiated,
    QuicEvent,
    StopSendingReceived,
    StreamDataReceived,
    StreamReset,
)

__all__ = [
    "ConnectionIdIssued",
    "ConnectionIdRetired",
    "ConnectionTerminated",
    "DatagramFrameReceived",
    "HandshakeCompleted",
    "PingAcknowledged",
    "ProtocolNegotiated",
    "QuicEvent",
    "StopSendingReceived",
    "StreamDataReceived",
    "StreamReset",
    "WebTransportDatagramReceived",
    "WebTransportNewStream",
    "WebTransportSessionClosed",
    "WebTransportSessionDraining",
    "WebTransportSessionReady",
    "WebTransportSessionRefused",
    "WebTransportStopSending",
    "WebTransportStreamDataReceived",
    "WebTransportStreamReset",
]

_NOTHING = memoryview(b"")


class _Event(QuicEvent):
    """Base of session events; the native class takes no fields."""

    def __new__(cls, *_fields: Any, **_named: Any) -> Self:
        return super().__new__(cls)


@dataclass
class WebTransportSessionReady(_Event):
    """Never occurs, as in aiopquic: `open` returns instead."""


@dataclass
class WebTransportSessionRefused(_Event):
    """The server refused the session."""

    error_code: int = 0
    """The status of its response."""


@dataclass
class WebTransportSessionClosed(_Event):
    """The session has ended."""

    error_code: int = 0
    """The code that it was closed with."""
    reason: memoryview = _NOTHING
    """The reason that it was closed with."""


@dataclass
class WebTransportSessionDraining(_Event):
    """The peer requests the session's end."""


@dataclass
class WebTransportStreamDataReceived(_Event):
    """Bytes of a stream, or its end, have arrived."""

    stream_id: int = 0
    """The stream's number."""
    data: memoryview = _NOTHING
    """The next bytes of the stream, in order; may be empty at its end."""
    end_stream: bool = False
    """Whether the stream ends with them."""


@dataclass
class WebTransportStreamReset(_Event):
    """The peer reset a stream, or the session has ended."""

    stream_id: int = 0
    """The stream's number."""
    error_code: int = 0
    """The program's code; `WT_SESSION_GONE` if the session has ended."""


@dataclass
class WebTransportStopSending(_Event):
    """The peer stopped receiving a stream."""

    stream_id: int = 0
    """The stream's number."""
    error_code: int = 0
    """The program's code."""


@dataclass
class WebTransportDatagramReceived(_Event):
    """A datagram has arrived."""

    data: memoryview = _NOTHING
    """The payload."""


@dataclass
class WebTransportNewStream(_Event):
    """The peer has opened a stream."""

    stream_id: int = 0
    """The stream's number."""
