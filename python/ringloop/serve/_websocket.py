"""The `websocket` scope over HTTP/3 (RFC 9220): frames through `websockets`, on the stream of a CONNECT.

A task reads while fewer messages wait than one read has, so that pings are answered even if the
application does not receive; beyond that the client waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from websockets.datastructures import Headers
from websockets.exceptions import InvalidHeader
from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
from websockets.frames import Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol

from ringloop.serve._failures import called, checked_headers, log, unexpected
from ringloop.serve._scope import place, target

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from websockets.frames import Frame

    from ringloop.h3 import Request
    from ringloop.serve._settings import Application

T = TypeVar("T")

__all__ = ["EXTENSIONS", "WebSocket", "subprotocols"]

EXTENSIONS: dict[str, dict[str, Any]] = {"websocket.http.response": {}}

# Compressed, at most a thousand times as long: with `max_size` that bounds what waits.
_READ_BYTES = 16 << 10
# An idle connection of QUIC ends after half a minute.
_PING_SECONDS = 15.0
# For each part of the closing handshake (RFC 6455 §7.1.1): what was sent, and the client's close.
_CLOSE_SECONDS = 5.0
_INTERNAL_ERROR = 0x102
_FORBIDDEN = 403

_NORMAL = 1000
_ABNORMAL = 1006
_FAILED = 1011
_RESTART = 1012


class _Phase(Enum):
    """How far a WebSocket is."""

    CONNECTING = 0
    """The application has to accept it."""
    DENYING = 1
    """The application sends its own response."""
    OPEN = 2
    CLOSED = 3
    """The application has closed or denied it, or was told of its end."""


def subprotocols(request: Request) -> list[str]:
    """Return the client's offered sub-protocols (RFC 6455 §11.3.4)."""
    offered = [
        value.decode("latin-1")
        for name, value in request.headers or ()
        if name == b"sec-websocket-protocol"
    ]
    return [part for part in (part.strip() for part in ",".join(offered).split(",")) if part]


class _Frames(ServerProtocol):
    """The frames of a WebSocket; each is passed to `take` as soon as it is parsed.

    An error of `take` fails the WebSocket there: what follows is neither parsed nor answered.
    """

    def __init__(self, take: Callable[[Frame], None], message_bytes_max: int) -> None:
        deflate = ServerPerMessageDeflateFactory(
            server_max_window_bits=12, client_max_window_bits=12
        )
        super().__init__(
            state=State.OPEN, max_size=message_bytes_max, extensions=[deflate], logger=log
        )
        self._pass_on = take

    def recv_frame(self, frame: Frame) -> None:
        super().recv_frame(frame)
        self._pass_on(frame)


