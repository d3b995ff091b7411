"""A session: streams and datagrams between two ends.

Owns: nothing; native code holds received data. Called by: programs. Never does: make a future if the
result is available.
"""

from __future__ import annotations

import asyncio
import weakref
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Self

from ringloop._native import h3 as _h3
from ringloop._native import webtransport as _webtransport
from ringloop.quic._endpoint import _is_all
from ringloop.quic._stream import Stream
from ringloop.quic.errors import StreamClosedError
from ringloop.webtransport._errors import SessionClosed, SessionRejected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ringloop.quic._connection import Connection

    _Data = bytes | bytearray | memoryview

__all__ = ["Close", "Session", "shared"]

_UNKNOWN_STATUS = 0
# How long a peer may take to end its side of a closed session before the connection is closed.
_END_SECONDS = 0.25
# On which a second session was opened: they do not end with the first one's `close()`.
shared: weakref.WeakSet[Connection] = weakref.WeakSet()


class Close(NamedTuple):
    """How a session was closed."""

    code: int
    """The program's code, 0 to 2^32 - 1."""
    reason: str
    """Its reason, at most 1024 bytes."""
    by_peer: bool
    """Whether the peer has closed it."""


class Session(_webtransport.Session):
    """A WebTransport session, at either end.

    As a context manager, it is closed at the end, with code 0, or 1 after an exception. If the
    peer has closed it, a `StreamClosedError` of its streams becomes `SessionClosed`.

    Its streams are those of `ringloop.quic`, where `reset(code)`, `stop(code)` and the codes of errors
    are 0 to 2^32 - 1; 0 also stands for a reset without a program's code. When the session is closed,
    its streams are reset: await `stream.acked()` first for data that must arrive.

    Limits: streams that were not accepted yet count towards those that the peer may open
    (`max_streams_bidi`, `max_streams_uni`); of unread datagrams the newest 256 KiB are kept.
    """

    _owns_connection = False
    # Leaving `async with` closes the connection then.
    _is_entered = False
    _is_closing = False
    _ending: asyncio.Task[None] | None = None

    if TYPE_CHECKING:

        @property
        def connection(self) -> Connection: ...

    @property
    def origin(self) -> str | None:
        """The origin of the page that requests the session, as sent by browsers."""
        for name, value in self.headers:
            if name == b"origin":
                return value.decode("latin-1")
        return None

    @property
    def is_closed(self) -> bool:
        """Whether the session has ended."""
        return self._end is not None

    # Streams.

    async def open_stream(self) -> Stream:
        """Open a bidirectional stream once the peer allows one."""
        return await self._open(unidirectional=False)

    async def open_unidirectional_stream(self) -> Stream:
        """Open a stream on which only this end sends, once the peer allows one."""
        return await self._open(unidirectional=True)

    async def _open(self, *, unidirectional: bool) -> Stream:
        while (stream_id := self._open_stream(unidirectional)) is None:
            self._check()
            await self._open_waiter(unidirectional)
        return Stream(self.connection, stream_id)

    async def accept_stream(self) -> Stream:
        """Accept the next bidirectional stream that the peer opens."""
        return await self._accept(unidirectional=False)

    async def accept_unidirectional_stream(self) -> Stream:
        """Accept the next stream on which only the peer sends."""
        return await self._accept(unidirectional=True)

    async def _accept(self, *, unidirectional: bool | None) -> Stream:
        while (stream_id := self._take_stream(unidirectional)) is None:
            self._check()
            await self._stream_waiter()
        return Stream(self.connection, stream_id)

    def __aiter__(self) -> AsyncIterator[Stream]:
        return self.incoming_streams()

    async def incoming_streams(self) -> AsyncIterator[Stream]:
        """Yield the streams of both kinds that the peer opens, until the session is closed.

        `ConnectionClosed` or a subclass: the connection ended.
        """
        while True:
            try:
                stream = await self._accept(unidirectional=None)
            except SessionClosed as error:
                if error.is_application:
                    return
                raise
            yield stream
            # Not while the next one is waited for: a stream without references is finished.
            del stream

    # Datagrams.

    def send_datagram(self, data: _Data) -> None:
        """Send a datagram; it may be lost, and is not repeated.

        If the queue exceeds `datagram_send_buffer` bytes, the oldest are dropped.
        `DatagramError`: it is longer than `max_datagram_size`.
        """
        if not self._send_datagram(data):
            self._check()

    async def receive_datagram(self) -> bytes:
        """Return the next datagram; wait until there is one.

        If more than 256 KiB of them are unread, the oldest are dropped.
        """
        while (datagram := self._take_datagram()) is None:
            self._check()
            await self._datagram_waiter()
        return datagram

    async def datagrams(self) -> AsyncIterator[bytes]:
        """Yield the datagrams that arrive, until the session is closed."""
        while True:
            try:
                datagram = await self.receive_datagram()
            except SessionClosed as error:
                if error.is_application:
                    return
                raise
            yield datagram

    # The end.

    def close(self, code: int = 0, reason: str = "") -> None:
        """Close the session with a code (0 to 2^32 - 1) and a reason, which is cut at 1024 bytes.

        Its streams are reset. Does nothing if it has ended.
        """
        if type(code) is not int or not 0 <= code < 1 << 32:
            raise ValueError(f"code is {code!r}: give 0 to {(1 << 32) - 1}")
        self._close(code, reason)

    async def wait_closed(self) -> Close:
        """Wait for the end of the session, and return how it was closed.

        `SessionClosed` if it was reset, `ConnectionClosed` or a subclass if the connection ended.
        """
        while (end := self._end) is None:
            await self._waiter()
        what, code, reason, by_peer = end
        if what == "closed":
            return Close(code, reason, by_peer)
        raise self._error()

    async def wait_draining(self) -> None:
        """Wait until the peer has asked for the session's end (`is_draining`), or it has ended."""
        while not self.is_draining and self._end is None:
            await self._waiter()

    def _check(self) -> None:
        """Raise how the session ended, if it did."""
        if self._end is not None:
            raise self._error()

    def _error(self) -> ConnectionError:
        end = self._end
        if end is None or end[0] == "lost":
            return self.connection.error or SessionClosed()
        what, code, reason, by_peer = end
        if what == "rejected":
            return SessionRejected(self.status or _UNKNOWN_STATUS, self.response_headers or [])
        return SessionClosed(code, reason, by_peer, is_application=what in {"closed", "cancelled"})

    async def __aenter__(self) -> Self:
        self._is_entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        was_closed = self.is_closed
        self.close(0 if kind is None else 1)
        if self._owns_connection:
            await self._close_connection()
        # The end of a session resets its streams on this side; why is known here alone.
        if was_closed and error is not None and _is_all(error, StreamClosedError):
            raise self._error() from error

    async def _close_connection(self) -> None:
        """Close the connection, which was made for the session, once the peer has ended it, too.

        Peers on quinn drop at a close of the connection what they have not read, code and reason of
        the session with it.
        """
        if self._ending is not None and self._ending is not asyncio.current_task():
            await asyncio.wait([self._ending])
            return
        self._is_closing = True
        try:
            with suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(_END_SECONDS):
                    while _h3.request_count(self.connection):
                        await self.connection.ping()
        finally:
            self.connection.close(0x100)
            await self.connection.endpoint._after_close(self.connection)

    def _own_connection(self) -> None:
        """Close the connection after the session, also without `async with`."""
        self._owns_connection = True
        _close_after(weakref.ref(self))

    def __repr__(self) -> str:
        state = " closed" if self.is_closed else " draining" if self.is_draining else ""
        return f"<Session {self.session_id}{state} {self.path} on {self.connection!r}>"


def _close_after(reference: weakref.ref[Session], _: object = None) -> None:
    """Close the connection of a session once that has ended; no task waits for it."""
    session = reference()
    if session is None or session._is_entered or session._is_closing:
        return
    if session._end is None:
        session._waiter().add_done_callback(partial(_close_after, reference))
    elif not session.connection.is_closed and session.connection not in shared:
        loop = asyncio.get_running_loop()
        session._ending = loop.create_task(session._close_connection())
