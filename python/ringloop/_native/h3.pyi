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
    """HTTP/3 for a QUIC connection that the caller drives. Field sections are ordered lists of
    (name, value) in bytes: checked on arrival, sent unchecked.
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
        """The local SETTINGS, by number."""
    def received_settings(self) -> dict[int, int] | None:
        """The peer's non-default SETTINGS; None until they arrive."""
    def receive(self, stream_id: int, data: bytes, end_stream: bool) -> _Violation:
        """Process received data of a stream; return None, or (code, reason) to close QUIC with."""
    def receive_reset(self, stream_id: int, error_code: int) -> _Violation:
        """Process `RESET_STREAM`; returns as `receive`."""
    def receive_stop(self, stream_id: int, error_code: int) -> _Violation:
        """Process `STOP_SENDING`; returns as `receive`."""
    def receive_datagram(self, data: bytes) -> _Violation:
        """Process a datagram; returns as `receive`."""
    def is_blocked(self, stream_id: int) -> bool:
        """Whether a stream waits for the peer's encoder: deliver no more of it until the event
        `unblocked`.
        """
    def send_request(
        self, stream_id: int, headers: Iterable[tuple[_Data, _Data]], end_stream: bool
    ) -> _Refusal:
        """Send a request on a new stream. Like the other methods, return None, or (kind, text) if
        nothing was sent.
        """
    def send_headers(
        self, stream_id: int, headers: Iterable[tuple[_Data, _Data]], end_stream: bool
    ) -> _Refusal:
        """Send a response, interim or final, or trailers, which end the message."""
    def send_data(self, stream_id: int, data: _Data, end_stream: bool) -> _Refusal:
        """Send a part of the body."""
    def reset(self, stream_id: int, error_code: int) -> None:
        """Record that the program has reset a stream."""
    def stop(self, stream_id: int, error_code: int) -> None:
        """Record that the program has stopped a stream."""
    @property
    def request_count(self) -> int:
        """The number of open requests."""
    def next_event(self) -> tuple[str, int, Any, bool, Any] | None:
        """Return the next event as (kind, stream, what, end of the stream, session); None if there
        is none.
        """
    def next_output(self) -> tuple[str, int, Any, bool] | None:
        """Return the next output for QUIC as (kind, stream, bytes or code, end of the stream); None
        if there is none.
        """

