from collections.abc import Awaitable, Iterable
from typing import Any, Self, TypeAlias, final

from typing_extensions import disjoint_base

from ringloop._native import quic as _quic

__all__ = [
    "AsgiRequest",
    "Connection",
    "Exchange",
    "drive",
    "go_away",
    "is_going_away",
    "kept",
    "open_exchange",
    "request_count",
    "take_ready",
    "unacknowledged_count",
]

_Data: TypeAlias = bytes | bytearray | memoryview
_Violation: TypeAlias = tuple[int, str] | None
_Refusal: TypeAlias = tuple[str, str] | None
_Fields: TypeAlias = Iterable[tuple[_Data, _Data]]
_Pairs: TypeAlias = list[tuple[bytes, bytes]]

@final
class Connection:
    """HTTP/3 beside a QUIC connection that the caller drives. Field sections are lists of (name,
    value) in bytes, in their order: checked on arrival, sent unchecked.
    """
    def __new__(
        cls,
        *,
        is_client: bool,
        control: int,
        encoder: int,
        decoder: int,
        datagrams: bool,
        webtransport: bool,
    ) -> Connection: ...
    def sent_settings(self) -> dict[int, int]:
        """The SETTINGS that are sent, by their numbers."""
    def received_settings(self) -> dict[int, int] | None:
        """The peer's, as far as they are not the default; None until they arrive."""
    def receive(self, stream_id: int, data: bytes, end_stream: bool) -> _Violation:
        """Take what has come on a stream; returns None, or (code, reason) to close QUIC with."""
    def receive_reset(self, stream_id: int, error_code: int) -> _Violation:
        """Take `RESET_STREAM`; returns as `receive`."""
    def receive_stop(self, stream_id: int, error_code: int) -> _Violation:
        """Take `STOP_SENDING`; returns as `receive`."""
    def receive_datagram(self, data: bytes) -> _Violation:
        """Take a datagram; returns as `receive`."""
    def is_blocked(self, stream_id: int) -> bool:
        """Whether a stream waits for the peer's encoder: nothing more of it should come until the
        event `unblocked`.
        """
    def send_request(
        self, stream_id: int, headers: Iterable[tuple[_Data, _Data]], end_stream: bool
    ) -> _Refusal:
        """Send a request on a new stream. Returns None, or (kind, text) where nothing was sent, as
        the other methods do.
        """
    def send_headers(
        self, stream_id: int, headers: Iterable[tuple[_Data, _Data]], end_stream: bool
    ) -> _Refusal:
        """Send a response, interim or final, or trailers, which end the message."""
    def send_data(self, stream_id: int, data: _Data, end_stream: bool) -> _Refusal:
        """Send a part of the body."""
    def reset(self, stream_id: int, error_code: int) -> None:
        """Take it that the program has reset a stream."""
    def stop(self, stream_id: int, error_code: int) -> None:
        """Take it that the program has stopped a stream."""
    @property
    def request_count(self) -> int:
        """The number of open requests."""
    def next_event(self) -> tuple[str, int, Any, bool, Any] | None:
        """Return the next event as (kind, stream, what, end of the stream, session); None where
        there is none.
        """
    def next_output(self) -> tuple[str, int, Any, bool] | None:
        """Return what QUIC has to send next as (kind, stream, bytes or code, end of the stream);
        None where there is nothing.
        """

