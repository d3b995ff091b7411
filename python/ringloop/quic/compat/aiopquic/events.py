"""What has happened to a connection, the events of `ringloop.quic.events`; and to a session."""

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
    """What events of sessions are; the native class takes no fields."""

    def __new__(cls, *_fields: Any, **_named: Any) -> Self:
        return super().__new__(cls)


@dataclass
class WebTransportSessionReady(_Event):
    """Does not come, as in aiopquic: `open` returns then."""


@dataclass
class WebTransportSessionRefused(_Event):
    """The server does not want the session."""

    error_code: int = 0
    """The status of its answer."""


@dataclass
class WebTransportSessionClosed(_Event):
    """The session is over."""

    error_code: int = 0
    """The code that it was closed with."""
    reason: memoryview = _NOTHING
    """And the reason."""


@dataclass
class WebTransportSessionDraining(_Event):
    """The peer asks for the session's end."""


@dataclass
class WebTransportStreamDataReceived(_Event):
    """Bytes of a stream have come, or its end."""

    stream_id: int = 0
    """The stream's number."""
    data: memoryview = _NOTHING
    """The next bytes of the stream, in order; may be empty at its end."""
    end_stream: bool = False
    """Whether these are the last ones."""


@dataclass
class WebTransportStreamReset(_Event):
    """The peer gave up sending on a stream, or the session is over."""

    stream_id: int = 0
    """The stream's number."""
    error_code: int = 0
    """The program's code; `WT_SESSION_GONE` where the session is over."""


@dataclass
class WebTransportStopSending(_Event):
    """The peer does not want to receive a stream."""

    stream_id: int = 0
    """The stream's number."""
    error_code: int = 0
    """The program's code."""


@dataclass
class WebTransportDatagramReceived(_Event):
    """A datagram has come."""

    data: memoryview = _NOTHING
    """What it carries."""


@dataclass
class WebTransportNewStream(_Event):
    """The peer has opened a stream."""

    stream_id: int = 0
    """The stream's number."""