@disjoint_base
class Exchange:
    """A request and its response, by the number of their stream. Each exchange has one object."""
    def __new__(
        cls, connection: _quic.Connection, stream_id: int, has_ended: bool = False
    ) -> Self: ...
    @property
    def connection(self) -> _quic.Connection:
        """The exchange's connection."""
    @property
    def stream_id(self) -> int:
        """The number of its stream (RFC 9000 §2.1)."""
    @property
    def headers(self) -> _Pairs | None:
        """The fields of the request or the final response, without the pseudo-header fields; None
        before they arrive.
        """
    def header(self, name: str) -> str | None:
        """Return the value of a field, by its case-insensitive name; several lines are joined by ",
        " (RFC 9110 §5.3). None if there is none.
        """
    @property
    def method(self) -> str | None:
        """The request's method; None for a response, like the following properties."""
    @property
    def scheme(self) -> str | None:
        """The request's scheme; None for CONNECT."""
    @property
    def authority(self) -> str | None:
        """The request's host and port; None if only a field has them."""
    @property
    def path(self) -> str | None:
        """The request's path and query; None for CONNECT."""
    @property
    def protocol(self) -> str | None:
        """The protocol of an extended CONNECT (RFC 9220)."""
    @property
    def _offered_protocols(self) -> list[str]:
        """The sub-protocols that a request for a WebTransport session offers, the preferred first."""
    @property
    def status(self) -> int | None:
        """The final response's status; None before it arrives, and for a request."""
    @property
    def trailers(self) -> _Pairs | None:
        """The trailers; None if there are none, or not yet."""
    @property
    def is_read(self) -> bool:
        """Whether all of the peer's message was read."""
    @property
    def has_ended(self) -> bool:
        """Whether our message is complete, or was cancelled."""
    def take_interim(self) -> list[tuple[int, _Pairs]]:
        """Take the received interim responses (1xx): pairs of a status and fields."""
    def stop(self, code: int = 256) -> None:
        """Stop reading the peer's message (RFC 9114 §4.1.1). Does nothing if it is complete."""
    def send_headers(self, headers: _Fields, end: bool = False) -> None:
        """Send the fields of a response: interim ones (`:status` is 1xx), then the final one; or
        trailers, which end the message. `end` ends the message.
        """
    def send_trailers(self, trailers: _Fields) -> None:
        """Send trailers; they end the message, with the same error as `send` if the body is too
        short.
        """
    def send(self, data: _Data, end: bool = False) -> Awaitable[None]:
        """Send part of the body, the last one with `end`; await the result for space in the send
        window. `ValueError` if the body is longer than the `content-length` that was sent: nothing
        of `data` is sent; or shorter at its end: the exchange is cancelled (RFC 9114 §4.1.2).
        """
    def send_datagram(self, data: _Data) -> None:
        """Send a datagram of the exchange; a full queue drops its oldest ones."""
    def take_datagram(self) -> bytes | None:
        """Take a received datagram; None if there is none. Beyond 256 KiB the oldest are dropped."""
    def _datagram_waiter(self) -> _quic.Waiter:
        """The waiter for a datagram."""
    def _end_waiter(self) -> _quic.Waiter:
        """The waiter for the acknowledgement of all sent data, or for a stop by the peer."""
    def _send_priority(self, urgency: int, incremental: bool) -> None:
        """Change the priority of a client's request (RFC 9218 §7.1): `urgency` is 0 to 7, lowest
        first.
        """
    def cancel(self, code: int = 268) -> None:
        """Cancel both messages. Does nothing if they are complete."""
    def _scope(self, template: dict[str, Any]) -> dict[str, Any]:
        """Make the ASGI scope of the request: a copy of `template` with the request's own entries."""
    def _has_head(self) -> bool:
        """Whether the request or the final response has arrived; raises if it will not arrive."""
    def _take(self, count: int) -> bytes | None:
        """Read the received body, at most `count` bytes; `b""` at the end, None if there is no data
        now.
        """
    def _read_waiter(self) -> _quic.Waiter:
        """The waiter for more data."""
    def _drain_waiter(self) -> _quic.Waiter | None:
        """The waiter for space for all sent data; None if there is space."""

@disjoint_base
class AsgiRequest(Exchange):
    """A request that an ASGI application answers."""
    def __new__(
        cls,
        connection: _quic.Connection,
        stream_id: int,
        default_headers: _Pairs,
        logs_access: bool,
    ) -> Self: ...
    @property
    def _is_forwarded(self) -> bool:
        """Whether a proxy has added fields about its client, such as `x-forwarded-for`."""
    @property
    def _phase(self) -> str:
        """What the application must send next: "start", "body", "trailers", or nothing: "complete"."""
    def _complete(self) -> None:
        """Mark the response as complete."""
    def _receive(self) -> dict[str, Any] | None:
        """The next message with a part of the request's body; None if none has arrived."""
    def _send(self, message: dict[str, Any]) -> Awaitable[None] | None:
        """Process a message of the application. Return None, or an awaitable: for space in the send
        window, or that of `_send_other`, which then processes the message.
        """

def drive(connection: _quic.Connection) -> None:
    """Drive a connection's HTTP/3 natively once its handshake has negotiated it; call before the
    handshake is complete.
    """

def open_exchange(connection: _quic.Connection, headers: _Fields, end: bool = False) -> int | None:
    """Send a request on a new stream; return its number, or None during the handshake and while the
    peer allows no more.
    """

def take_ready(connection: _quic.Connection) -> list[int]:
    """Take the received requests: the numbers of their streams."""

def go_away(connection: _quic.Connection, announce: bool = False) -> None:
    """Accept no further requests: GOAWAY (RFC 9114 §5.2). With `announce` it sets no limit yet:
    requests in flight are accepted.
    """

def is_going_away(connection: _quic.Connection) -> bool:
    """Whether the peer accepts no more requests on the connection."""

def request_count(connection: _quic.Connection) -> int:
    """The number of incomplete exchanges of the connection."""

def kept(connection: _quic.Connection) -> list[int]:
    """Count the entries of the connection's HTTP/3 tables, in a fixed order, for leak tests."""

def unacknowledged_count(connection: _quic.Connection) -> int:
    """Count our messages that the peer has not acknowledged to their end."""
