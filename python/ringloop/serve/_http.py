"""The `http` scope over HTTP/3: one request, its response, and what an application may do with them."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ringloop.serve._failures import access, called, checked_headers, log, unexpected
from ringloop.serve._scope import place

if TYPE_CHECKING:
    from ringloop.h3 import Request
    from ringloop.serve._settings import Application

__all__ = ["EXTENSIONS", "Exchange"]

EXTENSIONS: dict[str, dict[str, Any]] = {
    "http.response.early_hint": {},
    "http.response.trailers": {},
    "http.response.pathsend": {},
}

_READ_BYTES = 64 << 10
_FILE_BYTES = 256 << 10
_INTERNAL_ERROR = 0x102


class _State(Enum):
    """What an application is to send next."""

    START = 0
    BODY = 1
    TRAILERS = 2
    COMPLETE = 3


class Exchange:
    """A request that an application answers.

    Errors of `send`: ConnectionError once the client is gone or wants no more; RuntimeError for a
    message that is not the next one, and for a body that is not as long as its `content-length`.
    """

    def __init__(
        self,
        request: Request,
        scope: dict[str, Any],
        default_headers: list[tuple[bytes, bytes]],
        *,
        logs_access: bool,
    ) -> None:
        self._request = request
        self._scope = scope
        self._default_headers = default_headers
        self._logs_access = logs_access
        self._state = _State.START
        self._is_received = False
        # The error that has told the application of the client's end.
        self._told: ConnectionError | None = None
        self._is_head = request.method == "HEAD"
        self._has_trailers = False
        self._trailers: list[tuple[bytes, bytes]] = []
        self._length_left: int | None = None
        self._wants_continue = any(
            name == b"expect" and value.lower() == b"100-continue"
            for name, value in request.headers or ()
        )

    async def run(self, application: Application) -> None:
        """Have an application answer; its failure is logged, and ends the response."""
        returned = await called(
            application, self._scope, self.receive, self.send, lambda: self._told
        )
        if returned and self._state is not _State.COMPLETE and self._told is None:
            missing = "starting" if self._state is _State.START else "completing"
            log.error("ASGI callable returned without %s response.", missing)
        await self._fail()

    async def _fail(self) -> None:
        """End a response that is not complete: by status 500, or a reset behind its first part."""
        if self._state is _State.COMPLETE:
            return
        try:
            if self._state is _State.START and not self._request.has_ended:
                self._start(500, [(b"content-type", b"text/plain; charset=utf-8")])
                body = b"" if self._is_head else b"Internal Server Error"
                await self._request.send(body, end=True)
            else:
                self._request.cancel(_INTERNAL_ERROR)
        except ConnectionError:
            # Its client is gone.
            self._request.cancel(_INTERNAL_ERROR)
        self._state = _State.COMPLETE

    # What the application receives.

    async def receive(self) -> dict[str, Any]:
        """Return the next part of the request's body; after it wait for the client's end."""
        try:
            if self._is_received or self._told is not None:
                await self._until_over()
                return {"type": "http.disconnect"}
            if self._wants_continue:
                self._wants_continue = False
                if self._state is _State.START and not self._request.is_read:
                    self._request.send_headers([(b":status", b"100")])
            body = await self._request.read(_READ_BYTES)
        except ConnectionError as error:
            self._told = self._told or error
            return {"type": "http.disconnect"}
        self._is_received = not body or self._request.is_read
        return {"type": "http.request", "body": body, "more_body": not self._is_received}

    async def _until_over(self) -> None:
        """Wait until the response has arrived, or the client wants no more of it."""
        while self._state is not _State.COMPLETE and self._told is None:
            await self._request._end_waiter()

    # What the application sends.

    async def send(self, message: dict[str, Any]) -> None:
        """Send a part of the response; waits while the client takes no more."""
        if self._told is not None:
            raise self._told
        try:
            await self._send(message)
        except ConnectionError as error:
            self._told = error
            raise

    async def _send(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        match self._state:
            case _State.START if kind == "http.response.start":
                self._respond(message)
            case _State.START if kind == "http.response.early_hint":
                links = [(b"link", link) for link in message["links"]]
                self._request.send_headers([(b":status", b"103"), *checked_headers(links)])
            case _State.BODY if kind == "http.response.body":
                await self._send_body(
                    message.get("body", b""), is_last=not message.get("more_body", False)
                )
            case _State.BODY if kind == "http.response.pathsend":
                await self._send_file(message["path"])
            case _State.TRAILERS if kind == "http.response.trailers":
                await self._send_trailers(message)
            case _State.START:
                raise unexpected(message, "'http.response.start'")
            case _State.BODY:
                raise unexpected(message, "'http.response.body'")
            case _State.TRAILERS:
                raise unexpected(message, "'http.response.trailers'")
            case _State.COMPLETE:
                raise unexpected(message, "none, as the response is complete")

    def _respond(self, message: dict[str, Any]) -> None:
        status = message["status"]
        if not isinstance(status, int) or not 200 <= status <= 999:  # noqa: PLR2004
            raise ValueError(f"the response's status is {status!r}: 200 to 999")
        headers = checked_headers(message.get("headers", ()))
        length = next((value for name, value in headers if name == b"content-length"), None)
        # These have none (RFC 9110 §6.4.1).
        self._is_head = self._is_head or status in {204, 304}
        if length is not None and not self._is_head:
            self._length_left = int(length)
        self._has_trailers = bool(message.get("trailers", False))
        self._start(status, headers)
        self._state = _State.BODY

    def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        given = {name for name, _ in headers}
        defaults = (pair for pair in self._default_headers if pair[0] not in given)
        self._request.send_headers([(b":status", b"%d" % status), *defaults, *headers])
        if self._logs_access:
            path, query = quote(self._scope["path"]), self._scope["query_string"]
            access.info(
                '%s - "%s %s HTTP/%s" %d',
                place(self._scope),
                self._scope["method"],
                f"{path}?{query.decode('ascii', 'replace')}" if query else path,
                self._scope["http_version"],
                status,
            )

    async def _send_body(self, body: bytes, *, is_last: bool) -> None:
        if self._is_head:
            body = b""
        self._count(len(body))
        if is_last and self._length_left:
            raise RuntimeError("Response content shorter than Content-Length")
        ends = is_last and not self._has_trailers
        if is_last:
            self._state = _State.TRAILERS if self._has_trailers else _State.COMPLETE
        if body or ends:
            await self._request.send(body, end=ends)

    def _count(self, length: int) -> None:
        if self._length_left is None:
            return
        if length > self._length_left:
            raise RuntimeError("Response content longer than Content-Length")
        self._length_left -= length

    async def _send_file(self, path: str) -> None:
        file = await asyncio.to_thread(open, path, "rb")
        try:
            while not self._is_head and (part := await asyncio.to_thread(file.read, _FILE_BYTES)):
                await self._send_body(part, is_last=False)
        finally:
            file.close()
        await self._send_body(b"", is_last=True)

    async def _send_trailers(self, message: dict[str, Any]) -> None:
        self._trailers += checked_headers(message.get("headers", ()))
        if message.get("more_trailers", False):
            return
        self._state = _State.COMPLETE
        if self._trailers:
            self._request.send_trailers(self._trailers)
        else:
            await self._request.send(b"", end=True)
