"""aiopquic's WebTransport session: streams by number, events by iteration.

Owns: the streams of a session, and events not yet returned by `events`. Called by: `webtransport`.
Never does: read ahead; streams and datagrams stay in native code until requested.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ringloop.quic._stream import Stream
from ringloop.quic.buffer import encode_uint_var
from ringloop.quic.compat.aiopquic.events import (
    QuicEvent,
    WebTransportDatagramReceived,
    WebTransportNewStream,
    WebTransportSessionClosed,
    WebTransportSessionDraining,
    WebTransportStopSending,
    WebTransportStreamDataReceived,
    WebTransportStreamReset,
)
from ringloop.quic.errors import QuicError, StreamResetError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine

    from ringloop._native.quic import Waiter
    from ringloop.webtransport import Session

    _Data = bytes | bytearray | memoryview

__all__ = ["WT_SESSION_GONE", "WebTransportError", "WebTransportSession"]

WT_SESSION_GONE: Final = 0x170D7B68
"""The code of `WebTransportStreamReset` once the session has ended (draft-ietf-webtrans-http3 §9.5)."""

_READ_BYTES: Final = 1 << 16
_PRIORITY_MAX: Final = 255
# picoquic's default stream priority; lower ones send first there, higher ones here.
_PRIORITY_USUAL: Final = 9


class WebTransportError(ConnectionError):
    """The session cannot be used: it is closed, not open, refused or timed out."""


class WebTransportSession:
    """A session; `WebTransportClient` and `WebTransportServerSession` start one.

    Read its streams with `receive_stream_data`; `events` reports everything else. One task at a time
    may iterate `events`.
    """

    tx_max_queued_bytes: int | None = 4 << 20
    """Bytes queued of all streams beyond which `create_stream` waits; None or 0: never."""
    stream_ring_cap: int = 4 << 20
    """Bytes of a stream that may be queued; `send_stream_data` then raises `BufferError`."""

    def __init__(self, transport: Any, role: str, state: Session | None = None) -> None:
        if role not in {"client", "server"}:
            raise ValueError(f"role is {role!r}: give 'client' or 'server'")
        self._transport = transport
        self._role = role
        self._session = state
        self._session_closed = asyncio.Event()
        self._is_closed_here = False
        # aiopquic's names: programs read code and reason here after `wait_closed`, and the end of a
        # client's connection.
        self._cnx_closed = asyncio.Event()
        self._session_close_event: WebTransportSessionClosed | None = None
        # Events to return before those of native code.
        self._told: deque[QuicEvent] = deque()
        self._news = asyncio.Event()
        self._waiters: dict[str, Waiter] = {}
        self._is_draining = False
        self._has_told_draining = False
        # Open streams; bytes written to each that this end sends on.
        self._streams: dict[int, Stream] = {}
        self._written: dict[int, int] = {}
        self._drain_events: dict[int, asyncio.Event] = {}
        self._drains: set[int] = set()
        self._drained = asyncio.Event()
        self._datagram_room = asyncio.Event()
        self._datagram_room.set()
        self._tasks: set[asyncio.Task[None]] = set()

    def _begin(self, session: Session) -> None:
        self._session = session
        self._start(self._watch(session))

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- properties ---

    @property
    def role(self) -> str:
        """`client` or `server`."""
        return self._role

    @property
    def is_client(self) -> bool:
        """Whether this end requested the session."""
        return self._role == "client"

    @property
    def is_server(self) -> bool:
        """Whether the peer requested the session."""
        return self._role == "server"

    @property
    def negotiated_protocol(self) -> str | None:
        """The negotiated sub-protocol, if any."""
        return None if self._session is None else self._session.protocol

    @property
    def session_ready(self) -> bool:
        """Whether it was opened; it may have ended since."""
        return self._session is not None

    @property
    def session_closed(self) -> bool:
        """Whether it has ended."""
        return self._session_closed.is_set()

    @property
    def is_draining(self) -> bool:
        """Whether the peer, or this end by `drain`, has requested its end."""
        return self._is_draining or (self._session is not None and self._session.is_draining)

    @property
    def control_stream_id(self) -> int:
        """The id of its CONNECT stream; -1 before it is open."""
        return -1 if self._session is None else self._session.session_id

    def peer_address(self) -> tuple[str, int] | None:
        """Return the peer's host and port; None before the session is open and once it is closed."""
        if self._session is None or self.session_closed:
            return None
        host, port, *_ = self._session.connection.remote_address
        return host, port

    def local_address(self) -> tuple[str, int] | None:
        """Return this end's host and port, as `peer_address`."""
        if self._session is None or self.session_closed:
            return None
        connection = self._session.connection
        port = connection.endpoint.address[1]
        if connection.local_ip is not None:
            return connection.local_ip, port
        # The socket is bound to all addresses: the kernel tells which one it uses for the peer.
        peer = connection.remote_address
        family = socket.AF_INET6 if ":" in peer[0] else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.connect(peer)
            return sock.getsockname()[0], port

    # --- streams ---

    async def create_stream(self, bidir: bool = True, timeout: float = 5.0) -> int:  # noqa: ASYNC109  # its name
        """Open a stream, and return its number.

        Waits while `tx_max_queued_bytes` of the session are queued, and at most `timeout` seconds while
        the peer allows no stream.

        Errors: `TimeoutError`; WebTransportError if the session is not open.
        """
        await self._room(self._open())
        session = self._open()
        try:
            async with asyncio.timeout(timeout):
                opening = session.open_stream if bidir else session.open_unidirectional_stream
                stream = await opening()
        except QuicError as error:
            raise WebTransportError(f"no stream could be opened: {error}") from error
        self._add(stream)
        return stream.id

    async def _room(self, session: Session) -> None:
        """If too much is queued, wait until half of the limit is."""
        cap = self.tx_max_queued_bytes
        if not cap or self._tx_backlog() <= cap:
            return
        while self._tx_backlog() > cap // 2 and not session.is_closed:
            self._drained.clear()
            for stream_id in self._written:
                self._watch_drain(stream_id)
            await self._drained.wait()

    def _tx_backlog(self) -> int:
        return sum(map(self.tx_data_ring_used, self._written))

    def _add(self, stream: Stream) -> None:
        self._streams[stream.id] = stream
        if stream.is_writable:
            self._written[stream.id] = 0
            self._start(self._watch_sending(stream))

    async def _watch_sending(self, stream: Stream) -> None:
        """Report that the peer stopped a stream, and forget the stream when all data is sent."""
        try:
            code = await stream.stopped()
        except QuicError:
            code = None
        is_known = self._drop_sending(stream.id)
        if code is not None and is_known and not self._is_over:
            self._tell(WebTransportStopSending(stream_id=stream.id, error_code=code))
        self._forget(stream)

    def _drop_sending(self, stream_id: int) -> bool:
        if event := self._drain_events.pop(stream_id, None):
            event.set()
        self._drained.set()
        return self._written.pop(stream_id, None) is not None

    def _forget(self, stream: Stream) -> None:
        if stream.id not in self._written and not stream.is_readable:
            self._streams.pop(stream.id, None)

    def send_stream_data(self, stream_id: int, data: _Data, end_stream: bool = False) -> None:
        """Write to a stream, all of `data` or nothing.

        Errors: BufferError if `stream_ring_cap` bytes would be queued: `get_tx_data_drain_event`
        tells when to write again; ValueError if `data` alone is longer; WebTransportError if the
        session or the stream has ended.
        """
        self._open()
        stream = self._streams.get(stream_id)
        if stream is None or stream_id not in self._written:
            raise WebTransportError(f"stream {stream_id} is not open for sending")
        if len(data) > self.stream_ring_cap:
            raise ValueError(f"{len(data)} bytes exceed stream_ring_cap")
        if stream.queued_bytes + len(data) > self.stream_ring_cap:
            self.set_tx_data_drain_pending(stream_id)
            raise BufferError(
                f"{stream.queued_bytes} bytes of stream {stream_id} are queued already: await"
                " send_stream_data_drained(), or raise stream_ring_cap"
            )
        try:
            stream.write(data)
            self._written[stream_id] += len(data)
            if end_stream:
                stream.finish()
        except QuicError as error:
            raise WebTransportError(f"stream {stream_id}: {error}") from error

    async def send_stream_data_drained(
        self,
        stream_id: int,
        data: _Data,
        end_stream: bool = False,
        *,
        soft_yield_at: float = 0.5,  # noqa: ARG002  # there is no ring between threads
        hard_wait_at: float = 0.9,  # noqa: ARG002
    ) -> None:
        """Write to a stream once there is space; return if the session is closed meanwhile."""
        event = self.get_tx_data_drain_event(stream_id)
        while not self.session_closed:
            event.clear()
            try:
                self.send_stream_data(stream_id, data, end_stream)
            except BufferError:
                await event.wait()
            else:
                return

    def get_tx_data_drain_event(self, stream_id: int) -> asyncio.Event:
        """Return the event that is set once a full stream's queue is empty."""
        return self._drain_events.setdefault(stream_id, asyncio.Event())

    def set_tx_data_drain_pending(self, stream_id: int) -> None:
        """Arrange for the stream's event to be set once its queue is empty."""
        self.get_tx_data_drain_event(stream_id)
        if stream_id in self._written:
            self._watch_drain(stream_id)

    def clear_tx_data_drain_pending(self, stream_id: int) -> None:
        """Do nothing: an event without a waiter is harmless."""

    def _watch_drain(self, stream_id: int) -> None:
        if stream_id not in self._drains:
            self._drains.add(stream_id)
            self._start(self._drain(self._streams[stream_id]))

    async def _drain(self, stream: Stream) -> None:
        with suppress(QuicError):
            await stream.drain()
        # Before a writer continues, which may fill the stream again.
        self._drains.discard(stream.id)
        if event := self._drain_events.get(stream.id):
            event.set()
        self._drained.set()

    def tx_data_ring_used(self, stream_id: int) -> int:
        """Return how many bytes of a stream are queued past the send window."""
        return self._streams[stream_id].queued_bytes if stream_id in self._written else 0

    def tx_sent_bytes(self, stream_id: int) -> int:
        """Return how many bytes of a stream have left the queue; 0 once it has ended."""
        return self._written.get(stream_id, 0) - self.tx_data_ring_used(stream_id)

    def tx_event_ring_fill(self) -> float:
        """Return 0: there is no ring between threads that could be full."""
        return 0.0

    def reset_stream(self, stream_id: int, error_code: int = 0) -> None:
        """Reset a stream with a 32-bit code; does nothing if this end cannot send on it."""
        if stream_id in self._written:
            self._drop_sending(stream_id)
            self._streams[stream_id].reset(error_code)

    def stop_stream(self, stream_id: int, error_code: int = 0) -> None:
        """Ask the peer to stop sending on a stream; does nothing if the peer cannot send on it."""
        stream = self._streams.get(stream_id)
        if stream is not None and stream.is_readable:
            stream.stop(error_code)
            self._forget(stream)

    def set_stream_priority(self, stream_id: int, priority: int) -> int:
        """Set a stream's priority, 0 to 255, lower first; returns 0. The default is 9.

        Streams of equal priority take turns, even if it is odd.
        """
        self._open()
        if not 0 <= priority <= _PRIORITY_MAX:
            raise ValueError(f"priority is {priority}: give 0 to {_PRIORITY_MAX}")
        if stream_id in self._written:
            self._streams[stream_id].priority = _PRIORITY_USUAL - priority
        return 0

    async def receive_stream_data(
        self, stream_id: int
    ) -> AsyncGenerator[WebTransportStreamDataReceived | WebTransportStreamReset, None]:
        """Yield a stream's data up to its end or a reset, which is the last event.

        Errors: WebTransportError if the session has no such stream, or all of it was read.
        """
        stream = self._streams.get(stream_id)
        if stream is None and not self.session_closed:
            raise WebTransportError(f"stream {stream_id} is not open for receiving")
        while stream is not None and not self._is_closed_here:
            try:
                data = await stream.read(_READ_BYTES)
            except StreamResetError as error:
                self._forget(stream)
                yield WebTransportStreamReset(stream_id=stream_id, error_code=error.code)
                return
            except QuicError:
                break
            has_ended = stream.at_eof()
            if has_ended:
                self._forget(stream)
            yield WebTransportStreamDataReceived(
                stream_id=stream_id, data=memoryview(data), end_stream=has_ended
            )
            if has_ended:
                return
        # The session has ended, or this end has stopped the stream.
        code = WT_SESSION_GONE if self._is_over else 0
        yield WebTransportStreamReset(stream_id=stream_id, error_code=code)

    # --- datagrams ---

    def send_datagram_frame(self, data: _Data) -> int:
        """Send a datagram; returns its length, or 0 if the buffer is full.

        Then `get_datagram_tx_drain_event` tells when to send it again.

        Errors: ValueError if it is longer than the path allows; WebTransportError if the session
        is not open.
        """
        session = self._open()
        if len(data) > session.max_datagram_size:
            raise ValueError(f"a datagram of {len(data)} bytes is longer than the path allows")
        connection = session.connection
        # HTTP datagrams begin with a quarter of their stream's number (RFC 9297 §2.1).
        framed = encode_uint_var(session.session_id // 4) + data
        if connection.send_datagram_nowait(framed):
            return len(data)
        self._datagram_room.clear()
        waiter = connection._waiter("datagram_out")
        waiter.add_done_callback(lambda _: self._datagram_room.set())
        return 0

    def get_datagram_tx_drain_event(self) -> asyncio.Event:
        """Return the event that is set while datagrams may be sent, and once the session is closed."""
        return self._datagram_room

    # --- events ---

    async def events(self) -> AsyncGenerator[QuicEvent, None]:
        """Yield all events except stream data; the close of the session is the last.

        A peer's stream that is not yielded yet counts against the peer's limit of open streams.
        """
        while True:
            event = self._next_event()
            if event is not None:
                yield event
                if isinstance(event, WebTransportSessionClosed):
                    return
                continue
            if self.session_closed:
                return
            self._news.clear()
            self._listen()
            await self._news.wait()

    def _next_event(self) -> QuicEvent | None:
        session = self._session
        if session is None or session.is_closed:
            return self._told.popleft() if self._told else None
        if session.is_draining and not self._has_told_draining:
            self._has_told_draining = True
            self._told.append(WebTransportSessionDraining())
        if self._told:
            return self._told.popleft()
        if (stream_id := session._take_stream()) is not None:
            self._add(Stream(session.connection, stream_id))
            return WebTransportNewStream(stream_id=stream_id)
        if (datagram := session._take_datagram()) is not None:
            return WebTransportDatagramReceived(data=memoryview(datagram))
        return None

    def _listen(self) -> None:
        """Make native code's events set `_news`; a pending waiter is kept."""
        if (session := self._session) is None:
            return
        for name in ("_stream_waiter", "_datagram_waiter", "_waiter"):
            waiter = self._waiters.get(name)
            if waiter is None or waiter.done():
                waiter = self._waiters[name] = getattr(session, name)()
                waiter.add_done_callback(lambda _: self._news.set())

    def _tell(self, event: QuicEvent) -> None:
        self._told.append(event)
        self._news.set()

    # --- closing ---

    def close(self, error_code: int = 0, reason: bytes = b"") -> None:
        """Close the session with a 32-bit code and a reason; does nothing if it has ended."""
        if self.session_closed:
            return
        self._is_closed_here = True
        if self._session is not None:
            self._session.close(error_code, bytes(reason).decode(errors="replace"))
        self._over(error_code, reason)

    def drain(self) -> None:
        """Ask the peer to finish the session."""
        self._open().drain()
        self._is_draining = True

    async def wait_closed(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # its name
        """Wait for the end of the session; `TimeoutError` past `timeout` seconds."""
        async with asyncio.timeout(timeout):
            await self._session_closed.wait()

    async def aclose(
        self,
        error_code: int = 0,
        reason: bytes = b"",
        *,
        timeout: float = 2.0,  # noqa: ASYNC109  # its name
    ) -> None:
        """Close the session; a client also waits up to `timeout` seconds for its connection to close."""
        self.close(error_code, reason)
        if self._session is not None and self.is_client:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._cnx_closed.wait()

    async def detach(self) -> None:
        """End all waits for the session; called after `aclose`."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, session: Session) -> None:
        """Report the session's end by the peer or the network; close the connection."""
        try:
            code, reason, _ = await session.wait_closed()
        except QuicError as error:
            code, reason = getattr(error, "code", 0) or 0, getattr(error, "reason", "")
        self._over(code, reason.encode())
        if self.is_client:
            # The connection belongs to the session.
            await session.__aexit__(None, None, None)
            self._cnx_closed.set()

    def _over(self, code: int, reason: bytes) -> None:
        if self.session_closed:
            return
        event = WebTransportSessionClosed(error_code=code, reason=memoryview(bytes(reason)))
        self._session_close_event = event
        self._session_closed.set()
        self._tell(event)
        self._datagram_room.set()
        for drained in self._drain_events.values():
            drained.set()
        self._drained.set()

    def _open(self) -> Session:
        """Return the open session."""
        if self._session is None:
            raise WebTransportError("the session is not open yet")
        if self.session_closed or self._session.is_closed:
            raise WebTransportError("the session is closed")
        return self._session

    @property
    def _is_over(self) -> bool:
        """Whether native code has closed it; `session_closed` follows."""
        return self._session is None or self._session.is_closed
