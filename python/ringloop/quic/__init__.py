"""QUIC for asyncio: connections, streams and datagrams on any event loop."""

from __future__ import annotations

from ringloop._native.quic import ClientConfig, Handshake, ServerConfig, Stats
from ringloop.quic.errors import (
    ConfigurationError,
    ConnectError,
    ConnectionClosed,
    ConnectionClosedByPeer,
    DatagramError,
    EarlyDataRejected,
    IdleTimeout,
    QuicError,
    StatelessReset,
    StreamClosedError,
    StreamError,
    StreamResetError,
    StreamStoppedError,
    TlsError,
    TransportError,
    VersionMismatch,
)

__all__ = [
    "ClientConfig",
    "ConfigurationError",
    "ConnectError",
    "ConnectionClosed",
    "ConnectionClosedByPeer",
    "DatagramError",
    "EarlyDataRejected",
    "Handshake",
    "IdleTimeout",
    "QuicError",
    "ServerConfig",
    "StatelessReset",
    "Stats",
    "StreamClosedError",
    "StreamError",
    "StreamResetError",
    "StreamStoppedError",
    "TlsError",
    "TransportError",
    "VersionMismatch",
]
