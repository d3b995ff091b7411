"""HTTP/3 for httpx and httpx2: a transport of their asynchronous clients.

Owns: a pool, and the mapping of its responses and errors to those of the request's library.
Called by: the library's client. Never does: import the other library.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

from ringloop._native import quic as _quic
from ringloop.h3._phases import NO_TIMEOUTS, Phase, PhaseTimeout, Timeouts
from ringloop.h3._pool import Message, Pool
from ringloop.quic._keywords import refuse_unknown, shows
from ringloop.quic.errors import (
    ConfigurationError,
    ConnectError,
    ConnectionClosed,
    QuicError,
    StreamError,
    StreamStoppedError,
    Unreachable,
)
from ringloop.quic.keywords import ConnectKeywords

try:
    from httpx import AsyncBaseTransport
except ImportError:
    # The same interface.
    from httpx2 import AsyncBaseTransport  # type: ignore[assignment, no-redef]

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import ModuleType

    import httpx

    from ringloop.h3._alt_svc import AltSvcCache, Origin
    from ringloop.h3._exchange import Response
    from ringloop.quic.keywords import Address

__all__ = ["HTTPTransport"]

_HTTPS_PORT = 443
_PIECE_BYTES = 1 << 16
_REQUEST_CANCELLED = 0x10C
# Fields of a connection, which messages of HTTP/3 do not have (RFC 9114 §4.2); the host is `:authority`.
_LEFT_OUT = frozenset(
    [b"connection", b"host", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"]
)
_TIMEOUT_CLASSES = {
    "connect": "ConnectTimeout",
    "pool": "PoolTimeout",
    "write": "WriteTimeout",
    "read": "ReadTimeout",
}


class HTTPTransport(AsyncBaseTransport):
    """A transport for `httpx.AsyncClient(transport=…)` and httpx2's that speaks HTTP/3.

    Without `fallback`: HTTP/3 only, for https URLs. With a transport of the library as `fallback`,
    such as `httpx.AsyncHTTPTransport(http2=True)`: requests use HTTP/3 for origins whose responses
    named an alternative service (RFC 7838), once there is a connection to it; all others, and those
    until then, use the fallback. An unreachable service is not tried for five minutes.

    The library's time-outs apply, and its exceptions are raised. The keywords are those of `connect`;
    `alternatives` and `connections_max` are as for `Pool`.
    """

    @shows(ConnectKeywords, _quic.ClientConfig, _quic.Endpoint)
    def __init__(
        self,
        *,
        fallback: AsyncBaseTransport | None = None,
        connections_max: int = 100,
        alternatives: AltSvcCache | None = None,
        configuration: Any = None,
        local_address: Address | None = None,
        **keywords: Unpack[ConnectKeywords],
    ) -> None:
        refuse_unknown(HTTPTransport.__init__, keywords)
        self._pool = Pool(
            connections_max=connections_max,
            alternatives=alternatives,
            configuration=configuration,
            local_address=local_address,
            **keywords,
        )
        self._fallback = fallback
        self._pool._alternatives_only = fallback is not None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; read the response's body, or close it."""
        library = _library_of(request)
        url = request.url
        origin = (url.raw_host.decode("ascii"), url.port or _HTTPS_PORT)
        if url.scheme == "https":
            if self._fallback is None:
                return await self._send(library, request, origin)
            if self._pool._prepared(origin):
                try:
                    return await self._send(library, request, origin)
                except library.ConnectError:
                    # The connection has ended, and cannot be replaced; nothing was sent.
                    pass
        if self._fallback is None:
            raise library.UnsupportedProtocol(
                f"HTTP/3 is for https URLs, not {url.scheme!r}; or give a fallback=",
                request=request,
            )
        response = await self._fallback.handle_async_request(request)
        value = response.headers.get("alt-svc")
        if url.scheme == "https" and value is not None:
            self._pool.alternatives.store(origin, value)
        return response

    async def _send(
        self, library: ModuleType, request: httpx.Request, origin: Origin
    ) -> httpx.Response:
        timeouts = Timeouts(**request.extensions.get("timeout", NO_TIMEOUTS._asdict()))
        message = _message_of(library, request)
        try:
            response = await self._pool._request(origin, message, timeouts)
        except (OSError, ValueError, _BodyFailed) as error:
            _raise_as(library, request, error)
        stream = _body_class(library)(library, response, request, timeouts.read)
        return library.Response(  # type: ignore[no-any-return]
            response.status,
            headers=response.headers,
            stream=stream,
            extensions={"http_version": b"HTTP/3", "stream_id": response.stream_id},
        )

    async def aclose(self) -> None:
        """Close all connections, and the fallback."""
        try:
            await self._pool.aclose()
        finally:
            if self._fallback is not None:
                await self._fallback.aclose()


