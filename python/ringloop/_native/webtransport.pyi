from collections.abc import Iterable
from typing import Self, TypeAlias

from typing_extensions import disjoint_base

from ringloop._native import h3 as _h3
from ringloop._native import quic as _quic

__all__ = [
    "Session",
    "accept",
    "drive",
    "host",
    "open_session",
    "takes_session",
]

_Data: TypeAlias = bytes | bytearray | memoryview
_Fields: TypeAlias = Iterable[tuple[_Data, _Data]]
_Pairs: TypeAlias = list[tuple[bytes, bytes]]
_Flow: TypeAlias = tuple[int, int, int] | None

@disjoint_base
class Session:
    """A WebTransport session, by the number of the stream that carries it. Each session has one
    object.
    """
    def __new__(cls, connection: _quic.Connection, session_id: int) -> Self: ...
    @property
    def connection(self) -> _quic.Connection:
        """The session's connection."""
    @property
    def session_id(self) -> int:
        """Its number in the connection: that of its CONNECT stream."""
    @property
    def path(self) -> str:
        """The requested path and query."""
    @property
    def authority(self) -> str:
        """The requested host and port."""
    @property
    def headers(self) -> _Pairs:
        """The fields of the request, without the pseudo-header fields."""
    @property
    def response_headers(self) -> _Pairs | None:
        """Clients: the fields of the server's response; None before it."""
    @property
    def status(self) -> int | None:
        """Clients: the status of the server's response; None before it."""
    @property
    def protocol(self) -> str | None:
        """The negotiated sub-protocol, if any."""
    @property
    def is_draining(self) -> bool:
        """Whether the peer has requested the session's end: start nothing new in it."""
    @property
    def _is_pending(self) -> bool:
        """Clients: whether the server has not responded yet."""
    @property
    def _end(self) -> tuple[str, int, str, bool] | None:
        """How it ended: (what, code, reason, by the peer); None while it is open. What: `closed`,
        `rejected`, `reset`, `failed`, `cancelled`, or `lost` with the connection.
        """
    @property
    def max_datagram_size(self) -> int:
        """Bytes of the longest datagram that can be sent now; path probing may raise it."""
    @property
    def dropped_datagrams(self) -> int:
        """Received datagrams that were dropped: too many were waiting."""
    def drain(self) -> None:
        """Ask the peer to finish it; everything still works. Does nothing if it has ended."""
    def _waiter(self) -> _quic.Waiter:
        """The waiter for a change of its state."""
    def _close(self, code: int, reason: str) -> None:
        """Close it with a code and a reason, which is cut at 1024 bytes. Resets all its streams:
        wait for the acknowledgement of data that must arrive first. Does nothing if it has ended.
        """
    def _cancel(self) -> None:
        """Cancel it, without code and reason. Does nothing if it has ended."""
    def _open_stream(self, unidirectional: bool) -> int | None:
        """Open a stream; return its number, or None while the peer allows no more, and if the
        session has ended.
        """
    def _open_waiter(self, unidirectional: bool) -> _quic.Waiter:
        """The waiter for permission to open a stream."""
    def _take_stream(self, unidirectional: bool | None = None) -> int | None:
        """Accept a stream that the peer has opened, of one kind or (None) of both: its number; None
        if there is none.
        """
    def _stream_waiter(self) -> _quic.Waiter:
        """The waiter for a stream of the peer, or the end."""
    def _send_datagram(self, data: _Data) -> bool:
        """Send a datagram; False if the session has ended. Beyond `datagram_send_buffer` the oldest
        are dropped.
        """
    def _take_datagram(self) -> bytes | None:
        """Take a received datagram; None if there is none."""
    def _datagram_waiter(self) -> _quic.Waiter:
        """The waiter for a datagram, or the end."""

def host(endpoint: _quic.Endpoint, sessions_max: int, flow_control: _Flow = None) -> None:
    """Enable sessions on an endpoint's accepted connections, up to a number at a time.
    `flow_control`: initial limits of each on bytes, bidirectional and unidirectional streams; None:
    no limits but QUIC's.
    """

def drive(connection: _quic.Connection, sessions_max: int, flow_control: _Flow = None) -> None:
    """Drive a client's HTTP/3 natively, with sessions; as `ringloop._native.h3.drive`."""

def takes_session(connection: _quic.Connection) -> bool | None:
    """Whether the server accepts a session now; None before its settings have arrived. An error if
    it accepts none.
    """

def open_session(
    connection: _quic.Connection,
    authority: str,
    path: str,
    headers: _Fields,
    protocols: Iterable[str],
) -> int | None:
    """Request a session on a new stream; return its number, or None while the peer allows no more
    streams.
    """

def accept(request: _h3.Exchange, headers: _Fields, protocol: str | None = None) -> None:
    """Accept a requested session, with status 200, further fields, and one of the sub-protocols
    that the request offers. The request's stream then belongs to the session.
    """