class WebSocket:
    """A WebSocket that an application accepts and uses.

    Errors of `send`: ConnectionError once it is closed by the client; RuntimeError for an
    unexpected message.
    """

    def __init__(self, request: Request, scope: dict[str, Any], message_bytes_max: int) -> None:
        self._request = request
        self._scope = scope
        self._frames = _Frames(self._take, message_bytes_max)
        self._phase = _Phase.CONNECTING
        self._is_announced = False
        # Of a denial's declared body.
        self._bytes_left: int | None = None
        # Of the message that is not complete: joined, as frames may be empty, or of few bytes each.
        self._parts = bytearray()
        self._is_text = False
        # Messages for the application; the last one may be the disconnect.
        self._messages: deque[dict[str, Any]] = deque()
        self._is_over = False
        self._changed = asyncio.Event()
        self._told: ConnectionError | None = None
        self._reader: asyncio.Task[None] | None = None

    async def run(self, application: Application) -> None:
        """Have an application handle it; its failure is logged, and closes it."""
        try:
            returned = await called(
                application, self._scope, self.receive, self.send, lambda: self._told
            )
            if returned and self._phase in {_Phase.CONNECTING, _Phase.DENYING}:
                log.error("ASGI callable returned without completing handshake.")
            await self._finish(_NORMAL if returned else _FAILED)
        finally:
            if self._reader is not None:
                self._reader.cancel()
                await asyncio.wait([self._reader])

    async def _finish(self, code: int) -> None:
        """Close what the application has left open, and wait a little for the client's part of it.

        A client that does not even read what was sent is cut off.
        """
        try:
            if self._phase is _Phase.CONNECTING and not self._request.has_ended:
                self._request.start(500, end=True)
            elif self._phase is _Phase.DENYING:
                self._request.cancel(_INTERNAL_ERROR)
            elif self._phase is _Phase.OPEN:
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._close(code, "")
            if self._reader is not None:
                await asyncio.wait([self._reader], timeout=_CLOSE_SECONDS)
            if not self._request.has_ended:
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._request.send(b"", end=True)
        except (ConnectionError, TimeoutError):
            self._request.cancel()

    async def shut_down(self) -> None:
        """Tell both sides that the server ends."""
        if self._phase is _Phase.OPEN:
            self._disconnect(_RESTART, "")
            if self._frames.state is State.OPEN:
                self._frames.send_close(_RESTART)
            with suppress(ConnectionError):
                await self._write()

    # What the application receives.

    async def receive(self) -> dict[str, Any]:
        """Return the next message."""
        if not self._is_announced:
            self._is_announced = True
            return {"type": "websocket.connect"}
        while not self._messages:
            if self._reader is not None:
                await self._change()
            elif self._phase is _Phase.CLOSED:
                self._disconnect(_ABNORMAL, "")
            else:
                await self._answered_or_gone()
        message = self._messages[0]
        # It is the last one, however often it is asked for.
        if message["type"] != "websocket.disconnect":
            self._messages.popleft()
            self._changed.set()
        return message

    async def _answered_or_gone(self) -> None:
        """Wait until the application has answered the handshake, or the client is gone."""
        try:
            waiter = self._request._end_waiter()
        except ConnectionError as error:
            self._told = error
            self._disconnect(_ABNORMAL, "")
            return
        waiter.add_done_callback(lambda _: self._changed.set())
        try:
            await self._change()
        finally:
            waiter.cancel()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _disconnect(self, code: int, reason: str) -> None:
        """Tell the application of the end, once."""
        self._phase = _Phase.CLOSED
        if not self._is_over:
            self._is_over = True
            self._messages.append({"type": "websocket.disconnect", "code": code, "reason": reason})
        self._changed.set()

    # The client.

    async def _read(self) -> None:
        """Read frames up to the end."""
        try:
            while self._frames.close_rcvd is None:
                data = await self._kept_alive(lambda: self._request.read(_READ_BYTES))
                if not data:
                    break
                self._frames.receive_data(data)
                # Each was taken as it was parsed.
                self._frames.events_received()
                await self._write()
                if self._frames.state is not State.OPEN and self._phase is _Phase.OPEN:
                    # Closed by the client's frame, or by ours after a violation.
                    break
                while self._messages and self._phase is _Phase.OPEN:
                    await self._kept_alive(self._change)
        except ConnectionError as error:
            self._told = self._told or error
        finally:
            self._end()

    def _end(self) -> None:
        """Tell the application of the end that the client, or a violation, has brought."""
        closed = self._frames.close_rcvd or self._frames.close_sent
        if closed is None:
            self._disconnect(_ABNORMAL, "")
        else:
            self._disconnect(closed.code, closed.reason)

    async def _kept_alive(self, wait: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Wait for something, and send pings meanwhile: a silent connection would end."""
        while True:
            try:
                async with asyncio.timeout(_PING_SECONDS):
                    return await wait()
            except ConnectionError:
                # The end of an idle connection is a TimeoutError, too.
                raise
            except TimeoutError:
                if self._frames.state is State.OPEN:
                    self._frames.send_ping(b"")
                    await self._write()

    def _take(self, frame: Frame) -> None:
        """Take a frame. UnicodeDecodeError, which closes with 1007: it ends a text that is no UTF-8."""
        if frame.opcode in {Opcode.TEXT, Opcode.BINARY}:
            self._is_text = frame.opcode is Opcode.TEXT
            self._parts = bytearray(frame.data)
        elif frame.opcode is Opcode.CONT:
            self._parts += frame.data
        else:
            return
        if not frame.fin or self._phase is not _Phase.OPEN:
            return
        data, self._parts = bytes(self._parts), bytearray()
        message = {"text": data.decode()} if self._is_text else {"bytes": data}
        self._messages.append({"type": "websocket.receive", **message})
        self._changed.set()

    # What the application sends.

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message; waits while the client is not reading."""
        if self._told is not None:
            raise self._told
        try:
            await self._send(message)
        except ConnectionError as error:
            self._told = error
            raise
        finally:
            # `receive` may wait for the answer to the handshake.
            self._changed.set()

    async def _send(self, message: dict[str, Any]) -> None:
        match self._phase:
            case _Phase.CONNECTING:
                self._answer(message)
            case _Phase.DENYING:
                await self._deny(message)
            case _Phase.OPEN:
                await self._send_open(message)
            case _Phase.CLOSED:
                if self._is_over:
                    raise ConnectionResetError("the WebSocket is closed")
                raise unexpected(message, "none, as the WebSocket is closed")

    def _answer(self, message: dict[str, Any]) -> None:
        match message["type"]:
            case "websocket.accept":
                self._accept(message)
            case "websocket.close":
                self._phase = _Phase.CLOSED
                self._log(_FORBIDDEN)
                self._request.start(_FORBIDDEN, end=True)
            case "websocket.http.response.start":
                headers = checked_headers(message.get("headers", ()))
                self._request.start(message["status"], headers)
                # The request has parsed it.
                self._bytes_left = next(
                    (int(value) for name, value in headers if name == b"content-length"), None
                )
                self._phase = _Phase.DENYING
                self._log(message["status"])
            case _:
                raise unexpected(
                    message,
                    "'websocket.accept', 'websocket.close' or 'websocket.http.response.start'",
                )

    async def _deny(self, message: dict[str, Any]) -> None:
        if message["type"] != "websocket.http.response.body":
            raise unexpected(message, "'websocket.http.response.body'")
        ends = not message.get("more_body", False)
        body = self._declared(message.get("body", b""), ends)
        if body or ends:
            is_short = ends and self._bytes_left
            await self._request.send(body, end=not is_short and ends)
            if is_short:
                self._request.cancel(_INTERNAL_ERROR)
        if ends:
            self._phase = _Phase.CLOSED

    def _declared(self, body: bytes, ends: bool) -> bytes:
        """Return the part of a response's body that its `content-length` has room for.

        A wrong length is not the application's exception, as with uvicorn: the client reads what was
        declared, or sees that the response is cut off.
        """
        if self._bytes_left is None:
            return body
        if len(body) > self._bytes_left:
            log.error("Response content longer than Content-Length")
        part = body[: self._bytes_left]
        self._bytes_left -= len(part)
        if ends and self._bytes_left:
            log.error("Response content shorter than Content-Length")
        return part

    async def _send_open(self, message: dict[str, Any]) -> None:
        if self._frames.state is not State.OPEN:
            # Closed by the client, or after a violation: the disconnect is the next message.
            raise ConnectionResetError("the WebSocket is closed")
        match message["type"]:
            case "websocket.send":
                text = message.get("text")
                if text is not None:
                    self._frames.send_text(text.encode())
                else:
                    self._frames.send_binary(message["bytes"])
                await self._write()
            case "websocket.close":
                await self._close(message.get("code") or _NORMAL, message.get("reason") or "")
            case _:
                raise unexpected(message, "'websocket.send' or 'websocket.close'")

    def _accept(self, message: dict[str, Any]) -> None:
        fields = checked_headers(message.get("headers", ()))
        if subprotocol := message.get("subprotocol"):
            fields.append((b"sec-websocket-protocol", subprotocol.encode()))
        asked = Headers()
        for name, value in self._request.headers or ():
            if name == b"sec-websocket-extensions":
                asked["Sec-WebSocket-Extensions"] = value.decode("latin-1")
        with suppress(InvalidHeader):
            agreed, self._frames.extensions = self._frames.process_extensions(asked)
            if agreed is not None:
                fields.append((b"sec-websocket-extensions", agreed.encode()))
        self._request.start(200, fields)
        self._log("[accepted]")
        self._phase = _Phase.OPEN
        self._reader = asyncio.get_running_loop().create_task(self._read())

    def _log(self, outcome: object) -> None:
        log.info(
            '%s - "WebSocket %s HTTP/%s" %s',
            place(self._scope),
            target(self._scope),
            self._scope["http_version"],
            outcome,
        )

    async def _close(self, code: int, reason: str) -> None:
        # Else the client's close, or a violation, has been answered with one.
        if self._frames.state is State.OPEN:
            # It raises for a code or a reason that no frame has.
            self._frames.send_close(code, reason)
        self._phase = _Phase.CLOSED
        await self._write()

    async def _write(self) -> None:
        """Send what frames there are, and wait for room."""
        # An empty piece is the end, which `_finish` sends.
        data = b"".join(self._frames.data_to_send())
        if data and not self._request.has_ended:
            await self._request.send(data)
