"""The `http` scope over HTTP/3: one request and its response, as seen by an application.

Native code makes the messages of a request, and sends those of a plain response. Waiting and rare
cases are here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ringloop import h3
from ringloop._native import h3 as _h3
from ringloop.serve._failures import (
    access,
    check_returned,
    checked_headers,
    log,
    report,
    unexpected,
)
from ringloop.serve._scope import place, target

if TYPE_CHECKING:
    from ringloop.serve._settings import Application

__all__ = ["EXTENSIONS", "Request"]

EXTENSIONS: dict[str, dict[str, Any]] = {
    "http.response.early_hint": {},
    "http.response.trailers": {},
    "http.response.pathsend": {},
}

_FILE_BYTES = 256 << 10
_INTERNAL_ERROR = 0x102
_EXPECTED = {
    "start": "'http.response.start'",
    "body": "'http.response.body'",
    "trailers": "'http.response.trailers'",
    "complete": "none, as the response is complete",
}
_FAILED = {
    "type": "http.response.start",
    "status": 500,
    "headers": [(b"content-type", b"text/plain; charset=utf-8")],
}
_FAILED_BODY = {"type": "http.response.body", "body": b"Internal Server Error"}


class Request(_h3.AsgiRequest, h3.Request):
    """A request that an application answers.

    Errors of `send_message`: ConnectionError once the client is gone or wants no more; RuntimeError
    for an unexpected message, and for a body that does not match its `content-length`.
    """

    _asgi_scope: dict[str, Any]
    _is_received = False
    _has_continued = False
    # The error that has told the application of the client's end.
    _told: ConnectionError | None = None
    _trailers: tuple[tuple[bytes, bytes], ...] = ()

    async def run(self, application: Application, template: dict[str, Any]) -> None:
        """Have an application respond; its failure is logged, and ends the response."""
        self._asgi_scope = scope = self._scope(template)
        has_returned = False
        try:
            try:
                returned = await application(scope, self.receive_message, self.send_message)
                has_returned = True
            except Exception as error:  # noqa: BLE001  # it is logged
                report(error, self._told)
            else:
                if returned is not None:
                    check_returned(returned)
            if (phase := self._phase) != "complete":
                if has_returned and self._told is None:
                    missing = "starting" if phase == "start" else "completing"
                    log.error("ASGI callable returned without %s response.", missing)
                await self._fail(phase)
        except BaseException:
            self.cancel(_INTERNAL_ERROR)
            raise

    async def _fail(self, phase: str) -> None:
        """End a response that is not complete: by status 500, or a reset behind its first part."""
        try:
            if phase == "start" and not self.has_ended and self._told is None:
                await self.send_message(_FAILED)
                await self.send_message(_FAILED_BODY)
            else:
                self.cancel(_INTERNAL_ERROR)
        except ConnectionError:
            # Its client is gone.
            self.cancel(_INTERNAL_ERROR)
        self._complete()

    # What the application receives.

    async def receive_message(self) -> dict[str, Any]:
        """Return the next part of the request's body; after its end wait for the disconnect."""
        try:
            if self._is_received or self._told is not None:
                await self._until_over()
                return {"type": "http.disconnect"}
            while (message := self._receive()) is None:
                self._continue()
                await self._read_waiter()
        except ConnectionError as error:
            self._told = self._told or error
            return {"type": "http.disconnect"}
        self._is_received = not message["more_body"]
        return message

    def _continue(self) -> None:
        """Ask for the body once, where the client waits for that."""
        if self._has_continued:
            return
        self._has_continued = True
        expected = self.header("expect") or ""
        if expected.lower() == "100-continue" and self._phase == "start":
            self.send_headers([(b":status", b"100")])

    async def _until_over(self) -> None:
        """Wait until the response has arrived, or the client wants no more of it."""
        while self._phase != "complete" and self._told is None:
            await self._end_waiter()

    # What the application sends.

    async def send_message(self, message: dict[str, Any]) -> None:
        """Send a part of the response; waits while the client is not reading."""
        if self._told is not None:
            raise self._told
        try:
            if (rest := self._send(message)) is not None:
                await rest
        except ConnectionError as error:
            self._told = error
            raise

    async def _send_other(self, message: dict[str, Any]) -> None:
        """Send what is not the start or a part of a plain response."""
        match self._phase, message["type"]:
            case "start", "http.response.early_hint":
                links = [(b"link", link) for link in message["links"]]
                self.send_headers([(b":status", b"103"), *checked_headers(links)])
            case "body", "http.response.pathsend":
                await self._send_file(message["path"])
            case "trailers", "http.response.trailers":
                await self._add_trailers(message)
            case phase, _:
                raise unexpected(message, _EXPECTED[phase])

    async def _send_file(self, path: str) -> None:
        message = {"type": "http.response.body", "more_body": True}
        file = await asyncio.to_thread(open, path, "rb")
        try:
            is_wanted = self._asgi_scope["method"] != "HEAD"
            while is_wanted and (part := await asyncio.to_thread(file.read, _FILE_BYTES)):
                await self.send_message({**message, "body": part})
        finally:
            file.close()
        await self.send_message({"type": "http.response.body"})

    async def _add_trailers(self, message: dict[str, Any]) -> None:
        self._trailers += tuple(checked_headers(message.get("headers", ())))
        if message.get("more_trailers", False):
            return
        self._complete()
        if self._trailers:
            self.send_trailers(self._trailers)
        else:
            await self.send(b"", end=True)

    def _log(self, status: int) -> None:
        """Write a line of the access log."""
        scope = self._asgi_scope
        access.info(
            '%s - "%s %s HTTP/%s" %d',
            place(scope),
            scope["method"],
            target(scope),
            scope["http_version"],
            status,
        )
