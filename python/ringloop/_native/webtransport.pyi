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
    """A session of WebTransport, by the number of the stream that carries it. There is one object
    of a session.
    """
    def __new__(cls, connection: _quic.Connection, session_id: int) -> Self: ...
    @property
    def connection(self) -> _quic.Connection:
        """The connection that it is on."""
    @property
    def session_id(self) -> int:
        """Its number in the connection: that of the stream that carries it."""
    @property
    def path(self) -> str:
        """The path and query that it was asked for at."""
    @property
    def authority(self) -> str:
        """The host and port that it was asked for at."""
    @property
    def headers(self) -> _Pairs:
        """The fields of the request, without the pseudo-header fields."""
    @property
    def response_headers(self) -> _Pairs | None:
        """Clients: the fields of the server's answer; None before it."""
    @property
    def status(self) -> int | None:
        """Clients: the status of the server's answer; None before it."""
    @property
    def protocol(self) -> str | None:
        """The sub-protocol that was agreed on, if any."""
    @property
    def is_draining(self) -> bool:
        """Whether the peer has asked for the end of the session: nothing new should begin in it."""
    @property
    def _is_pending(self) -> bool:
        """Clients: whether the server has not answered yet."""
    @property
    def _end(self) -> tuple[str, int, str, bool] | None:
        """How it ended: (what, code, reason, by the peer); None while it goes on. What: `closed`,
        `rejected`, `reset`, `failed`, `cancelled`, or `lost` with the connection.
        """
    @property
    def max_datagram_size(self) -> int:
        """Bytes of the longest datagram that can be sent now; it may become longer as the path is
        probed.
        """
    @property
    def dropped_datagrams(self) -> int:
        """Received datagrams that were dropped: too many were waiting."""
    def drain(self) -> None:
        """Ask the peer to finish with it; everything still works. Nothing happens where it is over."""
    def _waiter(self) -> _quic.Waiter:
        """What to await for a change of its state."""
    def _close(self, code: int, reason: str) -> None:
        """Close it with a code and a reason, of which 1024 bytes are sent. All its streams are
        reset: what must arrive is to be acknowledged before. Nothing happens where it is over.
        """
    def _cancel(self) -> None:
        """Give it up, without code and reason. Nothing happens where it is over."""
    def _open_stream(self, unidirectional: bool) -> int | None:
        """Open a stream; returns its number, None while the peer allows no more, and where the
        session is over.
        """
    def _open_waiter(self, unidirectional: bool) -> _quic.Waiter:
        """What to await for the moment when a stream may be opened."""
    def _take_stream(self, unidirectional: bool | None = None) -> int | None:
        """Take a stream that the peer has opened, of one kind or (None) of both: its number; None
        where there is none.
        """
    def _stream_waiter(self) -> _quic.Waiter:
        """What to await for a stream of the peer, or the end."""
    def _send_datagram(self, data: _Data) -> bool:
        """Send a datagram; False where the session is over. Past `datagram_send_buffer` the oldest
        are dropped.
        """
    def _take_datagram(self) -> bytes | None:
        """Take a datagram that has come; None where there is none."""
    def _datagram_waiter(self) -> _quic.Waiter:
        """What to await for a datagram, or the end."""

def host(endpoint: _quic.Endpoint, sessions_max: int, flow_control: _Flow = None) -> None:
    """Have the connections that an endpoint accepts take sessions, at most so many at a time.
    `flow_control`: bytes, bidirectional and unidirectional streams of each at first; None: no
    limits but QUIC's.
    """

def drive(connection: _quic.Connection, sessions_max: int, flow_control: _Flow = None) -> None:
    """Have a client's HTTP/3 driven natively, with sessions; as `ringloop._native.h3.drive`."""

def takes_session(connection: _quic.Connection) -> bool | None:
    """Whether the server takes a session now; None before its settings have come, and an error
    where it takes none.
    """

def open_session(
    connection: _quic.Connection,
    authority: str,
    path: str,
    headers: _Fields,
    protocols: Iterable[str],
) -> int | None:
    """Ask for a session on a new stream; returns its number, None while QUIC's peer allows no more
    streams.
    """

def accept(request: _h3.Exchange, headers: _Fields, protocol: str | None = None) -> None:
    """Accept the session that a request asks for, with status 200, further fields, and one of the
    sub-protocols that it offers. The request's stream is the session's then.
    """
