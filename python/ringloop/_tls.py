"""TLS: the standard library's state machine over the native transport."""

from __future__ import annotations

from asyncio import constants, sslproto
from typing import TYPE_CHECKING, Any

from ringloop import _native

if TYPE_CHECKING:
    import socket
    from asyncio import Future

    from ringloop._loop import Loop


def make_ssl_transport(
    loop: Loop,
    rawsock: socket.socket,
    protocol: Any,
    sslcontext: Any,
    waiter: Future[None] | None = None,
    *,
    server_side: bool = False,
    server_hostname: str | None = None,
    extra: dict[str, Any] | None = None,
    server: Any = None,
    ssl_handshake_timeout: float | None = constants.SSL_HANDSHAKE_TIMEOUT,
    ssl_shutdown_timeout: float | None = constants.SSL_SHUTDOWN_TIMEOUT,
) -> Any:
    """Make a TLS transport of a connected socket; `waiter` is resolved after the handshake."""
    ssl_protocol = sslproto.SSLProtocol(
        loop,
        protocol,
        sslcontext,
        waiter,  # type: ignore[arg-type]  # None is allowed
        server_side,
        server_hostname,
        ssl_handshake_timeout=ssl_handshake_timeout,  # type: ignore[arg-type]  # so are floats
        ssl_shutdown_timeout=ssl_shutdown_timeout,
    )
    _native.make_socket_transport(loop, rawsock, ssl_protocol, None, extra, server)
    return ssl_protocol._app_transport
