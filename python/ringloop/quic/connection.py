"""A connection without I/O, in the shape of `aioquic.quic.connection`.

Owns: one connection of a native endpoint, and requests made before it existed.
Called by: `asyncio`, and programs with their own sockets and clocks (dnspython, hypercorn,
urllib3-future do). Never does: send, wait, read a clock (`now` is an argument).

One turn of its driver::

    receive_datagram(data, addr, now)*     received datagrams
    handle_timer(now)                      if get_timer() has passed
    next_event()*                          events; read, write, open, close
    datagrams_to_send(now)                 datagrams to send
    get_timer()                            the deadline of the next turn

Writes never raise while the window has space; beyond it `tx_max_queued_bytes` limits them. The windows
limit what the peer sends, and credit is returned as events are taken: a program that takes none stops
the peer.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ringloop._native import quic as _quic
from ringloop.quic import events
from ringloop.quic._connection_facts import ConnectionFacts
from ringloop.quic._connection_state import (
    QuicConnectionError,
    QuicConnectionState,
    TlsState,
    check_arguments,
    stream_is_client_initiated,
    stream_is_unidirectional,
)
from ringloop.quic.errors import ConnectionClosed, StreamClosedError, StreamStoppedError
from ringloop.quic.packet import (
    QuicErrorCode,
    QuicTransportParameters,
)

if TYPE_CHECKING:
    import weakref
    from collections.abc import Iterable

    from ringloop.quic.configuration import QuicConfiguration
    from ringloop.quic.h3.connection import H3Connection
    from ringloop.quic.logger import QuicLoggerTrace
    from ringloop.quic.tls import SessionTicketFetcher, SessionTicketHandler

__all__ = [
    "NetworkAddress",
    "QuicConnection",
    "QuicConnectionError",
    "QuicConnectionState",
    "QuicErrorCode",
    "QuicTokenHandler",
    "stream_is_client_initiated",
    "stream_is_unidirectional",
]

NetworkAddress = Any
"""asyncio's tuples: (host, port), or (host, port, flow, scope)."""

_Call = tuple[str, tuple[Any, ...]]
BytesLike = bytes | bytearray | memoryview

QuicTokenHandler = Callable[[bytes], None]


_log = logging.getLogger("ringloop.quic")

_STOPPED_MAX = 1024
"""Stopped streams that are remembered, so that writing to them is not an error."""
_KEY_UPDATE_PING = (1 << 64) - 1
_CHANGE_ID_PING = (1 << 64) - 2
_AFTER_PING: dict[int, str] = {
    _KEY_UPDATE_PING: "request_key_update",
    _CHANGE_ID_PING: "change_connection_id",
}
"""Calls deferred until the handshake is confirmed, by the number of the ping each waits for."""


