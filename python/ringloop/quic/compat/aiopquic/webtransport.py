"""aiopquic's `asyncio.webtransport`, its sessions, client and server, on `ringloop.webtransport`.

Owns: how its sessions start, and its server. Called by: programs. Never does: start a thread; there
is no shared transport in aiopquic's sense.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import ssl
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from ringloop import webtransport
from ringloop.quic.compat.aiopquic._session import (
    WT_SESSION_GONE,
    WebTransportError,
    WebTransportSession,
)
from ringloop.quic.compat.aiopquic.configuration import QuicConfiguration
from ringloop.quic.compat.aiopquic.events import (
    WebTransportDatagramReceived,
    WebTransportNewStream,
    WebTransportSessionClosed,
    WebTransportSessionDraining,
    WebTransportSessionRefused,
    WebTransportStopSending,
    WebTransportStreamDataReceived,
    WebTransportStreamReset,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from ringloop.h3 import Request
    from ringloop.webtransport import Server, Session

    _Factory = Callable[[Any, Session], WebTransportSession]

__all__ = [
    "WT_SESSION_GONE",
    "WebTransportClient",
    "WebTransportDatagramReceived",
    "WebTransportError",
    "WebTransportNewStream",
    "WebTransportServer",
    "WebTransportServerSession",
    "WebTransportSession",
    "WebTransportSessionClosed",
    "WebTransportSessionDraining",
    "WebTransportSessionRefused",
    "WebTransportStopSending",
    "WebTransportStreamDataReceived",
    "WebTransportStreamReset",
    "connect_webtransport",
    "serve_webtransport",
]

_NOT_FOUND = 404
# As aiopquic responds to unsupported sub-protocols.
_BAD_REQUEST = 400


class WebTransportClient(WebTransportSession):
    """A session that this end requests by `open`; `connect_webtransport` makes and closes one.

    `transport` is None. The server is verified as `configuration` says.
    """

    def __init__(
        self,
        transport: None,
        host: str,
        port: int,
        path: str,
        sni: str | None = None,
        wt_available_protocols: Sequence[str] | None = None,
        *,
        configuration: QuicConfiguration | None = None,
    ) -> None:
        _refuse_transport(transport)
        super().__init__(transport, "client")
        self._target = (host, port)
        self._path = path or "/"
        self._sni = sni
        self._protocols = list(wt_available_protocols or ())
        self._configuration = configuration or QuicConfiguration()

    async def open(self, timeout: float = 10.0) -> None:  # noqa: ASYNC109  # its name
        """Connect, and request the session.

        Errors: WebTransportError if it is refused, or after `timeout` seconds; `OSError` of name
        resolution and of the socket.
        """
        host, port = self._target
        name = self._sni or self._configuration.server_name or host
        shown = f"[{name}]" if ":" in name else name
        try:
            async with asyncio.timeout(timeout):
                session = await webtransport.open_session(
                    f"https://{shown}:{port}{self._path}",
                    connect_to=(host, port),
                    server_name=name,
                    protocols=self._protocols,
                    configuration=_over_http(self._configuration).client_config(),
                    socket_buffer=self._configuration.socket_buffer_size,
                    versions=tuple(self._configuration.supported_versions),
                )
        except webtransport.SessionRejected as error:
            self._tell(WebTransportSessionRefused(error_code=error.status))
            raise WebTransportError(f"WT CONNECT refused (HTTP {error.status})") from error
        except TimeoutError as error:
            raise WebTransportError(f"WT CONNECT timed out after {timeout} s") from error
        except ConnectionError as error:
            raise WebTransportError(f"WT CONNECT failed: {error}") from error
        self._begin(session)


class WebTransportServerSession(WebTransportSession):
    """A session that a client requested; `state` is the session of `ringloop.webtransport`."""

    def __init__(self, transport: Any, state: Session) -> None:
        super().__init__(transport, "server", state)
        self._begin(state)


@asynccontextmanager
async def connect_webtransport(
    host: str,
    port: int,
    path: str,
    *,
    sni: str | None = None,
    wt_available_protocols: Sequence[str] | None = None,
    transport: None = None,
    timeout: float = 10.0,  # noqa: ASYNC109  # its name
    configuration: QuicConfiguration | None = None,
    verify_peer: bool | None = None,
    ca_file: str | None = None,
) -> AsyncGenerator[WebTransportClient, None]:
    """Open a session on its own connection; close both on exit.

    The server is verified by `ca_file`, or the configuration's authorities, or the system's;
    `verify_peer=False` accepts any server. `sni` is the name to request and to verify.

    Errors: WebTransportError if the session is refused, or after `timeout` seconds; `OSError` of name
    resolution and of the socket; ValueError for a `transport`.
    """
    _refuse_transport(transport)
    used = copy.copy(configuration or QuicConfiguration())
    if verify_peer is not None:
        used.verify_mode = ssl.CERT_REQUIRED if verify_peer else ssl.CERT_NONE
    if ca_file is not None:
        used.load_verify_locations(ca_file)
    client = WebTransportClient(
        None, host, port, path, sni, wt_available_protocols, configuration=used
    )
    _limit(client, configuration)
    try:
        await client.open(timeout)
        yield client
    finally:
        await client.aclose()
        await client.detach()


class WebTransportServer:
    """What `serve_webtransport` returns."""

    _server: Server

    def __init__(self) -> None:
        self._sessions: set[WebTransportSession] = set()
        self._closing: asyncio.Task[None] | None = None

    @property
    def sockname(self) -> Any:
        """The socket's address."""
        return self._server.address

    async def aclose(self) -> None:
        """Close every session with code 0, then the server, and wait for that."""
        for session in list(self._sessions):
            session.close()
        self.close()
        if self._closing is not None:
            await self._closing

    def close(self) -> None:
        """Cancel all handlers, and close the server."""
        if self._closing is None:
            self._server.abort()
            self._closing = asyncio.get_running_loop().create_task(self._end())

    async def _end(self) -> None:
        try:
            await self._server.wait_closed()
        finally:
            self._server._driver.close()


