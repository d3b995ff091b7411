"""TLS connections: what happens once per connection; the state machine is native.

The checks, their order and their messages are those of `asyncio.sslproto` and of
`asyncio.BaseEventLoop.start_tls`.
"""

from __future__ import annotations

from asyncio import constants, streams

from ringloop import _native

try:
    import ssl
except ImportError:  # a CPython that was built without it
    ssl = None  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from asyncio import Future
    from typing import Any

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
    tls_protocol = make_protocol(
        loop,
        protocol,
        sslcontext,
        waiter,
        server_side=server_side,
        server_hostname=server_hostname,
        ssl_handshake_timeout=ssl_handshake_timeout,
        ssl_shutdown_timeout=ssl_shutdown_timeout,
    )
    loop._make_socket_transport(rawsock, tls_protocol, extra=extra, server=server)
    return tls_protocol._app_transport


async def start_tls(
    loop: Loop,
    transport: Any,
    protocol: Any,
    sslcontext: Any,
    *,
    server_side: bool = False,
    server_hostname: str | None = None,
    ssl_handshake_timeout: float | None = None,
    ssl_shutdown_timeout: float | None = None,
) -> Any:
    """Put TLS between `transport` and `protocol`; return the transport that `protocol` writes to."""
    if ssl is None:
        raise RuntimeError("Python ssl module is not available")
    if not isinstance(sslcontext, ssl.SSLContext):
        raise TypeError(
            f"sslcontext is expected to be an instance of ssl.SSLContext, got {sslcontext!r}"
        )
    if not getattr(transport, "_start_tls_compatible", False):
        raise TypeError(f"transport {transport!r} is not supported by start_tls()")
    waiter = loop.create_future()
    tls_protocol = make_protocol(
        loop,
        protocol,
        sslcontext,
        waiter,
        server_side=server_side,
        server_hostname=server_hostname,
        ssl_handshake_timeout=ssl_handshake_timeout,
        ssl_shutdown_timeout=ssl_shutdown_timeout,
        call_connection_made=False,
    )
    # No data may arrive before connection_made().
    transport.pause_reading()
    if server_side:
        _hand_over_read_ahead(protocol, tls_protocol)
    transport.set_protocol(tls_protocol)
    made = loop.call_soon(tls_protocol.connection_made, transport)
    resumed = loop.call_soon(transport.resume_reading)
    try:
        await waiter
    except BaseException:
        transport.close()
        made.cancel()
        resumed.cancel()
        # Break the cycle: the exception refers to this frame, and the future to the exception.
        del waiter
        raise
    return tls_protocol._app_transport


def make_protocol(
    loop: Loop,
    protocol: Any,
    sslcontext: Any,
    waiter: Future[None] | None,
    *,
    server_side: bool,
    server_hostname: str | None,
    ssl_handshake_timeout: float | None,
    ssl_shutdown_timeout: float | None,
    call_connection_made: bool = True,
) -> Any:
    """Make the native protocol, with the defaults and checks of asyncio's."""
    if ssl is None:
        raise RuntimeError("stdlib ssl module not available")
    if ssl_handshake_timeout is None:
        ssl_handshake_timeout = constants.SSL_HANDSHAKE_TIMEOUT
    elif ssl_handshake_timeout <= 0:
        raise ValueError(
            f"ssl_handshake_timeout should be a positive number, got {ssl_handshake_timeout}"
        )
    if ssl_shutdown_timeout is None:
        ssl_shutdown_timeout = constants.SSL_SHUTDOWN_TIMEOUT
    elif ssl_shutdown_timeout <= 0:
        raise ValueError(
            f"ssl_shutdown_timeout should be a positive number, got {ssl_shutdown_timeout}"
        )
    if not sslcontext:
        sslcontext = _default_context(server_side, server_hostname)
    return _native.make_tls_protocol(
        loop,
        protocol,
        sslcontext,
        waiter,
        bool(server_side),
        None if server_side else (server_hostname or None),
        ssl_handshake_timeout,
        ssl_shutdown_timeout,
        call_connection_made,
    )


def _default_context(server_side: bool, server_hostname: str | None) -> ssl.SSLContext:
    """Return the context of a client that gave `ssl=True`."""
    if server_side:
        raise ValueError("Server side SSL needs a valid SSLContext")
    context = ssl.create_default_context()
    if not server_hostname:
        context.check_hostname = False
    return context


def _hand_over_read_ahead(protocol: Any, tls_protocol: Any) -> None:
    """Pass bytes that the stream reader received after the plaintext part to the handshake.

    As later patch releases of every version do. Older ones leave them in the reader, and the handshake
    waits for ever: a client may send its first TLS bytes before the server calls start_tls().
    """
    if isinstance(protocol, streams.StreamReaderProtocol):
        reader = getattr(protocol, "_stream_reader", None)
        buffer = reader._buffer if reader is not None else None
        if buffer:
            tls_protocol._feed(buffer)
            buffer.clear()
