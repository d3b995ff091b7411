"""QUIC for asyncio: connections, streams and datagrams on any event loop."""

from __future__ import annotations

from ringloop._native.quic import ClientConfig, Handshake, ServerConfig, Stats
from ringloop.quic._certificate import CertificateFiles, make_certificate
from ringloop.quic._connect import connect, open_connection
from ringloop.quic._connection import Connection, Policy
from ringloop.quic._endpoint import Endpoint, EndpointStats, FailureCounts
from ringloop.quic._serve import serve
from ringloop.quic._stream import Stream
from ringloop.quic._workers import Worker, bind_workers
from ringloop.quic.errors import (
    ConfigurationError,
    ConnectError,
    ConnectionClosed,
    ConnectionClosedByPeer,
    DatagramError,
    EarlyDataRejected,
    HandshakeTimeout,
    IdleTimeout,
    QuicError,
    StatelessReset,
    StreamClosedError,
    StreamError,
    StreamResetError,
    StreamStoppedError,
    TlsError,
    TransportError,
    Unreachable,
    VersionMismatch,
)

__all__ = [
    "CertificateFiles",
    "ClientConfig",
    "ConfigurationError",
    "ConnectError",
    "Connection",
    "ConnectionClosed",
    "ConnectionClosedByPeer",
    "DatagramError",
    "EarlyDataRejected",
    "Endpoint",
    "EndpointStats",
    "FailureCounts",
    "Handshake",
    "HandshakeTimeout",
    "IdleTimeout",
    "Policy",
    "QuicError",
    "ServerConfig",
    "StatelessReset",
    "Stats",
    "Stream",
    "StreamClosedError",
    "StreamError",
    "StreamResetError",
    "StreamStoppedError",
    "TlsError",
    "TransportError",
    "Unreachable",
    "VersionMismatch",
    "Worker",
    "bind_workers",
    "connect",
    "make_certificate",
    "open_connection",
    "serve",
]