def _library_of(request: httpx.Request) -> ModuleType:
    """Return the module that a request is of."""
    for name in ("httpx", "httpx2"):
        library = sys.modules.get(name)
        if library is not None and isinstance(request, library.Request):
            return library
    raise TypeError(f"{request!r} is not a request of httpx or httpx2")


def _message_of(library: ModuleType, request: httpx.Request) -> Message:
    headers = [pair for pair in request.headers.raw if pair[0].lower() not in _LEFT_OUT]
    authority: str | None = request.headers.get("host")
    body: bytes | AsyncIterator[bytes] | None
    try:
        body = request.content or None
    except library.RequestNotRead:
        body = _pieces_of(request)
    path = request.url.raw_path.decode("ascii")
    return Message(request.method, path, headers, body, authority=authority)


class _BodyFailed(Exception):  # noqa: N818
    """The request's body raised the cause of this, which is none of the connection's errors."""


async def _pieces_of(request: httpx.Request) -> AsyncIterator[bytes]:
    try:
        async for piece in request.stream:  # type: ignore[union-attr]
            yield piece
    except Exception as error:
        raise _BodyFailed from error


class _Body:
    """The body of a response; a library's client demands that it is of the library's own class."""

    def __init__(
        self,
        library: ModuleType,
        response: Response,
        request: httpx.Request,
        timeout: float | None,
    ) -> None:
        self._library = library
        self._response = response
        self._request = request
        self._timeout = timeout

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while True:
                async with Phase("read", self._timeout):
                    piece = await self._response.read(_PIECE_BYTES)
                if not piece:
                    return
                yield piece
        except (OSError, _BodyFailed) as error:
            self._response.cancel()
            _raise_as(self._library, self._request, error)

    async def aclose(self) -> None:
        self._response.cancel()


_BODIES: dict[str, type[Any]] = {}
"""By the library's name."""


def _body_class(library: ModuleType) -> type[Any]:
    name = library.__name__
    if name not in _BODIES:
        _BODIES[name] = type("Body", (_Body, library.AsyncByteStream), {})
    return _BODIES[name]


def _raise_as(library: ModuleType, request: httpx.Request, error: Exception) -> NoReturn:
    """Raise the library's exception for an error; what the program has raised stays as it is."""
    if isinstance(error, _BodyFailed) and error.__cause__ is not None:
        raise error.__cause__
    if (name := _name_of(error)) is None:
        raise error
    raise getattr(library, name)(str(error), request=request) from error


def _name_of(error: Exception) -> str | None:
    name: str | None = None
    match error:
        case PhaseTimeout():
            name = _TIMEOUT_CLASSES[error.phase]
        case ConnectionClosed() if isinstance(error, TimeoutError):
            name = "ConnectTimeout" if error.in_handshake else "ReadTimeout"
        case ConnectionClosed(in_handshake=True) | ConnectError() | Unreachable():
            name = "ConnectError"
        case StreamStoppedError():
            name = "WriteError"
        case StreamError() | ConnectionClosed(by_peer=True):
            name = "RemoteProtocolError"
        case QuicError():
            name = "ReadError"
        case OSError():
            # Of the look-up and the socket.
            name = "ConnectError"
        case ValueError() if not isinstance(error, ConfigurationError):
            name = "LocalProtocolError"
    return name
