"""Between a connection and a program on an asyncio loop.

Owns: `QuicConnectionProtocol`: the connection's events, the futures that wait for some of them, the
streams' readers and writers, and - if a program made the transport itself - sending and the
timer. Called by: `client`, `server`, programs that subclass it. Never does: look at packets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from ringloop.quic import events
from ringloop.quic.asyncio.stream import QuicStreamAdapter
from ringloop.quic.connection import QuicErrorCode
from ringloop.quic.errors import StreamResetError, StreamStoppedError

if TYPE_CHECKING:
    from ringloop.quic.connection import NetworkAddress, QuicConnection

QuicConnectionIdHandler = Callable[[bytes], None]
QuicStreamHandler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None] | None]

__all__ = ["QuicConnectionIdHandler", "QuicConnectionProtocol", "QuicStreamHandler"]


class QuicConnectionProtocol(asyncio.DatagramProtocol):
    """One connection's protocol; override `quic_event_received`.

    `connect` and `serve` make it. A program with a transport of its own gives it to
    `loop.create_datagram_endpoint` and calls `connect`; then datagrams go through that transport.
    """

    def __init__(
        self, quic: QuicConnection, stream_handler: QuicStreamHandler | None = None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._quic = quic
        self._stream_handler = stream_handler
        # Prefixed, as subclasses may use the plain names.
        self.__streams: dict[int, QuicStreamAdapter] = {}
        # The aborted ones, while events of them may still be queued.
        self.__aborted: list[int] = []
        self.__handlers: set[asyncio.Future[Any]] = set()
        self.__pings: dict[int, asyncio.Future[None]] = {}
        self._connected: asyncio.Future[None] = self._loop.create_future()
        self._connected.add_done_callback(_retrieve)
        self._closed = asyncio.Event()
        self._transport: asyncio.DatagramTransport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: float | None = None
        self._transmit_handle: asyncio.Handle | None = None
        self._process_handle: asyncio.Handle | None = None
        self._connection_id_issued_handler: QuicConnectionIdHandler | None = None
        self._connection_id_retired_handler: QuicConnectionIdHandler | None = None
        self._connection_terminated_handler: Callable[[], None] | None = None
        self._has_own_transmit = type(self).transmit is not QuicConnectionProtocol.transmit

    # --- for programs ---

    def quic_event_received(self, event: events.QuicEvent) -> None:
        """Handle an event; meant to be overridden. This one feeds the readers of streams."""
        if isinstance(event, events.StreamDataReceived):
            stream = self.__streams.get(event.stream_id)
            if stream is None:
                if self._closed.is_set():
                    return
                stream = self._stream_opened(event.stream_id)
            if stream.data_received(event.data, is_end=event.end_stream):
                self._forget_if_over(stream)
        elif isinstance(event, events.StreamReset):
            # A stream without a byte is not announced: there is nothing to read.
            if (stream := self.__streams.get(event.stream_id)) is not None:
                stream.reading_failed(StreamResetError(event.error_code))
                self._forget_if_over(stream)
        elif isinstance(event, events.StopSendingReceived):
            if (stream := self.__streams.get(event.stream_id)) is not None:
                stream.writing_failed(StreamStoppedError(event.error_code))
                self._forget_if_over(stream)
        elif isinstance(event, events.ConnectionTerminated):
            self._end_streams(event)

    def connect(self, addr: NetworkAddress, transmit: bool = True) -> None:
        """Start the handshake, for clients; without `transmit` early data may be written first."""
        self._quic.connect(addr, now=self._loop.time())
        if transmit:
            self.transmit()

    def close(self, error_code: int = QuicErrorCode.NO_ERROR, reason_phrase: str = "") -> None:
        """Close the connection with the program's code and reason."""
        self._quic.close(error_code=error_code, reason_phrase=reason_phrase)
        self._process_soon()
        self.transmit()

    async def aclose(
        self,
        error_code: int = QuicErrorCode.NO_ERROR,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> None:
        """Close the connection, and wait for that; no longer than `timeout` seconds."""
        self.close(error_code)
        try:
            async with asyncio.timeout(timeout):
                await self.wait_closed()
        except TimeoutError:
            pass

    async def create_stream(
        self, is_unidirectional: bool = False
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a stream; beyond the peer's limit its bytes, and `drain`, wait for credit.

        Errors: `ConnectionError` if the connection has ended.
        """
        if self._closed.is_set():
            raise ConnectionError("the connection is closed")
        stream_id = self._quic.get_next_available_stream_id(is_unidirectional)
        # The first write opens the stream, and two callers must not get the same number.
        self._quic.send_stream_data(stream_id, b"")
        stream = self.__streams[stream_id] = QuicStreamAdapter(self, stream_id)
        return stream.pair()

    def request_key_update(self) -> None:
        """Change the keys."""
        self._quic.request_key_update()
        self.transmit()

    def change_connection_id(self) -> None:
        """Switch to another of the peer's connection ids."""
        self._quic.change_connection_id()
        self.transmit()

    async def ping(self) -> None:
        """Wait until the peer has acknowledged a ping; ConnectionError if it cannot."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        waiter.add_done_callback(_retrieve)
        if self._closed.is_set():
            raise ConnectionError("the connection is closed")
        self.__pings[id(waiter)] = waiter
        self._quic.send_ping(id(waiter))
        self.transmit()
        await asyncio.shield(waiter)

    async def wait_created(self) -> None:
        """Do nothing: a connection exists as soon as its protocol does."""

    async def wait_connected(self) -> None:
        """Wait for the handshake; `ConnectionError` if the connection ends before."""
        await asyncio.shield(self._connected)

    async def wait_closed(self) -> None:
        """Wait until the connection has ended."""
        await self._closed.wait()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return "peername", the peer's address now; all other values are the transport's."""
        if name == "peername":
            return self._quic.get_peer_address() or default
        return default if self._transport is None else self._transport.get_extra_info(name, default)

    # --- between the transport and the connection ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: NetworkAddress) -> None:
        """Process a datagram from a transport that the program made."""
        self._quic.receive_datagram(data, addr, now=self._loop.time())
        self._process_events()
        self.transmit()

    def transmit(self) -> None:
        """Send pending data now; with `connect` and `serve` the loop does so itself, once per pass.

        There the first call of a pass sends at once, and later data is sent at the pass's end, or
        before a close or a reset that would discard it.

        An override is called as in aioquic: after events, and after writes to a stream. It has to
        call this one. It is not called for acknowledgements and timers, and the datagrams of
        `connect` and `serve` do not pass through it.
        """
        if self._transmit_handle is not None:
            self._transmit_handle.cancel()
            self._transmit_handle = None
        if self._quic._driver is not None:
            self._quic._flush_once()
            return
        if self._transport is None:
            return
        for data, addr in self._quic.datagrams_to_send(now=self._loop.time()):
            self._transport.sendto(data, addr)
        timer_at = self._quic.get_timer()
        if timer_at == self._timer_at and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if timer_at is not None:
            self._timer = self._loop.call_at(timer_at, self._handle_timer)
        self._timer_at = timer_at

    def _handle_timer(self) -> None:
        now = max(self._timer_at or 0.0, self._loop.time())
        self._timer = self._timer_at = None
        self._quic.handle_timer(now=now)
        self._process_events()
        self.transmit()

    def _events_came(self) -> None:
        self._process_events()
        if self._has_own_transmit:
            self.transmit()

    def _transmit_soon(self) -> None:
        is_asked = self._quic._driver is None or self._has_own_transmit
        if self._transmit_handle is None and is_asked:
            self._transmit_handle = self._loop.call_soon(self.transmit)

    def _process_soon(self) -> None:
        if self._process_handle is None:
            self._process_handle = self._loop.call_soon(self._process_now)

    def _process_now(self) -> None:
        self._process_handle = None
        self._process_events()
        # Reading has freed credit, which the peer may wait for.
        if self._quic._driver is None or self._has_own_transmit:
            self.transmit()
        if self._quic._driver is not None:
            self._quic._flush()

    def _process_events(self) -> None:
        quic = self._quic
        while (event := quic.next_event()) is not None:
            self._guarded("a handler of the connection's", self._note, event)
            self._guarded("quic_event_received()", self.quic_event_received, event)
        for stream_id in quic.take_writable():
            if (stream := self.__streams.get(stream_id)) is not None:
                stream.writable()
        while self.__aborted:
            self.__streams.pop(self.__aborted.pop(), None)

    def _guarded(
        self, name: str, function: Callable[[events.QuicEvent], None], event: events.QuicEvent
    ) -> None:
        """Call a program's function; its error stops neither the rest nor the endpoint.

        Nor does a CancelledError that it raises, as with the loop's own callbacks.
        """
        try:
            function(event)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 (it is reported)
            context = {"message": f"{name} failed", "exception": error, "protocol": self}
            self._loop.call_exception_handler(context)

    def _note(self, event: events.QuicEvent) -> None:
        """Do the work that overrides of `quic_event_received` need not do."""
        if isinstance(event, events.StreamDataReceived):
            return
        if isinstance(event, events.HandshakeCompleted):
            _resolve(self._connected)
        elif isinstance(event, events.PingAcknowledged):
            _resolve(self.__pings.pop(event.uid, None))
        elif isinstance(event, events.ConnectionIdIssued):
            if self._connection_id_issued_handler is not None:
                self._connection_id_issued_handler(event.connection_id)
        elif isinstance(event, events.ConnectionIdRetired):
            if self._connection_id_retired_handler is not None:
                self._connection_id_retired_handler(event.connection_id)
        elif isinstance(event, events.ConnectionTerminated):
            self._terminated(event)

    def _terminated(self, event: events.ConnectionTerminated) -> None:
        error = self._error_of(event)
        waiters = [self._connected, *self.__pings.values()]
        self.__pings.clear()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)
                # The loop may end before its callbacks run.
                waiter.exception()
        # Callers of drain() would wait for ever; aioquic's writers never wait. The event ends readers.
        for stream in self.__streams.values():
            stream.writing_failed(error)
        self._closed.set()
        if self._connection_terminated_handler is not None:
            self._connection_terminated_handler()

    def _error_of(self, event: events.ConnectionTerminated) -> ConnectionError:
        end = self._quic._end()
        # The application's close is described in aioquic's words.
        is_said = end is None or (end.is_application and not end.in_handshake)
        return _connection_error(event) if end is None or is_said else end

    # --- streams ---

    def _stream_opened(self, stream_id: int) -> QuicStreamAdapter:
        stream = self.__streams[stream_id] = QuicStreamAdapter(self, stream_id)
        if self._stream_handler is not None:
            handled = self._stream_handler(*stream.pair())
            if asyncio.iscoroutine(handled):
                task = self._loop.create_task(handled)
                self.__handlers.add(task)
                task.add_done_callback(self.__handlers.discard)
        return stream

    def _forget_if_over(self, stream: QuicStreamAdapter) -> None:
        if stream.is_over() and stream.stream_id not in self.__aborted:
            self.__streams.pop(stream.stream_id, None)

    def _forget_soon(self, stream: QuicStreamAdapter) -> None:
        """Forget an aborted stream, once its queued events were delivered."""
        self.__aborted.append(stream.stream_id)
        self._process_soon()

    def _end_streams(self, event: events.ConnectionTerminated) -> None:
        streams, self.__streams = self.__streams, {}
        error = self._error_of(event)
        is_clean = event.error_code == 0
        for stream in streams.values():
            if is_clean:
                stream.data_received(b"", is_end=True)
            else:
                stream.reading_failed(error)
            stream.writing_failed(error)


def _resolve(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


def _connection_error(event: events.ConnectionTerminated) -> ConnectionError:
    space = "application" if event.frame_type is None else "transport"
    reason = f": {event.reason_phrase}" if event.reason_phrase else ""
    return ConnectionError(f"the connection ended with {space} error {event.error_code:#x}{reason}")


def _retrieve(future: asyncio.Future[None]) -> None:
    """Retrieve the exception, so that it is not logged."""
    if not future.cancelled():
        future.exception()
