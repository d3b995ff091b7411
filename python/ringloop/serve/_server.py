"""One server: an application behind TCP and QUIC, on the running loop.

uvicorn is used as a library: its configuration wraps and logs, its server owns the connections of
HTTP/1.1. The application's lifespan is one for both.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import uvicorn
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from ringloop import h3
from ringloop._arguments import check_bools
from ringloop._native import quic as _quic
from ringloop.quic.keywords import EndpointKeywords
from ringloop.serve import _http, _websocket, _webtransport
from ringloop.serve._certificates import Certificates
from ringloop.serve._failures import log
from ringloop.serve._listen import bound
from ringloop.serve._scope import address, template
from ringloop.webtransport import is_session_request, offered_protocols

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Coroutine

    from ringloop.quic import Connection
    from ringloop.serve._listen import Listeners
    from ringloop.serve._settings import Address, Application, Settings

__all__ = ["Server", "StartupError"]

_NOT_IMPLEMENTED = 501
_EXTENSIONS = {
    "http": _http.EXTENSIONS,
    "websocket": _websocket.EXTENSIONS,
    "webtransport": _webtransport.EXTENSIONS,
}


class StartupError(Exception):
    """The application could not be loaded, or refused to start; the log says why."""


class Server:
    """Serves an ASGI 3 application as described by `settings`.

    `application` is one, or its import string: `"module:attribute"`; with `is_factory` it is called
    without arguments, and returns the application. As a context manager it is started at the
    beginning, and shut down at the end. `listeners`: sockets to use instead of the settings' addresses.

    Errors of `start`: `StartupError`; OSError of an address or a file; ValueError of certificates.
    """

    def __init__(
        self,
        application: Application | str,
        settings: Settings,
        *,
        is_factory: bool = False,
        listeners: Listeners | None = None,
    ) -> None:
        check_bools(is_factory=is_factory)
        self._application = application
        self._settings = settings
        self._is_factory = is_factory
        self._listeners = listeners
        self._open: set[_websocket.WebSocket | _webtransport.WebTransport] = set()
        self._ending: asyncio.Task[None] | None = None
        self._ends = asyncio.Event()
        self._is_started = False
        # How often `shut_down` was called before that.
        self._asked = 0
        # The task of the application's lifespan, which is over once its shutdown is.
        self._living: asyncio.Task[None] | None = None
        self._is_leaving = False

    async def start(self) -> None:
        """Start the application, and accept connections."""
        settings = self._settings
        listeners = self._listeners
        try:
            self._certificates = Certificates(settings)
            listeners = listeners or bound(settings)[0]
            self._quic_address: Address = address(listeners.quic.getsockname())
            tcp = listeners.tcp
            self._tcp_address: Address | None = None if tcp is None else tcp.getsockname()[:2]
            config = self._configured()
            await self._start_application(config)
        except BaseException:
            if listeners is not None:
                listeners.close()
            raise
        self._app: Any = config.loaded_app
        # It looks for fields of a proxy, which most requests have not.
        is_wrapped = type(self._app) is ProxyHeadersMiddleware
        self._app_unproxied: Any = self._app.app if is_wrapped else self._app
        common = (settings.root_path, self._quic_address, self._lifespan.state)
        self._templates = {
            kind: template(kind, extensions, *common) for kind, extensions in _EXTENSIONS.items()
        }
        self._templates["http"]["method"] = None
        self._tcp_sockets = [] if tcp is None else [tcp]
        self._uvicorn = uvicorn.Server(config)
        self._uvicorn.lifespan = _Started(self._lifespan.state)  # type: ignore[assignment]
        await self._uvicorn.startup(sockets=self._tcp_sockets)
        # The date of responses, now and then each second.
        await self._uvicorn.on_tick(0)
        self._ticking = asyncio.get_running_loop().create_task(self._uvicorn.main_loop())
        self._http = self._serve_quic(listeners)
        self._log_addresses()
        self._is_started = True
        for _ in range(self._asked):
            self.shut_down()

    async def _start_application(self, config: uvicorn.Config) -> None:
        self._lifespan: Any = config.lifespan_class(config)
        if (main := getattr(self._lifespan, "main", None)) is not None:
            self._lifespan.main = partial(self._live, main)
        await self._lifespan.startup()
        if self._asked > 1:
            raise StartupError("shut down before the application had started")
        if self._lifespan.should_exit:
            raise StartupError("the application has refused to start")

    async def _live(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._living = asyncio.current_task()
        await main()

    def _cut_lifespan(self) -> None:
        """Cancel an application that starts or ends: uvicorn waits for it without an end."""
        if self._living is not None and not self._living.done():
            # It is no exception of the application's, which uvicorn would log.
            self._lifespan.startup_failed |= not self._lifespan.startup_event.is_set()
            self._lifespan.shutdown_failed = True
            self._living.cancel()

    def _log_addresses(self) -> None:
        served = [] if self._tcp_address is None else [("HTTP/1.1", self._tcp_address)]
        served.append(("HTTP/3", self._quic_address))
        text = ", ".join(f"{name} at {host}:{port}" for name, (host, port) in served)
        log.info("Serving %s (process %d)", text, os.getpid())

    def _configured(self) -> uvicorn.Config:
        settings = self._settings
        headers = [("server", "ringloop")]
        if seconds := settings.alt_svc_seconds:
            port = settings.alt_svc_port or self._quic_address[1]
            headers.append(("alt-svc", f'h3=":{port}"; ma={seconds}'))
        config = uvicorn.Config(
            self._application,
            factory=self._is_factory,
            log_config=None,
            access_log=settings.access_log,
            lifespan=settings.lifespan,
            root_path=settings.root_path,
            headers=headers,
            ws_max_size=settings.websocket_bytes_max,
            timeout_graceful_shutdown=settings.graceful_seconds,
            workers=1,
        )
        try:
            config.load()
        except SystemExit:
            raise StartupError("the application was not loaded") from None
        config.ssl = self._certificates.context
        return config

    def _serve_quic(self, listeners: Listeners) -> h3.Server:
        """Serve HTTP/3, with the settings' keywords parted in those of TLS and those of the socket."""
        of_endpoint = EndpointKeywords.__annotations__
        given = self._settings.quic
        configuration = _quic.ServerConfig(
            **self._certificates.keywords(),
            alpn=["h3"],
            **{
                "reset_stream_at": True,
                **{name: value for name, value in given.items() if name not in of_endpoint},
            },
        )
        self._certificates.add(configuration)
        try:
            return _Http3(
                listeners.quic,
                self,
                server=configuration,
                worker=listeners.worker,
                webtransport=True,
                **{name: value for name, value in given.items() if name in of_endpoint},
            )
        except BaseException:
            listeners.quic.close()
            raise

    # Requests of HTTP/3.

    def _answering(self, connection: Connection, stream_id: int) -> Coroutine[Any, Any, None]:
        """Return what answers the request of a stream."""
        headers, logs = self._uvicorn.server_state.default_headers, self._settings.access_log
        request = _http.Request(connection, stream_id, headers, logs)
        if request.method == "CONNECT":
            return self._http._handle_request(request)
        application = self._app if request._is_forwarded else self._app_unproxied
        return request.run(application, self._templates["http"])

    async def _handle(self, request: h3.Request) -> None:
        """Handle a request of another scope than `http`."""
        match request.protocol:
            case "websocket":
                scope = request._scope(self._templates["websocket"])
                scope.update(scheme="wss", subprotocols=_websocket.subprotocols(request))
                opened = _websocket.WebSocket(request, scope, self._settings.websocket_bytes_max)
                self._open.add(opened)
                try:
                    await opened.run(self._app)
                finally:
                    self._open.discard(opened)
            case _ if is_session_request(request):
                await self._handle_session(request)
            case _:
                request.start(_NOT_IMPLEMENTED, end=True)

    async def _handle_session(self, request: h3.Request) -> None:
        scope = request._scope(self._templates["webtransport"])
        scope["subprotocols"] = offered_protocols(request)
        opened = _webtransport.WebTransport(request, scope)
        # Its stream is the session's from then on.
        del request
        self._open.add(opened)
        try:
            await opened.run(self._app)
        finally:
            self._open.discard(opened)

    # What is known of it.

    @property
    def quic_address(self) -> Address:
        """Where HTTP/3 is served."""
        return self._quic_address

    @property
    def tcp_address(self) -> Address | None:
        """Where HTTP/1.1 is served."""
        return self._tcp_address

    def reload_certificates(self) -> bool:
        """Reload the certificates, for later handshakes; return whether all of them are valid.

        Otherwise the previous ones stay, and the log says why.
        """
        try:
            self._certificates.reload()
        except (OSError, ValueError):
            log.exception("The certificates were not replaced")
            return False
        log.info("The certificates were replaced")
        return True

    # The end.

    def shut_down(self) -> None:
        """Accept no more requests, and end when open ones have ended; `wait_closed()` waits.

        Called again, it cuts them off. While the application starts, it ends once that has started;
        called again, the application is cancelled, and `start` raises `StartupError`. An application
        that does not end is cancelled, too.
        """
        if not self._is_started:
            self._asked += 1
            if self._asked > 1:
                self._cut_lifespan()
            else:
                log.info("Shutting down once the application has started")
        elif self._ending is None:
            self._ends.set()
            self._ending = asyncio.get_running_loop().create_task(self._shut_down())
        else:
            self.abort()

    def abort(self) -> None:
        """Cut off open requests, or an application that does not end."""
        if self._is_leaving:
            self._cut_lifespan()
            return
        self._uvicorn.force_exit = True
        for task in self._uvicorn.server_state.tasks:
            task.cancel()
        self._abort_tcp()
        self._http.abort()

    def _abort_tcp(self) -> None:
        for connection in list(self._uvicorn.server_state.connections):
            connection.transport.abort()

    async def wait_closed(self) -> None:
        """Wait for the end that `shut_down` initiates."""
        await self._ends.wait()
        assert self._ending is not None, "set before"  # noqa: S101
        await asyncio.shield(self._ending)

    async def _shut_down(self) -> None:
        self._uvicorn.should_exit = True
        await self._ticking
        await asyncio.gather(
            self._uvicorn.shutdown(sockets=self._tcp_sockets),
            self._http.shut_down(self._settings.graceful_seconds),
            *(opened.shut_down() for opened in self._open),
        )
        # Those of requests that took too long.
        self._abort_tcp()
        self._is_leaving = True
        await self._lifespan.shutdown()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._ending is None:
            self.shut_down()
        await self.wait_closed()


class _Http3(h3.Server):
    """HTTP/3 of a server: of its requests those of CONNECT alone are for the handler."""

    def __init__(self, sock: socket.socket, asgi: Server, **keywords: Any) -> None:
        super().__init__(sock, asgi._handle, **keywords)
        self._handling = asgi._answering  # type: ignore[method-assign]


class _Started:
    """A lifespan for uvicorn that others begin and end."""

    should_exit = False

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    async def startup(self) -> None:
        """Do nothing: it has started."""

    async def shutdown(self) -> None:
        """Do nothing: HTTP/3 may still have requests."""