async def serve_webtransport(
    host: str,
    port: int,
    path: str,
    *,
    handler: Callable[[Any], object],
    cert_file: str,
    key_file: str,
    transport: None = None,
    session_factory: _Factory | None = None,
    configuration: QuicConfiguration | None = None,
    wt_supported_protocols: Sequence[str] | None = None,
    web_folder: None = None,
) -> WebTransportServer:
    """Accept sessions at `path` of an address.

    `handler(session)` is called for each, and may be a coroutine function; the session stays open when
    it returns, and is closed with code 1 if it raises. `session_factory(server, state)` makes each
    session, by default a `WebTransportServerSession`. The first of `wt_supported_protocols` that the
    client offers is selected; a client that offers only others gets status 400.

    Errors: those of the certificate; `OSError` of the address and of the socket; ValueError for a
    `transport` or a `web_folder`.
    """
    _refuse_transport(transport)
    if web_folder is not None:
        raise ValueError(
            "web_folder is not supported: `python -m ringloop serve` serves files and sessions"
        )
    used = copy.copy(configuration or QuicConfiguration())
    used.load_cert_chain(cert_file, key_file)
    server = WebTransportServer()
    make = session_factory or WebTransportServerSession

    async def handle(state: Session) -> None:
        session = make(server, state)
        _limit(session, configuration)
        server._sessions.add(session)
        try:
            result = handler(session)
            if inspect.isawaitable(result):
                await result
            with suppress(ConnectionError):
                await state.wait_closed()
        finally:
            server._sessions.discard(session)

    server._server = await webtransport.serve(
        handle,
        host,
        port,
        accepts=_step(path or "/", list(wt_supported_protocols or ())),
        configuration=_over_http(used).server_config(),
        max_connections=used.max_connections,
        socket_buffer=used.socket_buffer_size,
        versions=tuple(used.supported_versions),
    )
    return server


def _step(path: str, supported: Sequence[str]) -> Callable[[Request], Any]:
    """Accept or refuse by path and sub-protocols."""

    async def accepts(request: Request) -> Session | None:
        if (request.path or "").partition("?")[0] != path:
            await request.respond(_NOT_FOUND)
            return None
        offered = webtransport.offered_protocols(request)
        chosen = next((name for name in offered if name in supported), None)
        if offered and supported and chosen is None:
            await request.respond(_BAD_REQUEST)
            return None
        return await webtransport.accept(request, protocol=chosen)

    return accepts


def _over_http(configuration: QuicConfiguration) -> QuicConfiguration:
    """Return a configuration for HTTP/3 with datagrams, which sessions require."""
    used = copy.copy(configuration)
    used.alpn_protocols = ["h3"]
    used.max_datagram_frame_size = used.max_datagram_frame_size or 65535
    return used


def _limit(session: WebTransportSession, configuration: QuicConfiguration | None) -> None:
    """Apply the limits of the program's configuration to a session."""
    if configuration is not None:
        session.tx_max_queued_bytes = configuration.tx_max_queued_bytes
        session.stream_ring_cap = configuration.stream_ring_cap


def _refuse_transport(transport: object) -> None:
    if transport is not None:
        raise ValueError("transport must be None: sessions do not share a transport")