class QuicConnection(ConnectionFacts):
    """One connection, without I/O; see the module docstring.

    Clients: `connect`. Servers: `original_destination_connection_id` is that of the client's first
    packet (`packet.pull_quic_header`), and the packet then goes to `receive_datagram`.
    """

    _http: weakref.ref[H3Connection] | None = None
    """HTTP/3 on this connection, which is notified of the program's resets and stops."""

    def __init__(
        self,
        *,
        configuration: QuicConfiguration,
        original_destination_connection_id: bytes | None = None,
        retry_source_connection_id: bytes | None = None,
        session_ticket_fetcher: SessionTicketFetcher | None = None,
        session_ticket_handler: SessionTicketHandler | None = None,
        token_handler: QuicTokenHandler | None = None,
    ) -> None:
        original = original_destination_connection_id
        check_arguments(configuration, original, retry_source_connection_id, token_handler)
        self._configuration = configuration
        self._is_client = configuration.is_client
        self._ticket_handler = session_ticket_handler
        self._token_handler = token_handler
        self._issues_early_data = not self._is_client and (
            session_ticket_fetcher is not None or session_ticket_handler is not None
        )
        self.host_cid = configuration.new_connection_id()
        """The connection id that the peer uses first."""
        self._original = os.urandom(8) if original is None else original
        self.tls = TlsState(self)
        # HTTP/3 layers look it up when they are made, and log to it.
        self._quic_logger: QuicLoggerTrace | None = None
        if self._is_client and configuration.quic_logger is not None:
            self._quic_logger = configuration.quic_logger.start_trace(True, self._original)
        self._memory: Any = None
        self._endpoint: Any = None
        self._native: Any = None
        self._driver: Any = None
        self._events: deque[events.QuicEvent] = deque()
        # Requests made before the connection existed, requests deferred until the handshake, and early
        # data to repeat if the server refuses it.
        self._early: list[_Call] = []
        self._held: list[_Call] | None = []
        self._said: list[_Call] | None = None
        # Streams that the peer has stopped: writes to them are dropped.
        self._stopped: dict[int, None] = {}
        self._unsent_at: float | None = None
        # The program has requested a transmission.
        self._is_due = False
        self._early_ids = [0 if self._is_client else 1, 2 if self._is_client else 3]
        self._peer_parameters: QuicTransportParameters | None = None
        if not self._is_client:
            self._endpoint = _quic.Endpoint(
                server=configuration.server_config(
                    early_data=self._issues_early_data, probes=False
                ),
                events=True,
                versions=tuple(configuration.supported_versions),
                connection_id=self.host_cid,
            )

    @classmethod
    def _let_in(
        cls, configuration: QuicConfiguration, endpoint: Any, key: int, driver: Any
    ) -> QuicConnection:
        """Adopt a connection that a server's endpoint has accepted."""
        self = cls.__new__(cls)
        self._prepare(configuration, driver)
        ids = _quic.EventConnection(endpoint, key).ids()
        self.host_cid, self._original = ids or (b"", b"")
        self._bind(endpoint, key)
        return self

    def _prepare(self, configuration: QuicConfiguration, driver: Any) -> None:
        """Wrap a server's connection whose first packet has not arrived."""
        self._configuration = configuration
        self._is_client = False
        self._ticket_handler = self._token_handler = None
        self._issues_early_data = False
        self.host_cid = self._original = b""
        self.tls = TlsState(self)
        self._quic_logger = None
        self._memory = self._endpoint = self._native = None
        self._driver = driver
        self._events = deque()
        self._early, self._held, self._said = [], [], None
        self._stopped = {}
        self._unsent_at = None
        self._is_due = False
        self._early_ids = [1, 3]
        self._peer_parameters = None

    # --- the turn ---

    def connect(self, addr: NetworkAddress, now: float) -> None:
        """Start the handshake with the server at `addr`; for clients, once."""
        if not self._is_client or self._native is not None:
            raise RuntimeError("connect() can only be called for clients and a single time")
        configuration = self._configuration
        self._memory = configuration.memory()
        if self._endpoint is None:
            self._endpoint = _quic.Endpoint(
                events=True,
                versions=tuple(configuration.supported_versions),
                connection_id=self.host_cid,
            )
        config = configuration.client_config(probes=self._driver is not None)
        config = config._with_memory(self._memory, self._original)
        name = configuration.server_name or addr[0]
        key = self._endpoint.connect(config, addr, name, now)
        self._unsent_at = now
        if (
            configuration.session_ticket is not None
            or configuration.session_ticket_file is not None
        ):
            self._said = []
        self._bind(self._endpoint, key)

    def _bind(self, endpoint: Any, key: int) -> None:
        self._endpoint = endpoint
        self._native = _quic.EventConnection(endpoint, key)
        self._native.set_queued_max(self._configuration.tx_max_queued_bytes)
        logger = self._configuration.quic_logger
        if logger is not None and not self._is_client:
            # Under the native trace's name.
            _first, original = self._native.ids() or (b"", self._original)
            self._quic_logger = logger.start_trace(False, original)
        early, self._early = self._early, []
        self._repeat(early)

    def _attach(self, endpoint: Any, driver: Any) -> None:
        """Make `connect` use an endpoint with a socket, which `driver` drives."""
        self._endpoint, self._driver = endpoint, driver

    def _repeat(self, calls: list[_Call]) -> None:
        """Run deferred calls; an error is reported, and loses neither other calls nor an event."""
        for name, arguments in calls:
            try:
                getattr(self, name)(*arguments)
            except Exception as error:  # noqa: BLE001 (it is reported)
                self._report(f"{name}() failed, deferred until the handshake", error)

    def _report(self, message: str, error: BaseException) -> None:
        """Report an error without a receiver: to the loop that drives the connection, or to the log."""
        if self._driver is None:
            _log.error(message, exc_info=error)
        else:
            self._driver.loop.call_exception_handler({"message": message, "exception": error})

    def receive_datagram(self, data: bytes, addr: NetworkAddress, now: float) -> None:
        """Process a datagram received from `addr`."""
        endpoint = self._endpoint
        if endpoint is None:
            return
        endpoint.receive_datagram(data, addr, now)
        if self._native is None:
            self._accept()

    def receive_many_datagrams(
        self, datagrams: Iterable[bytes], addr: NetworkAddress, now: float
    ) -> None:
        """Process datagrams received from one address."""
        for data in datagrams:
            self.receive_datagram(data, addr, now)

    def _accept(self) -> None:
        news = self._endpoint.take()
        if news is not None and news[0]:
            # This is one connection: first packets of other clients are not accepted.
            self._endpoint.set_server(None)
            self._bind(self._endpoint, news[0][0])

    def datagrams_to_send(self, now: float) -> list[tuple[bytes, NetworkAddress]]:
        """Return the datagrams to send, with their destinations."""
        if self._endpoint is None or self._driver is not None:
            return []
        self._unsent_at = None
        datagrams: list[tuple[bytes, NetworkAddress]] = self._endpoint.datagrams_to_send(now)
        return datagrams

    def _flush(self) -> None:
        """Send pending data, if `asyncio` drives the connection.

        Resulting events are delivered in the loop's next pass, never before this returns.
        """
        self._is_due = False
        if self._driver is not None and not self._driver.is_closed:
            self._endpoint.send()

    def _flush_once(self) -> None:
        """Do the same, but once per pass of the loop; the rest is sent at the end of the pass.

        A thousand calls do not make a thousand datagrams. A call that discards written data sends it
        first.
        """
        self._is_due = True
        if self._driver is not None and not self._driver.is_closed:
            self._endpoint.send(once=True)

    def get_timer(self) -> float | None:
        """Return when to call `handle_timer`; valid right after `datagrams_to_send`."""
        if self._endpoint is None or self._driver is not None:
            return None
        # Programs wait for the timer before they send for the first time.
        if self._unsent_at is not None:
            return self._unsent_at
        timer: float | None = self._endpoint.next_timeout()
        return timer

    def handle_timer(self, now: float) -> None:
        """Process expired timers."""
        if self._endpoint is not None:
            self._endpoint.handle_timer(now)

    def next_event(self) -> events.QuicEvent | None:
        """Return the next event; stream bytes then become credit for the peer."""
        queue = self._events
        if not queue:
            if self._native is None:
                return None
            queue.extend(self._native.take_events())
            if self._memory is not None:
                self._hand_out()
            if not queue:
                return None
        event = queue.popleft()
        if isinstance(event, events.StreamDataReceived):
            return event
        if isinstance(event, events.PingAcknowledged) and event.uid in _AFTER_PING:
            getattr(self, _AFTER_PING[event.uid])()
            return self.next_event()
        self._note(event)
        return event

    def _note(self, event: events.QuicEvent) -> None:
        """Update this object's state by an event."""
        if isinstance(event, events.HandshakeCompleted):
            self._complete()
        elif isinstance(event, events.ConnectionTerminated):
            self._end_trace()
        elif isinstance(event, events.StopSendingReceived):
            self._stopped[event.stream_id] = None
            if len(self._stopped) > _STOPPED_MAX:
                del self._stopped[next(iter(self._stopped))]

    def _end_trace(self) -> None:
        trace, self._quic_logger = self._quic_logger, None
        if trace is None or (logger := self._configuration.quic_logger) is None:
            return
        try:
            logger.end_trace(trace)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 (it is reported, and the end of the connection is delivered)
            self._report("QuicLogger.end_trace() failed", error)

    def _complete(self) -> None:
        """Run the calls deferred until the handshake is complete."""
        held, self._held = self._held or [], None
        self._say_again()
        self._said = None
        self._repeat(held)

    def _say_again(self) -> None:
        """Repeat refused early data, before anything new is written.

        The server has dropped its streams: they are opened again under their numbers. A program may
        write at the handshake's first event, before its last event is taken.
        """
        if self._said is None:
            return
        try:
            is_rejected = self._native.early_data_rejected
        except ConnectionClosed:
            return
        if is_rejected:
            said, self._said = self._said, None
            self._repeat(said)

    def _hand_out(self) -> None:
        for ticket in self._memory.take_tickets():
            self.tls.session_ticket = ticket
            if self._ticket_handler is not None:
                self._tell(self._ticket_handler, ticket)
        for token in self._memory.take_tokens():
            if self._token_handler is not None:
                self._tell(self._token_handler, token)

    def _tell(self, handler: Callable[[Any], None], what: Any) -> None:
        """Call a program's function; its error loses no event."""
        try:
            handler(what)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 (it is reported)
            self._report("a handler of tickets or tokens failed", error)

    # --- streams ---

    def get_next_available_stream_id(self, is_unidirectional: bool = False) -> int:
        """Return the number of the next stream of this end; the first write opens it.

        A stream past the peer's limit waits for credit; its number is not lost.
        """
        return self._next_stream_id(is_unidirectional)

    def _next_stream_id(self, is_unidirectional: bool) -> int:
        if self._native is None:
            return self._early_ids[is_unidirectional]
        self._say_again()
        stream_id: int = self._native.next_stream_id(is_unidirectional)
        return stream_id

    def send_stream_data(self, stream_id: int, data: BytesLike, end_stream: bool = False) -> None:
        """Write to a stream, and finish it with `end_stream`. Data beyond the window is queued.

        Errors: BufferError if `tx_max_queued_bytes` are already queued; ValueError for a stream
        that only the peer may write to; StreamClosedError if it was finished or reset here, or
        does not exist. Does nothing if the peer has stopped the stream, or the connection has
        ended: an event reports that.
        """
        self._write(stream_id, data, end_stream)

    def _write(
        self, stream_id: int, data: BytesLike, end_stream: bool, *, bounded: bool = True
    ) -> None:
        """Write; unless `bounded`, ignore the limit on queued bytes."""
        if (native := self._native) is None:
            self._write_early(stream_id, data, end_stream)
            return
        self._say_again()
        try:
            native.send_stream_data(stream_id, data, end_stream, bounded)
            if self._said is not None:
                self._said.append(("send_stream_data", (stream_id, bytes(data), end_stream)))
        except (StreamStoppedError, ConnectionClosed):
            return  # an event reports it
        except StreamClosedError:
            if stream_id in self._stopped:
                return
            if not self._stream_can_send(stream_id):
                raise ValueError(
                    "Cannot send data on a stream that only the peer may write to"
                ) from None
            raise

    def _check_room(self) -> None:
        """Raise `BufferError` if `send_stream_data` would; for callers that make several writes."""
        count_max = self._configuration.tx_max_queued_bytes
        with suppress(ConnectionClosed):
            count = self.get_send_buffer_size()
            if count_max is not None and count and count >= count_max:
                raise BufferError(
                    "too much is queued already: wait until the peer has received some of it"
                )

    def _drops(self, stream_id: int) -> bool:
        """Whether writes to a stream are dropped: the peer stopped it, or the connection ended."""
        return stream_id in self._stopped or self._close_event is not None

    def _write_early(self, stream_id: int, data: BytesLike, end_stream: bool) -> None:
        own, unidirectional = not self._is_client, bool(stream_id & 2)
        if bool(stream_id & 1) != own:
            raise ValueError("Cannot write to a stream that the peer has not opened yet")
        ids = self._early_ids
        ids[unidirectional] = max(ids[unidirectional], stream_id + 4)
        self._early.append(("send_stream_data", (stream_id, bytes(data), end_stream)))

    def reset_stream(self, stream_id: int, error_code: int) -> None:
        """Abort sending on a stream; does nothing if already done, or if everything has arrived."""
        if self._is_due:
            self._flush()
        self._call("reset_stream", stream_id, error_code)
        if (http := self._http_above()) is not None:
            http._reset(stream_id, error_code)

    def stop_stream(self, stream_id: int, error_code: int) -> None:
        """Ask the peer to stop sending on a stream; received data is dropped.

        Errors: ValueError for a stream that the peer cannot send on. Does nothing if it has already
        ended.
        """
        if not self._stream_can_receive(stream_id):
            raise ValueError("Cannot stop receiving on a local-initiated unidirectional stream")
        self._call("stop_stream", stream_id, error_code)
        if (http := self._http_above()) is not None:
            http._stop(stream_id, error_code)

    def _http_above(self) -> H3Connection | None:
        return None if self._http is None else self._http()

    def set_stream_priority(self, stream_id: int, priority: int) -> None:
        """Send a stream before those of a lower priority; 0 by default."""
        self._call("set_stream_priority", stream_id, priority)

    def pause_stream(self, stream_id: int) -> None:
        """Pause a stream's events, so that its window closes; the other streams continue."""
        self._call("pause_stream", stream_id)

    def resume_stream(self, stream_id: int) -> None:
        """Resume a stream's events."""
        self._call("resume_stream", stream_id)

    def want_writable(self, stream_id: int) -> bool:
        """Make `take_writable` return a stream once its queue is empty; False if it already is."""
        try:
            return self._native is not None and self._native.want_writable(stream_id)
        except ConnectionClosed:
            return False

    def take_writable(self) -> list[int]:
        """Return the streams of `want_writable` whose queues are empty now."""
        if self._native is None:
            return []
        stream_ids: list[int] = self._native.take_writable()
        return stream_ids

    def get_send_buffer_size(self, stream_id: int | None = None) -> int:
        """Return how many bytes are queued past the send window, of one stream or of all."""
        if self._native is None:
            return 0
        size: int = (
            self._native.streams_queued
            if stream_id is None
            else self._native.stream_queued(stream_id)
        )
        return size

    def _stream_can_send(self, stream_id: int) -> bool:
        return not stream_is_unidirectional(stream_id) or self._is_own(stream_id)

    def _stream_can_receive(self, stream_id: int) -> bool:
        return not stream_is_unidirectional(stream_id) or not self._is_own(stream_id)

    def _is_own(self, stream_id: int) -> bool:
        return stream_is_client_initiated(stream_id) == self._is_client

    # --- the rest ---

    def send_datagram_frame(self, data: bytes) -> int:
        """Send a datagram; returns its length, or 0 if the buffer is full and it was not accepted.

        Does nothing, as with streams, if the connection has ended.

        Errors: `DatagramError` if the peer accepts none, or none of that length.
        """
        if self._held is not None:
            # Whether the peer accepts datagrams is not known before.
            self._held.append(("send_datagram_frame", (bytes(data),)))
            return len(data)
        try:
            return len(data) if self._native.send_datagram(data) else 0
        except ConnectionClosed:
            return 0  # an event reports it

    @property
    def max_datagram_payload(self) -> int | None:
        """Bytes of the longest datagram that may be sent now; `None`: the peer accepts none."""
        size: int | None = None if self._native is None else self._native.max_datagram_size
        return size

    def send_ping(self, uid: int) -> None:
        """Ping the peer; `PingAcknowledged` reports the acknowledgement."""
        self._call("ping", uid)

    def request_key_update(self) -> None:
        """Change the keys, once the handshake is confirmed (RFC 9001 §6.1)."""
        if not self._waits_for_confirmation(_KEY_UPDATE_PING):
            self._call("update_keys")

    def change_connection_id(self) -> None:
        """Switch to another of the peer's connection ids, and retire the current one.

        Once the handshake is confirmed: a client may not migrate earlier (RFC 9000 §9).
        """
        if not self._waits_for_confirmation(_CHANGE_ID_PING):
            self._call("local_address_changed")

    def _waits_for_confirmation(self, ping: int) -> bool:
        """Defer a call that is in `_AFTER_PING`, if it is too early for it."""
        if self._held is not None:
            self._held.append((_AFTER_PING[ping], ()))
            return True
        if self._state is QuicConnectionState.CONNECTED and not self._native.is_confirmed:
            # A ping is acknowledged after the confirmation.
            self.send_ping(ping)
            return True
        return False

    def close(
        self,
        error_code: int = QuicErrorCode.NO_ERROR,
        frame_type: int | None = None,  # noqa: ARG002 (aioquic's signature)
        reason_phrase: str = "",
    ) -> None:
        """Close the connection.

        `ConnectionTerminated` is the next event, and the next datagram notifies the peer, with an
        application code, whatever `frame_type` is.
        """
        self._call("close", int(error_code), reason_phrase)

    def _call(self, name: str, *arguments: Any) -> None:
        if self._native is None:
            self._early.append(("_call", (name, *arguments)))
            return
        try:
            getattr(self._native, name)(*arguments)
        except (StreamClosedError, StreamStoppedError, ConnectionClosed):
            return  # it is done, or no longer matters