@disjoint_base
class Exchange:
    """A request and its response, by the number of their stream. There is one object of an
    exchange.
    """
    def __new__(
        cls, connection: _quic.Connection, stream_id: int, has_ended: bool = False
    ) -> Self: ...
    @property
    def connection(self) -> _quic.Connection:
        """The connection that it is on."""
    @property
    def stream_id(self) -> int:
        """The number of its stream (RFC 9000 §2.1)."""
    @property
    def headers(self) -> _Pairs | None:
        """The fields of the request or the final response, without the pseudo-header fields; None
        before they have come.
        """
    def header(self, name: str) -> str | None:
        """Return the value of a field in any case of its name, of several lines joined by ", " (RFC
        9110 §5.3); None where there is none.
        """
    @property
    def method(self) -> str | None:
        """The request's method; None of a response, as with the others."""
    @property
    def scheme(self) -> str | None:
        """The request's scheme; None for CONNECT."""
    @property
    def authority(self) -> str | None:
        """The request's host and port; None where only a field has them."""
    @property
    def path(self) -> str | None:
        """The request's path and query; None for CONNECT."""
    @property
    def protocol(self) -> str | None:
        """The protocol of an extended CONNECT (RFC 9220)."""
    @property
    def _offered_protocols(self) -> list[str]:
        """The sub-protocols that a request for a session of WebTransport offers, the favourite
        first.
        """
    @property
    def status(self) -> int | None:
        """The final response's status; None before it has come, and of a request."""
    @property
    def trailers(self) -> _Pairs | None:
        """The fields behind the body; None where there are none, or not yet."""
    @property
    def is_read(self) -> bool:
        """Whether all of the peer's message was read."""
    @property
    def has_ended(self) -> bool:
        """Whether our message is complete, or was given up."""
    def take_interim(self) -> list[tuple[int, _Pairs]]:
        """Take the interim responses that have come (1xx): pairs of a status and fields."""
    def stop(self, code: int = 256) -> None:
        """Read no more of the peer's message (RFC 9114 §4.1.1). Nothing happens where it is
        complete.
        """
    def send_headers(self, headers: _Fields, end: bool = False) -> None:
        """Send the fields of a response: interim ones (`:status` is 1xx), then the final one; or
        trailers, which end the message. With `end`, nothing follows.
        """
    def send_trailers(self, trailers: _Fields) -> None:
        """Send the fields behind the body; they end the message."""
    def send(self, data: _Data, end: bool = False) -> Awaitable[None]:
        """Send part of the body, the last one with `end`; to be awaited for room in the send
        window.
        """
    def send_datagram(self, data: _Data) -> None:
        """Send a datagram that belongs to the exchange; the oldest of a full queue are dropped."""
    def take_datagram(self) -> bytes | None:
        """Take a datagram that has come; None where there is none. Past 256 KiB the oldest are
        dropped.
        """
    def _datagram_waiter(self) -> _quic.Waiter:
        """What to await for the moment when a datagram has come."""
    def _end_waiter(self) -> _quic.Waiter:
        """What to await for the moment when all that was sent has arrived, or the peer wants no
        more of it.
        """
    def _send_priority(self, urgency: int, incremental: bool) -> None:
        """Change the priority of a client's request (RFC 9218 §7.1): `urgency` is 0 to 7, least
        first.
        """
    def cancel(self, code: int = 268) -> None:
        """Give up both messages. Nothing happens where they are complete."""
    def _scope(self, template: dict[str, Any]) -> dict[str, Any]:
        """Make the scope of ASGI for the request: a copy of `template` with the request's own
        entries.
        """
    def _has_head(self) -> bool:
        """Whether the request or the final response has come; raises where it will not come."""
    def _take(self, count: int) -> bytes | None:
        """What has come of the body, at most `count` bytes; `b""` at the end, None where there is
        nothing now.
        """
    def _read_waiter(self) -> _quic.Waiter:
        """What to await for the moment when more has come."""
    def _drain_waiter(self) -> _quic.Waiter | None:
        """What to await for the moment when all that was sent has found room; None where it has."""

@disjoint_base
class AsgiRequest(Exchange):
    """A request that an application of ASGI answers."""
    def __new__(
        cls,
        connection: _quic.Connection,
        stream_id: int,
        default_headers: _Pairs,
        logs_access: bool,
    ) -> Self: ...
    @property
    def _is_forwarded(self) -> bool:
        """Whether a proxy has added fields about its client: `x-forwarded-for` and others."""
    @property
    def _phase(self) -> str:
        """What the application is to send next: "start", "body", "trailers", or nothing:
        "complete".
        """
    def _complete(self) -> None:
        """Nothing more is to be sent."""
    def _receive(self) -> dict[str, Any] | None:
        """The next message with a part of the request's body; None where none has come."""
    def _send(self, message: dict[str, Any]) -> Awaitable[None] | None:
        """Take a message of the application. Returns None, or what to await: for room in the send
        window, or of `_send_other`, which has to take the message.
        """

def drive(connection: _quic.Connection) -> None:
    """Have a connection's HTTP/3 driven natively once its handshake has agreed on it; before that
    is complete.
    """

def open_exchange(connection: _quic.Connection, headers: _Fields, end: bool = False) -> int | None:
    """Send a request on a new stream; returns its number, None while the handshake is under way or
    the peer allows no more.
    """

def take_ready(connection: _quic.Connection) -> list[int]:
    """Take the requests that have come: the numbers of their streams."""

def go_away(connection: _quic.Connection, announce: bool = False) -> None:
    """Accept no requests beyond those received: GOAWAY (RFC 9114 §5.2). With `announce` it sets no
    limit yet: requests that are under way are accepted.
    """

def is_going_away(connection: _quic.Connection) -> bool:
    """Whether the peer takes no more requests on the connection."""

def request_count(connection: _quic.Connection) -> int:
    """How many exchanges of the connection are not complete."""

def kept(connection: _quic.Connection) -> list[int]:
    """Count what the connection's HTTP/3 keeps, for tests of what remains: entries of its tables,
    in a fixed order.
    """

def unacknowledged_count(connection: _quic.Connection) -> int:
    """Count our messages that the peer has not acknowledged to their end."""
