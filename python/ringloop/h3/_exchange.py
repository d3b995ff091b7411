"""Requests and responses: the native exchange, plus the calls that wait.

Owns: nothing; native code holds received data. Called by: programs. Never does: make a future if
data or buffer space is available.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from ringloop._native import h3 as _h3
from ringloop.quic.errors import StreamClosedError

if TYPE_CHECKING:
    from ringloop.h3._priority import Priority
    from ringloop.quic._connection import Connection

    _Data = bytes | bytearray | memoryview
    _Sent = Mapping[str, str | bytes] | Iterable[tuple[str | _Data, str | _Data]]

__all__ = ["Exchange", "Fields", "Request", "Response", "encoded"]

_Text: TypeAlias = str | bytes
Fields: TypeAlias = Mapping[str, _Text] | Iterable[tuple[_Text, _Text]]
"""Header fields: a mapping, or pairs of a name and a value; text is sent in Latin-1."""

_READ_BYTES = 1 << 16
_REQUEST_CANCELLED = 0x10C
_INTERIM = range(100, 200)


def encoded(fields: _Sent) -> list[tuple[bytes, bytes]]:
    """Return fields as pairs of bytes."""
    pairs = fields.items() if isinstance(fields, Mapping) else fields
    try:
        return [(_bytes(name), _bytes(value)) for name, value in pairs]
    except UnicodeError:
        raise
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{error}: fields are a mapping, or pairs of a name and a value, each str or bytes"
        ) from None


def _bytes(text: Any) -> bytes:
    if isinstance(text, str):
        return text.encode("latin-1")
    if isinstance(text, (bytes, bytearray, memoryview)):
        return text  # type: ignore[return-value]  # native code copies it
    raise TypeError(f"{text!r} is not a field's name or value")


class Exchange(_h3.Exchange):
    """A request and its response: read what the peer sends, write what this end sends.

    Up to 256 KiB of an unread body are buffered; then the peer has to wait. An exchange that is no
    longer referenced is cancelled if it is not complete.
    """

    if TYPE_CHECKING:

        @property
        def connection(self) -> Connection: ...

    # What ended the exchange here, where that was no call of the program's.
    _failure: Exception | None = None
    # Of the body: taken by a read to its end that was cancelled.
    _left = b""

    async def read(self, n: int = -1) -> bytes:
        """Read at most `n` bytes of the body as soon as any have arrived; b"" at its end.

        Without `n`, or if it is negative, read up to the end. A cancelled read loses no data.

        Errors: `StreamResetError`: the peer has reset its message; `MessageError`: it is malformed;
        `StreamClosedError`: it was cancelled here; `ConnectionClosed`.
        """
        if n < 0:
            return await self._read_rest()
        if self._left and n:
            data, self._left = self._left[:n], self._left[n:]
            return data
        try:
            while (taken := self._take(n)) is None:
                await self._read_waiter()
        except StreamClosedError:
            if self._failure is None:
                raise
        else:
            return taken
        raise self._failure

    async def _read_rest(self) -> bytes:
        pieces = []
        try:
            while data := await self.read(_READ_BYTES):
                pieces.append(data)
        except asyncio.CancelledError:
            self._left = b"".join(pieces)
            raise
        return b"".join(pieces)

    async def chunks(self, n: int = _READ_BYTES) -> AsyncIterator[bytes]:
        """Yield the body as it arrives, in pieces of at most `n` bytes."""
        while data := await self.read(n):
            yield data
            del data

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.chunks()

    def send_headers(self, headers: _Sent, end: bool = False) -> None:
        """Send a field section of a response: interim ones (`:status` is 1xx), then the final one.

        After that, or after a request, it is the trailers, which end the message. With `end` the
        final response has no body.
        """
        super().send_headers(encoded(headers), end)

    def send_trailers(self, trailers: _Sent) -> None:
        """Send the fields that follow the body; they end the message."""
        super().send_trailers(encoded(trailers))

    async def receive_datagram(self) -> bytes:
        """Return the next HTTP datagram of the exchange (RFC 9297); wait until there is one."""
        while (datagram := self.take_datagram()) is None:
            await self._datagram_waiter()
        return datagram

    async def drain(self) -> None:
        """Wait until QUIC has taken everything that was sent: the peer's window has space again."""
        while (waiter := self._drain_waiter()) is not None:
            await waiter

    _drain = drain

    async def _wait_head(self) -> None:
        try:
            while not self._has_head():
                await self._read_waiter()
        except StreamClosedError:
            if self._failure is None:
                raise
        else:
            return
        raise self._failure


class Request(Exchange):
    """A request that a server received; answer it with `respond`, or with `start` and then `send`."""

    has_responded = False

    async def respond(self, status: int = 200, headers: Fields = (), body: _Data = b"") -> None:
        """Send a complete response; send interim ones (1xx) with `start`.

        `ValueError`: a field cannot be sent, or `body` does not have the length that `content-length`
        declares. To HEAD, and with status 204 or 304, the body is not sent (RFC 9110 §6.4.1).
        """
        if status in _INTERIM:
            raise ValueError(f"status is {status}, of an interim response: give it to start()")
        self.start(status, headers, end=not body)
        if body:
            await self.send(body, end=True)

    def start(self, status: int = 200, headers: Fields = (), *, end: bool = False) -> None:
        """Send the status and the fields of a response; any interim ones (1xx) come first.

        With `end` it has no body; otherwise `send` sends it.
        """
        super().send_headers([(b":status", b"%d" % status), *encoded(headers)], end)
        self.has_responded = status >= 200  # noqa: PLR2004

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.path} on stream {self.stream_id}>"


class Response(Exchange):
    """The response to a request of a client, whose body may still be on its way to the server.

    As a context manager, it is cancelled at the end if it is not complete.
    """

    _sender: asyncio.Task[None] | None = None

    def set_priority(self, priority: Priority) -> None:
        """Change the priority of the request (RFC 9218 §7.1)."""
        self._send_priority(priority.urgency, priority.incremental)

    def cancel(self, code: int = _REQUEST_CANCELLED) -> None:
        """Cancel the request and the response. Does nothing if they are complete."""
        if self._sender is not None:
            self._sender.cancel()
        super().cancel(code)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()

    def __repr__(self) -> str:
        return f"<Response {self.status} on stream {self.stream_id}>"
