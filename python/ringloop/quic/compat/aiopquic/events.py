"""What has happened to a connection: the events of `ringloop.quic.events`."""

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
]
