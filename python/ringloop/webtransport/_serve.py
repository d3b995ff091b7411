"""Servers: accepting a request as a session, and a server for sessions only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from ringloop._native import quic as _quic
from ringloop._native import webtransport as _webtransport
from ringloop.h3._exchange import encoded
from ringloop.h3._limits import limits_of
from ringloop.h3._server import Server as _Server
from ringloop.quic._keywords import check_functions, refuse_unknown, shows
from ringloop.quic._serve import begun
from ringloop.quic.keywords import ServeKeywords
from ringloop.webtransport._session import Session

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from ringloop.h3._exchange import Fields, Request
    from ringloop.h3._limits import SessionLimits
    from ringloop.quic._workers import Worker
    from ringloop.quic.errors import ConnectionClosed

__all__ = ["Server", "accept", "is_session_request", "offered_protocols", "serve"]

Server = _Server

_TOKENS = ("webtransport", "webtransport-h3")


def is_session_request(request: Request) -> bool:
    """Whether a request asks for a session, by any draft."""
    return request.protocol in _TOKENS


async def accept(request: Request, *, protocol: str | None = None, headers: Fields = ()) -> Session:
    """Accept a request of a `ringloop.h3` server as a session, which then owns the request's stream.

    To refuse it, respond with a status that is not 2xx: `await request.respond(404)`. The server must
    allow sessions: `ringloop.h3.serve(..., webtransport=True)`. `protocol` is one of the sub-protocols
    that the client offers (`offered_protocols`); `headers` are those of the response.

    `ValueError`: the client does not offer this sub-protocol, or a field cannot be sent;
    `StreamClosedError`: the request is not for a session, was answered, or was cancelled by the client.
    """
    _webtransport.accept(request, encoded(headers), protocol)
    return Session(request.connection, request.stream_id)


def offered_protocols(request: Request) -> list[str]:
    """Return the sub-protocols that a request for a session offers, the client's preferred one first."""
    return request._offered_protocols


@shows(ServeKeywords, _quic.ServerConfig, _quic.Endpoint)
async def serve(
    handler: Callable[[Session], Awaitable[object]],
    host: str | None = None,
    port: int = 0,
    *,
    paths: Collection[str] | None = None,
    origins: Collection[str] | None = None,
    protocols: Sequence[str] = (),
    accepts: Callable[[Request], Awaitable[Session | None]] | None = None,
    request_handler: Callable[[Request], Awaitable[object]] | None = None,
    limits: SessionLimits | None = None,
    configuration: _quic.ServerConfig | None = None,
    on_handshake_failed: Callable[[Any, ConnectionClosed], object] | None = None,
    sock: socket.socket | None = None,
    reuse_port: bool = False,
    worker: Worker | None = None,
    **keywords: Unpack[ServeKeywords],
) -> Server:
    """Serve WebTransport sessions at an address; `handler(session)` runs as a task for each.

    The session is closed when it returns, with code 0, or raises, with code 1. Takes the keywords of
    `ringloop.quic.serve`, and raises its errors; `alpn` is `["h3"]` by default.

    A request for a session gets status 404 unless its path (without the query) is one of `paths`, and
    403 if it comes from a page of an origin that is not one of `origins`; None allows any. Programs
    send no origin. The session's sub-protocol is the first of `protocols` that the client offers.
    `accepts(request)` replaces these rules: it returns the result of `accept()` for the request, or
    responds to it and returns None.

    `request_handler(request)` responds to all other requests; without it they get status 404.
    """
    refuse_unknown(serve, keywords)
    if configuration is None:
        keywords.setdefault("alpn", ["h3"])
        keywords.setdefault("reset_stream_at", True)
    if handler is None:
        raise TypeError("handler is None: give a function")
    check_functions(handler=handler, accepts=accepts, request_handler=request_handler)
    limits = limits_of(limits)
    step = accepts or _Step(paths, origins, protocols)

    async def handle(request: Request) -> None:
        if not is_session_request(request):
            await (request.respond(404) if request_handler is None else request_handler(request))
            return
        session = await step(request)
        # The session has its stream.
        del request
        if session is not None:
            async with session:
                await handler(session)

    def make(sock: socket.socket, server: _quic.ServerConfig, settings: dict[str, Any]) -> Server:
        return Server(
            sock,
            handle,
            webtransport=limits,
            server=server,
            on_handshake_failed=on_handshake_failed,
            worker=worker,
            **settings,
        )

    where = (host, port, sock, reuse_port)
    return await begun(make, where, configuration, worker, {**keywords})


class _Step:
    """Whether a session is taken, by what `serve` was given."""

    def __init__(
        self,
        paths: Collection[str] | None,
        origins: Collection[str] | None,
        protocols: Sequence[str],
    ) -> None:
        for name, texts in (("paths", paths), ("origins", origins), ("protocols", protocols)):
            if isinstance(texts, str):
                raise TypeError(f"{name} is {texts!r}: give a list of them")
        self._paths = paths
        self._origins = origins
        self._protocols = protocols

    async def __call__(self, request: Request) -> Session | None:
        path = (request.path or "").partition("?")[0]
        if self._paths is not None and path not in self._paths:
            await request.respond(404)
            return None
        origins = [
            value.decode("latin-1") for name, value in request.headers or () if name == b"origin"
        ]
        if self._origins is not None and any(origin not in self._origins for origin in origins):
            await request.respond(403)
            return None
        offered = offered_protocols(request)
        chosen = next((name for name in self._protocols if name in offered), None)
        return await accept(request, protocol=chosen)
