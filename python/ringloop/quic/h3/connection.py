"""HTTP/3 without I/O, in the shape of `aioquic.h3.connection`.

Owns: which streams belong to WebTransport; the rest of HTTP/3 is native (`crates/ringloop-h3`). Called
by: programs, with each event of a `QuicConnection`. Never does: transmit; data to be sent is written
to the `QuicConnection`, whose driver transmits it.
"""

from __future__ import annotations

import weakref
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from ringloop._native import h3 as _h3
from ringloop.quic.buffer import encode_uint_var
from ringloop.quic.errors import ConnectionClosed, StreamClosedError
from ringloop.quic.events import (
    DatagramFrameReceived,
    StopSendingReceived,
    StreamDataReceived,
    StreamReset,
)
from ringloop.quic.h3.events import (
    DatagramReceived,
    DataReceived,
    H3Event,
    Headers,
    HeadersReceived,
    PushPromiseReceived,
    WebTransportStreamDataReceived,
)
from ringloop.quic.h3.exceptions import H3Error, InvalidStreamTypeError, NoAvailablePushIDError

if TYPE_CHECKING:
    from ringloop.quic.connection import BytesLike, QuicConnection
    from ringloop.quic.events import QuicEvent

__all__ = [
    "H3_ALPN",
    "DataReceived",
    "DatagramReceived",
    "ErrorCode",
    "FrameType",
    "FrameUnexpected",
    "H3Connection",
    "H3Event",
    "Headers",
    "HeadersReceived",
    "InvalidStreamTypeError",
    "NoAvailablePushIDError",
    "ProtocolError",
    "PushPromiseReceived",
    "Setting",
    "StreamType",
    "WebTransportStreamDataReceived",
]

H3_ALPN: Final = ["h3"]
"""The name of HTTP/3 in ALPN (RFC 9114 §3.1)."""


class ErrorCode(IntEnum):
    """Codes of closes, resets and stops (RFC 9114 §8.1, RFC 9204 §6, RFC 9297 §5.2)."""

    H3_DATAGRAM_ERROR = 0x33
    H3_NO_ERROR = 0x100
    H3_GENERAL_PROTOCOL_ERROR = 0x101
    H3_INTERNAL_ERROR = 0x102
    H3_STREAM_CREATION_ERROR = 0x103
    H3_CLOSED_CRITICAL_STREAM = 0x104
    H3_FRAME_UNEXPECTED = 0x105
    H3_FRAME_ERROR = 0x106
    H3_EXCESSIVE_LOAD = 0x107
    H3_ID_ERROR = 0x108
    H3_SETTINGS_ERROR = 0x109
    H3_MISSING_SETTINGS = 0x10A
    H3_REQUEST_REJECTED = 0x10B
    H3_REQUEST_CANCELLED = 0x10C
    H3_REQUEST_INCOMPLETE = 0x10D
    H3_MESSAGE_ERROR = 0x10E
    H3_CONNECT_ERROR = 0x10F
    H3_VERSION_FALLBACK = 0x110
    QPACK_DECOMPRESSION_FAILED = 0x200
    QPACK_ENCODER_STREAM_ERROR = 0x201
    QPACK_DECODER_STREAM_ERROR = 0x202


class FrameType(IntEnum):
    """Types of frames (RFC 9114 §7.2), and the signal of a bidirectional stream of WebTransport."""

    DATA = 0x0
    HEADERS = 0x1
    CANCEL_PUSH = 0x3
    SETTINGS = 0x4
    PUSH_PROMISE = 0x5
    GOAWAY = 0x7
    MAX_PUSH_ID = 0xD
    WEBTRANSPORT_STREAM = 0x41


class Setting(IntEnum):
    """Numbers of settings."""

    QPACK_MAX_TABLE_CAPACITY = 0x1
    MAX_FIELD_SECTION_SIZE = 0x6
    QPACK_BLOCKED_STREAMS = 0x7
    ENABLE_CONNECT_PROTOCOL = 0x8
    H3_DATAGRAM = 0x33
    ENABLE_WEBTRANSPORT = 0x2B603742


class StreamType(IntEnum):
    """Types of unidirectional streams (RFC 9114 §6.2, RFC 9204 §4.2)."""

    CONTROL = 0
    PUSH = 1
    QPACK_ENCODER = 2
    QPACK_DECODER = 3
    WEBTRANSPORT = 0x54


class ProtocolError(Exception):
    """The program violates HTTP/3; violations by the peer close the connection instead."""

    error_code = ErrorCode.H3_GENERAL_PROTOCOL_ERROR

    def __init__(self, reason_phrase: str = "") -> None:
        super().__init__(reason_phrase)
        self.reason_phrase = reason_phrase


class FrameUnexpected(ProtocolError):  # noqa: N818 (aioquic's name)
    """Headers or data may not be sent on the stream now."""

    error_code = ErrorCode.H3_FRAME_UNEXPECTED


