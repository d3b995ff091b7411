from collections.abc import Iterable
from typing import Any, TypeAlias, final

__all__ = ["Connection"]

_Data: TypeAlias = bytes | bytearray | memoryview
_Violation: TypeAlias = tuple[int, str] | None
_Refusal: TypeAlias = tuple[str, str] | None

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
