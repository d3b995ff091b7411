"""aiopquic's configuration: its defaults and names.

Owns: what differs from `ringloop.quic.configuration`. Called by: programs, `connection`,
`webtransport`. Never does: leave a server unverified, unless `verify_mode` says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from ringloop.quic import configuration
from ringloop.quic._keywords import suggests
from ringloop.quic.logger import QuicFileLogger

__all__ = ["QuicConfiguration"]


@suggests
@dataclass
class QuicConfiguration(configuration.QuicConfiguration):
    """The configuration of connections."""

    idle_timeout: float | None = 30.0
    """Seconds of silence after which a connection is closed (the shorter of both ends')."""
    max_data: int = 16 << 20
    """Bytes that the peer may send ahead of the program, all streams together."""
    max_stream_data: int = 16 << 20
    """The same for one stream."""
    max_streams_bidi: int = 512
    """Bidirectional streams that the peer may have open at a time."""
    max_streams_uni: int = 512
    """Unidirectional streams that the peer may have open at a time."""
    max_datagram_frame_size: int | None = 65535
    """`None`: DATAGRAM frames are off; any number but 0: they are on."""
    stream_ring_cap: int = 4 << 20
    """Bytes per stream that may be queued past the send window; `send_stream_data` then raises
    `BufferError`."""
    tx_max_queued_bytes: int | None = None
    """The same for all streams together."""
    max_connections: int | None = 256
    """Servers: connections at a time; more are refused. `None`: no limit."""
    event_ring_capacity: int | None = None
    """Not used: events come from no other thread."""
    qlog_dir: str | None = None
    """Where to write the connections' traces."""

    def __post_init__(self) -> None:
        if self.qlog_dir is not None and self.quic_logger is None:
            self.quic_logger = QuicFileLogger(self.qlog_dir)
