"""A server: a handler that is called with each request."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Unpack

from ringloop._native import h3 as _h3
from ringloop._native import quic as _quic
from ringloop._native import webtransport as _webtransport
from ringloop.h3._exchange import Request
from ringloop.h3._limits import SessionLimits
from ringloop.quic._endpoint import Endpoint, _is_all
from ringloop.quic._failures import Failures
from ringloop.quic._keywords import check_functions, refuse_unknown, shows
from ringloop.quic._serve import begun
from ringloop.quic.errors import ConnectionClosed, StreamResetError, StreamStoppedError
from ringloop.quic.keywords import EndpointKeywords, ServeKeywords

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Coroutine

    from ringloop.quic._connection import Connection
    from ringloop.quic._workers import Worker

__all__ = ["Server", "serve"]

_NO_ERROR = 0x100
_INTERNAL_ERROR = 0x102
# The codes with which connections end because of their clients (RFC 9114 §8.1, RFC 9204 §6, RFC 9297
# §5.2).
_VIOLATIONS = frozenset([0x33, 0x101, *range(0x103, 0x10B), *range(0x200, 0x203)])
# How long a client that does not answer keeps others from their limit.
_ANNOUNCEMENT_SECONDS = 1.0
# How long a client that has all responses may take to read them, and close.
_CLOSE_SECONDS = 0.25


class Server(Endpoint):
    """An HTTP/3 server on one UDP socket; each request is handled by a task.

    `handler(request)` has to respond: if it raises, or returns without responding, the client gets
    status 500, or a reset if a part of the response was sent.

    Memory: up to 256 KiB of each unread request body are buffered, so 25 MiB per connection with the
    default `max_streams_bidi` of 100; beyond that QUIC's windows limit the client: `max_stream_data`
    per stream, `max_data` (`max_data_grown`) per connection, 64 MiB by default. A server with many
    untrusted clients should set these lower.

    A client that violates the protocol loses its connection; that is logged (`ringloop.quic`), at most
    ten times a second.
    """

    _drives_http = True

    @shows(EndpointKeywords, _quic.Endpoint)
    def __init__(
        self,
        sock: socket.socket,
        handler: Callable[[Request], Awaitable[object]],
        *,
        webtransport: bool | SessionLimits = False,
        server: _quic.ServerConfig | None = None,
        on_handshake_failed: Callable[[Any, ConnectionClosed], object] | None = None,
        worker: Worker | None = None,
        **settings: Unpack[EndpointKeywords],
    ) -> None:
        if handler is None:
            raise TypeError("handler is None: give a function")
        check_functions(handler=handler)
        if not isinstance(webtransport, bool | SessionLimits):
            raise TypeError(f"webtransport is {webtransport!r}: give a bool, or SessionLimits")
        self._request_handler = handler
        super().__init__(
            sock,
            server=server,
            on_handshake_failed=on_handshake_failed,
            worker=worker,
            **settings,
        )
        self._violations = Failures(self._loop, None, _ignored, "connection")
        if webtransport:
            limits = SessionLimits() if webtransport is True else webtransport
            _webtransport.host(self._native, *limits._native())

    def _let_in(self, key: int) -> None:
        self._add(key)
        self._take_streams(key)

    def _take_streams(self, key: int) -> None:
        connection = self._connections[key]
        for stream_id in _h3.take_ready(connection):
            self._start(self._handling(connection, stream_id))

    def _handling(self, connection: Connection, stream_id: int) -> Coroutine[Any, Any, None]:
        """Return what handles the request of a stream."""
        return self._handle_request(Request(connection, stream_id))

    async def _handle_request(self, request: Request) -> None:
        try:
            await self._request_handler(request)
            if not request.has_ended:
                # Where the client is gone there is nothing to finish.
                with suppress(ConnectionError):
                    await _finish(request)
        except Exception as error:  # noqa: BLE001  # the server goes on
            _give_up(request)
            # Where the peer is gone, or wants no more, there is nothing to report.
            if not _is_all(error, ConnectionClosed, StreamResetError, StreamStoppedError):
                self._report(error, request.connection, "a handler of an HTTP/3 request")
        except BaseException:
            request.cancel(_INTERNAL_ERROR)
            raise

    def _forgotten(self, connection: Connection) -> None:
        error = connection.error
        if not isinstance(error, ConnectionClosed) or error.by_peer:
            return
        if error.code in _VIOLATIONS:
            self._violations.log(connection.remote_address, error)

    async def wait_closed(self, *, linger: bool = False) -> None:
        """Wait for handlers to end, notify all clients, and close the socket (see `Endpoint`)."""
        try:
            await super().wait_closed(linger=linger)
        finally:
            for connection in self._connections.values():
                self._forgotten(connection)
            self._violations.close()

    async def shut_down(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # a grace period
        """Shut down gracefully: refuse new clients, send GOAWAY, finish open requests, and close.

        Requests that a client sent before the GOAWAY arrived are processed (RFC 9114 §5.2). When this
        returns, clients have all responses. After `timeout` seconds the remaining requests are cut
        off; None: no limit.
        """
        deadline = asyncio.timeout(timeout)
        self._native.set_server(None)
        try:
            async with deadline:
                await asyncio.gather(*map(_go_away, self.connections))
                while self._tasks:
                    await asyncio.wait(self._tasks)
                await asyncio.gather(*map(_delivered, self.connections))
        except TimeoutError:
            self.abort()
        self.close()
        await self.wait_closed()

    def abort(self) -> None:
        """Cancel all handlers, and close; then `wait_closed()`."""
        for task in self._tasks:
            task.cancel()
        self.close()

    def close(self, code: int = _NO_ERROR, reason: str = "") -> None:
        """Close all connections, and accept no more; then `wait_closed()`."""
        super().close(code, reason)


def _ignored(error: BaseException) -> None:
    """Take the errors of a callback that is not there."""


async def _go_away(connection: Connection) -> None:
    """Announce the end of a connection, and set its limit once the client knows of it."""
    _h3.go_away(connection, announce=True)
    with suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(_ANNOUNCEMENT_SECONDS):
            await connection.ping()
    _h3.go_away(connection)


async def _delivered(connection: Connection) -> None:
    """Wait until the client has acknowledged all responses, or is gone.

    Acknowledged is not read, and clients such as curl drop at a close what they have not read: one
    that has read its last response has a moment to close.
    """
    with suppress(ConnectionError):
        while _h3.unacknowledged_count(connection):
            await connection.ping()
    with suppress(TimeoutError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await connection.wait_closed()


def _give_up(request: Request) -> None:
    """End the response of a handler that has failed."""
    if request.has_responded or request.has_ended or request.connection.is_closed:
        request.cancel(_INTERNAL_ERROR)
        return
    try:
        request.start(500, end=True)
    except StreamStoppedError:
        # The client wants no response.
        request.cancel(_INTERNAL_ERROR)


async def _finish(request: Request) -> None:
    """End the response of a handler that has not."""
    if request.connection.is_closed:
        return
    if request.has_responded:
        await request.send(b"", end=True)
    else:
        request.start(500, end=True)


@shows(ServeKeywords, _quic.ServerConfig, _quic.Endpoint)
async def serve(
    handler: Callable[[Request], Awaitable[object]],
    host: str | None = None,
    port: int = 0,
    *,
    configuration: _quic.ServerConfig | None = None,
    on_handshake_failed: Callable[[Any, ConnectionClosed], object] | None = None,
    sock: socket.socket | None = None,
    reuse_port: bool = False,
    worker: Worker | None = None,
    webtransport: bool | SessionLimits = False,
    **keywords: Unpack[ServeKeywords],
) -> Server:
    """Serve HTTP/3 at an address: `handler(request)` runs as a task for each request.

    Takes the keywords of `ringloop.quic.serve`, and raises its errors; `alpn` is `["h3"]` by default.
    With `webtransport`, which is True or `SessionLimits`, requests may also be for sessions
    (`ringloop.webtransport.is_session_request`); the handler accepts them with
    `ringloop.webtransport.accept`.
    """
    refuse_unknown(serve, keywords)
    if configuration is None:
        keywords.setdefault("alpn", ["h3"])
        if webtransport:
            keywords.setdefault("reset_stream_at", True)

    def make(sock: socket.socket, server: _quic.ServerConfig, settings: dict[str, Any]) -> Server:
        return Server(
            sock,
            handler,
            server=server,
            on_handshake_failed=on_handshake_failed,
            worker=worker,
            webtransport=webtransport,
            **settings,
        )

    where = (host, port, sock, reuse_port)
    return await begun(make, where, configuration, worker, {**keywords})
