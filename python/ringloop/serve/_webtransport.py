"""The `webtransport` scope: a session, in the messages that servers and applications use so far.

ASGI has no specification of it. The names are those of aioquic's server, which others have adopted;
their additions are included if they do not conflict. docs/http3.md has the list.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any

from ringloop import webtransport
from ringloop.quic.errors import DatagramError, StreamError, StreamResetError
from ringloop.serve._failures import called, checked_headers, log, unexpected
from ringloop.serve._scope import place, target

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ringloop.h3 import Request
    from ringloop.quic import Stream
    from ringloop.serve._settings import Application

__all__ = ["EXTENSIONS", "WebTransport"]

EXTENSIONS: dict[str, dict[str, Any]] = {"webtransport": {}}

_READ_BYTES = 64 << 10
# Messages that wait for the application before streams are no longer read: 2 MiB, and one more for each
# stream that was being read.
_MESSAGES_MAX = 32

# How long a close waits for streams in flight.
_CLOSE_SECONDS = 5.0

_FORBIDDEN = 403
_INTERNAL_ERROR = 500
_FAILED = 1


class _Phase(Enum):
    """How far a session is."""

    CONNECTING = 0
    """The application has to accept it."""
    OPEN = 1
    CLOSED = 2


class WebTransport:
    """A session that an application accepts and uses.

    Errors of `send`: ConnectionError once the session is closed, or the client wants no more of a
    stream; RuntimeError for an unexpected message, and for an unknown stream.
    """

    def __init__(self, request: Request, scope: dict[str, Any]) -> None:
        # Its stream is the session's, once that is accepted.
        self._request: Request | None = request
        self._scope = scope
        self._phase = _Phase.CONNECTING
        self._session: webtransport.Session | None = None
        self._is_announced = False
        self._messages: deque[dict[str, Any]] = deque()
        self._changed = asyncio.Event()
        self._is_over = False
        self._told: ConnectionError | None = None
        # Ends with a request that its client gives up.
        self._asking: asyncio.Task[Any]
        # Open streams: either side may still send.
        self._streams: dict[int, Stream] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        # One a finished stream, until the client has all of it.
        self._finishing: set[asyncio.Task[Any]] = set()

    async def run(self, application: Application) -> None:
        """Have an application handle it; its failure is logged, and closes it."""
        code = _FAILED
        assert self._request is not None, "it is not accepted"  # noqa: S101
        self._asking = self._start(self._tasks, self._watch_request(self._request))
        try:
            if await called(application, self._scope, self.receive, self.send, lambda: self._told):
                code = 0
                if self._phase is _Phase.CONNECTING:
                    log.error("ASGI callable returned without completing handshake.")
        finally:
            await self._finish(code)

    async def _finish(self, code: int) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._session is not None:
            await self._close(code, "")
        elif self._request is not None and self._phase is _Phase.CONNECTING:
            with suppress(ConnectionError):
                self._request.start(_INTERNAL_ERROR, end=True)

    async def _close(self, code: int, reason: str) -> None:
        """Close the session, a little later where finished streams are in flight: it resets them."""
        session = self._session
        assert session is not None, "it is accepted"  # noqa: S101
        if self._finishing and not session.is_closed:
            await asyncio.wait(self._finishing, timeout=_CLOSE_SECONDS)
        for task in self._finishing:
            task.cancel()
        session.close(code, reason)

    async def shut_down(self) -> None:
        """Tell both sides that the server ends."""
        if self._session is not None:
            self._session.close(0, "the server ends")
        self._disconnect(0, "the server ends")

    # What the application receives.

    async def receive(self) -> dict[str, Any]:
        """Return the next message."""
        if not self._is_announced:
            self._is_announced = True
            return {"type": "webtransport.connect"}
        while not self._messages:
            await self._change()
        message = self._messages[0]
        # It is the last one, however often it is asked for.
        if message["type"] != "webtransport.disconnect":
            self._messages.popleft()
            self._changed.set()
        return message

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _room(self) -> None:
        while len(self._messages) >= _MESSAGES_MAX:
            await self._change()

    async def _put(self, message: dict[str, Any]) -> None:
        await self._room()
        self._messages.append(message)
        self._changed.set()

    def _disconnect(self, code: int, reason: str) -> None:
        """Tell the application of the end, once."""
        self._phase = _Phase.CLOSED
        if not self._is_over:
            self._is_over = True
            self._messages.append(
                {"type": "webtransport.disconnect", "code": code, "reason": reason}
            )
        self._changed.set()

    # The client.

    def _start(
        self, tasks: set[asyncio.Task[Any]], work: Coroutine[Any, Any, Any]
    ) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    async def _watch_request(self, request: Request) -> None:
        """Wait for the end of a request that was not answered: its client has given it up."""
        try:
            await request.read()
        except ConnectionError as error:
            self._told = self._told or error
            self._disconnect(0, str(error))

    async def _watch(self, session: webtransport.Session) -> None:
        """Take streams and datagrams until the session is closed."""
        self._start(self._tasks, self._take_streams(session))
        self._start(self._tasks, self._take_datagrams(session))
        try:
            closed = await session.wait_closed()
        except ConnectionError as error:
            self._told = self._told or error
            self._disconnect(0, str(error))
        else:
            self._disconnect(closed.code, closed.reason)

    async def _take_streams(self, session: webtransport.Session) -> None:
        with suppress(ConnectionError):
            async for stream in session:
                self._streams[stream.id] = stream
                self._start(self._tasks, self._read(stream, "client"))

    async def _take_datagrams(self, session: webtransport.Session) -> None:
        with suppress(ConnectionError):
            while True:
                data = await session.receive_datagram()
                await self._put({"type": "webtransport.datagram.receive", "data": data})

    async def _read(self, stream: Stream, initiated_by: str) -> None:
        """Pass on what comes on a stream, up to its end."""
        about = _about(stream, initiated_by)
        try:
            ended = False
            while not ended:
                # What is read to its end lets the client open another stream.
                await self._room()
                data = await stream.read(_READ_BYTES)
                ended = stream.at_eof()
                await self._put(
                    {
                        "type": "webtransport.stream.receive",
                        **about,
                        "data": data,
                        "more_data": not ended,
                        "end_stream": ended,
                    }
                )
        except StreamResetError as error:
            await self._put({"type": "webtransport.stream.reset", **about, "code": error.code})
        except ConnectionError:
            # The session has ended, which `_watch` tells.
            return
        self._forget_unused(stream)

    def _forget_unused(self, stream: Stream) -> None:
        """Forget a stream that has ended both ways."""
        if not stream.is_writable and not stream.is_readable:
            self._streams.pop(stream.id, None)

    # What the application sends.

    async def send(self, message: dict[str, Any]) -> None:
        """Process a message; waits while the client is not reading a stream."""
        if self._told is not None:
            raise self._told
        try:
            await self._send(message)
        except ConnectionError as error:
            if not isinstance(error, StreamError):
                self._told = error
            raise

    async def _send(self, message: dict[str, Any]) -> None:
        match self._phase:
            case _Phase.CONNECTING:
                await self._answer(message)
            case _Phase.OPEN:
                await self._send_open(message)
            case _Phase.CLOSED:
                if self._is_over:
                    raise ConnectionResetError("the session is closed")
                raise unexpected(message, "none, as the session is closed")

    async def _answer(self, message: dict[str, Any]) -> None:
        request = self._request
        assert request is not None, "it is not accepted"  # noqa: S101
        match message["type"]:
            case "webtransport.accept":
                protocol = message.get("subprotocol") or message.get("protocol")
                headers = checked_headers(message.get("headers") or ())
                self._session = await webtransport.accept(
                    request, protocol=protocol, headers=headers
                )
                self._asking.cancel()
                self._request = None
                self._phase = _Phase.OPEN
                self._log("[accepted]")
                self._start(self._tasks, self._watch(self._session))
            case "webtransport.close":
                # Before it is accepted, a code in the range of HTTP is the status.
                code = message.get("code") or 0
                status = code if 400 <= code <= 599 else _FORBIDDEN  # noqa: PLR2004
                self._asking.cancel()
                self._phase = _Phase.CLOSED
                self._log(status)
                request.start(status, end=True)
                self._disconnect(code, message.get("reason") or "")
            case _:
                raise unexpected(message, "'webtransport.accept' or 'webtransport.close'")

    async def _send_open(self, message: dict[str, Any]) -> None:
        session = self._session
        assert session is not None, "it is accepted"  # noqa: S101
        match message["type"]:
            case "webtransport.stream.send":
                await self._send_stream(message)
            case "webtransport.datagram.send":
                # What is too long is lost, as any datagram may be.
                with suppress(DatagramError):
                    session.send_datagram(message["data"])
            case "webtransport.stream.open":
                await self._open_stream(session, message)
            case "webtransport.stream.reset":
                stream = self._stream(message)
                stream.reset(message.get("code") or 0)
                self._forget_unused(stream)
            case "webtransport.stream.stop_sending" | "webtransport.stream.stop_receiving":
                stream = self._stream(message)
                stream.stop(message.get("code") or 0)
                self._forget_unused(stream)
            case "webtransport.close":
                self._phase = _Phase.CLOSED
                await self._close(message.get("code") or 0, message.get("reason") or "")
            case _:
                raise unexpected(message, "of an open session")

    async def _open_stream(self, session: webtransport.Session, message: dict[str, Any]) -> None:
        is_unidirectional = (
            message.get("direction") == "unidirectional"
            or message.get("bidirectional") is False
            or bool(message.get("is_unidirectional"))
        )
        if is_unidirectional:
            stream = await session.open_unidirectional_stream()
        else:
            stream = await session.open_stream()
        self._streams[stream.id] = stream
        # The application waits for it: it does not wait for room.
        self._messages.append({"type": "webtransport.stream.opened", **_about(stream, "server")})
        self._changed.set()
        if not is_unidirectional:
            self._start(self._tasks, self._read(stream, "server"))

    async def _send_stream(self, message: dict[str, Any]) -> None:
        stream = self._stream(message)
        if data := message.get("data"):
            await stream.send(data)
        if message.get("end_stream") or message.get("more_data") is False:
            stream.finish()
            self._start(self._finishing, _acked(stream))
            self._forget_unused(stream)

    def _stream(self, message: dict[str, Any]) -> Stream:
        number = message.get("stream", message.get("stream_id"))
        stream = None if number is None else self._streams.get(number)
        if stream is None:
            raise RuntimeError(f"The session has no open stream {number!r}.")
        return stream

    def _log(self, outcome: object) -> None:
        where = place(self._scope), target(self._scope)
        log.info('%s - "WebTransport %s HTTP/3" %s', *where, outcome)


async def _acked(stream: Stream) -> None:
    with suppress(ConnectionError):
        await stream.acked()


def _about(stream: Stream, initiated_by: str) -> dict[str, Any]:
    """Return what messages say of a stream."""
    return {
        "stream": stream.id,
        "stream_id": stream.id,
        "bidirectional": stream.is_bidirectional,
        "direction": "bidirectional" if stream.is_bidirectional else "unidirectional",
        "initiated_by": initiated_by,
    }