_STOPPED_MAX = 1024
"""Maximum number of streams with undelivered events."""
_OWN_BYTES_MAX = 256 << 10
"""Bytes for the control and QPACK streams that may wait for credit: a peer that gives none asks on."""
_ENDS_CONNECTION = {ErrorCode.H3_MESSAGE_ERROR, ErrorCode.H3_EXCESSIVE_LOAD}
"""Stream errors of RFC 9114 that close the connection here: aioquic has no event for them."""


class H3Connection:
    """HTTP/3 on a `QuicConnection` of either role.

    `enable_webtransport` announces WebTransport (draft 02). Sessions are requests of the program's.
    """

    def __init__(self, quic: QuicConnection, enable_webtransport: bool = False) -> None:
        self._quic = quic
        self._is_client = quic.configuration.is_client
        self._is_done = False
        # Streams that were stopped here: their events that QUIC has already delivered are dropped.
        self._stopped: dict[int, None] = {}
        # The sessions of WebTransport streams that the peer has not ended.
        self._sessions: dict[int, int] = {}
        self._unsent: tuple[str, int, Any, bool] | None = None
        control = quic._next_stream_id(is_unidirectional=True)
        self._own = control, control + 4, control + 8
        self._core = _h3.Connection(
            is_client=self._is_client,
            control=self._own[0],
            encoder=self._own[1],
            decoder=self._own[2],
            datagrams=enable_webtransport or quic.configuration.max_datagram_frame_size is not None,
            webtransport=enable_webtransport,
        )
        quic._http = weakref.ref(self)
        self._flush()

    @property
    def received_settings(self) -> dict[int, int] | None:
        """The peer's non-default settings; None until received."""
        return self._core.received_settings()

    @property
    def sent_settings(self) -> dict[int, int]:
        """The settings of this end."""
        return self._core.sent_settings()

    # --- receiving ---

    def handle_event(self, event: QuicEvent) -> list[H3Event]:
        """Process the next event of the QUIC connection, and return the resulting HTTP/3 events.

        If the peer violates the protocol, QUIC is closed with the code of RFC 9114, and there are no
        more events.
        """
        if self._is_done:
            return []
        if isinstance(event, StreamDataReceived | StreamReset):
            beside = self._take_beside(event)
            if beside is not None:
                return beside
        violation = self._receive(event)
        events, failure = self._take_events(is_reset=isinstance(event, StreamReset))
        if (wrong := violation or failure) is not None:
            self._is_done = True
            self._quic.close(error_code=wrong[0], reason_phrase=wrong[1])
            return []
        self._flush()
        return events

    def _take_beside(self, event: StreamDataReceived | StreamReset) -> list[H3Event] | None:
        """Handle an event of a stream that is not HTTP/3's; None if it is HTTP/3's."""
        stream_id = event.stream_id
        if stream_id in self._stopped:
            return []
        if stream_id not in self._sessions:
            return None
        if isinstance(event, StreamDataReceived):
            return [self._of_session(stream_id, event.data, event.end_stream)]
        del self._sessions[stream_id]
        return []

    def _of_session(self, stream_id: int, data: bytes, ended: bool) -> H3Event:
        session_id = self._sessions.pop(stream_id) if ended else self._sessions[stream_id]
        return WebTransportStreamDataReceived(data, stream_id, ended, session_id)

    def _receive(self, event: QuicEvent) -> tuple[int, str] | None:
        """Pass an event to HTTP/3; returns why the connection has to be closed."""
        core = self._core
        if isinstance(event, StreamDataReceived):
            violation = core.receive(event.stream_id, event.data, event.end_stream)
            if core.is_blocked(event.stream_id):
                self._quic.pause_stream(event.stream_id)
            return violation
        if isinstance(event, DatagramFrameReceived):
            return core.receive_datagram(event.data)
        if isinstance(event, StreamReset):
            return core.receive_reset(event.stream_id, event.error_code)
        if isinstance(event, StopSendingReceived):
            return core.receive_stop(event.stream_id, event.error_code)
        return None

    def _take_events(self, *, is_reset: bool) -> tuple[list[H3Event], tuple[int, str] | None]:
        """Return the events, and why the connection has to be closed."""
        events: list[H3Event] = []
        failure = None
        for kind, stream_id, what, ended, number in iter(self._core.next_event, None):
            if kind == "data":
                events.append(DataReceived(what, stream_id, ended))
            elif kind == "headers":
                events.append(HeadersReceived(what, stream_id, ended))
            elif kind == "datagram":
                events.append(DatagramReceived(what, stream_id))
            elif kind == "webtransport":
                self._sessions[stream_id] = number
                if what or ended:
                    events.append(self._of_session(stream_id, what, ended))
            elif kind == "unblocked":
                self._quic.resume_stream(stream_id)
            elif kind == "failed" and number in _ENDS_CONNECTION:
                failure = number, what
            elif kind == "reset" and not is_reset:
                # By GOAWAY: no reset by the server can follow.
                self._quic._events.append(StreamReset(number, stream_id))
        return events, failure

    # --- sending ---

    def send_headers(self, stream_id: int, headers: Headers, end_stream: bool = False) -> None:
        """Send a request, a response, any number of interim ones before it, or trailers.

        A request needs the number of a new stream. Fields are sent unchanged, and trailers end the
        message. Does nothing if the peer has stopped the stream.

        Errors: `FrameUnexpected` if they are not allowed on the stream now; `H3Error` if the peer
        accepts no more requests, or no headers of this length; BufferError as with
        `QuicConnection.send_stream_data`.
        """
        self._quic._check_room()
        fields = list(headers)
        send = self._core.send_headers
        if self._is_client and stream_id >= self._quic._next_stream_id(is_unidirectional=False):
            send = self._core.send_request
        self._finish(stream_id, send(stream_id, fields, end_stream))

    def send_data(self, stream_id: int, data: BytesLike, end_stream: bool) -> None:
        """Send a part of a body. Does nothing if the peer has stopped the stream.

        Errors: `FrameUnexpected` before headers or after the end; BufferError as with
        `QuicConnection.send_stream_data`.
        """
        self._quic._check_room()
        self._finish(stream_id, self._core.send_data(stream_id, data, end_stream))

    def send_datagram(self, stream_id: int, data: BytesLike) -> None:
        """Send a datagram for a request.

        Errors: `InvalidStreamTypeError`; `DatagramError` as with `QuicConnection.send_datagram_frame`.
        """
        if stream_id % 4:
            raise InvalidStreamTypeError("Datagrams need a stream opened by the client")
        self._quic.send_datagram_frame(encode_uint_var(stream_id // 4) + bytes(data))

    def create_webtransport_stream(self, session_id: int, is_unidirectional: bool = False) -> int:
        """Open a stream of a session, and return its number for `QuicConnection.send_stream_data`."""
        stream_id = self._quic._next_stream_id(is_unidirectional)
        kind = StreamType.WEBTRANSPORT if is_unidirectional else FrameType.WEBTRANSPORT_STREAM
        self._quic.send_stream_data(stream_id, encode_uint_var(kind) + encode_uint_var(session_id))
        if not is_unidirectional:
            self._sessions[stream_id] = session_id
        return stream_id

    def send_push_promise(
        self,
        stream_id: int,
        headers: Headers,  # noqa: ARG002 (aioquic's signature)
    ) -> int:
        """Raise `NoAvailablePushIDError`, as if the client allowed no push: pushes are not supported."""
        if self._is_client:
            raise RuntimeError("Only a server may send a push promise")
        if stream_id % 4:
            raise InvalidStreamTypeError("Pushes need a stream opened by the client")
        raise NoAvailablePushIDError("Pushes are not supported")

    def _finish(self, stream_id: int, refusal: tuple[str, str] | None) -> None:
        """Pass the output to QUIC, or raise the error."""
        if refusal is None:
            self._flush()
            return
        kind, text = refusal
        if kind == "refused":
            raise H3Error(text)
        if kind == "unexpected" or not self._quic._drops(stream_id):
            raise FrameUnexpected(text)

    def _flush(self) -> None:
        while (output := self._unsent or self._core.next_output()) is not None:
            # If the next lines run out of memory, the same item is retried.
            self._unsent = output
            kind, stream_id, what, end_stream = output
            if kind == "data":
                with suppress(StreamClosedError):
                    self._quic._write(stream_id, what, end_stream, bounded=False)
                if stream_id in self._own:
                    self._check_credit(stream_id)
            elif kind == "reset":
                self._quic.reset_stream(stream_id, what)
            elif kind == "stop":
                self._quic.stop_stream(stream_id, what)
            else:
                self._quic.send_datagram_frame(what)
            self._unsent = None

    def _check_credit(self, stream_id: int) -> None:
        """Close the connection if too much waits on a stream of HTTP/3's own."""
        try:
            is_full = self._quic.get_send_buffer_size(stream_id) > _OWN_BYTES_MAX
        except ConnectionClosed:
            return  # an event reports it
        if is_full and not self._is_done:
            self._is_done = True
            reason = "no credit for the control and QPACK streams"
            self._quic.close(error_code=ErrorCode.H3_EXCESSIVE_LOAD, reason_phrase=reason)

    # `QuicConnection` calls these when the program ends a stream. The next call passes on the output.

    def _reset(self, stream_id: int, error_code: int) -> None:
        self._core.reset(stream_id, error_code)

    def _stop(self, stream_id: int, error_code: int) -> None:
        self._core.stop(stream_id, error_code)
        self._sessions.pop(stream_id, None)
        self._stopped[stream_id] = None
        if len(self._stopped) > _STOPPED_MAX:
            del self._stopped[next(iter(self._stopped))]
