"""Servers: from a bound socket to the native listener; the rest is `asyncio.base_events.Server`."""

from __future__ import annotations

import os
from asyncio import constants, selector_events
from asyncio.log import logger
from typing import TYPE_CHECKING, Any

from ringloop import _native

# Since 3.12.
_REFUSES_SECOND_TRANSPORT = (
    "_ensure_fd_no_transport"
    in selector_events.BaseSelectorEventLoop._make_socket_transport.__code__.co_names
)

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable

    from ringloop._loop import Loop


def start_serving(
    loop: Loop,
    protocol_factory: Callable[[], Any],
    sock: socket.socket,
    sslcontext: Any = None,
    server: Any = None,
    backlog: int = 100,
    ssl_handshake_timeout: float | None = constants.SSL_HANDSHAKE_TIMEOUT,
    ssl_shutdown_timeout: float | None = constants.SSL_SHUTDOWN_TIMEOUT,
) -> None:
    """Accept connections on `sock` until `stop_serving`; `BaseEventLoop._start_serving` in asyncio."""
    accepted = None
    if sslcontext is not None:

        def accepted(connection: socket.socket) -> None:
            protocol = protocol_factory()
            waiter = loop.create_future()
            # At once: the server may be closed before a task begins, and then it takes no connection.
            transport = loop._make_ssl_transport(
                connection,
                protocol,
                sslcontext,
                waiter=waiter,
                server_side=True,
                server=server,
                ssl_handshake_timeout=ssl_handshake_timeout,
                ssl_shutdown_timeout=ssl_shutdown_timeout,
            )
            loop.create_task(_finish_handshake(loop, protocol, transport, waiter))

    listener = _native.make_listener(
        loop, sock, protocol_factory, server, accepted, max(0, backlog)
    )
    loop._listeners[sock] = listener
    listener.start()


def stop_serving(loop: Loop, sock: socket.socket) -> None:
    """Accept no more on `sock`, and close it."""
    listener = loop._listeners.pop(sock, None)
    try:
        if listener is not None:
            listener.stop()
    finally:
        inode = loop._unix_server_sockets.pop(sock, None)
        path = sock.getsockname() if inode is not None else ""
        sock.close()
        if inode is not None:
            _remove_unix_socket(path, inode)


def ensure_no_transport(loop: Loop, fd: Any) -> None:
    """Refuse a descriptor that a transport reads and writes."""
    fileno = fd
    if not isinstance(fileno, int):
        try:
            fileno = int(fileno.fileno())
        except (AttributeError, TypeError, ValueError):
            raise ValueError(f"Invalid file object: {fd!r}") from None
    if fileno in loop._lent_descriptors:
        return
    transport = loop._transport_of(fileno) or loop._transports.get(fileno)
    if transport is not None and not transport.is_closing():
        raise RuntimeError(f"File descriptor {fd!r} is used by transport {transport!r}")


def refuse_second_transport(loop: Loop, sock: socket.socket) -> None:
    """Refuse a socket that another transport has, where this version of asyncio does."""
    if not _REFUSES_SECOND_TRANSPORT:
        return
    fileno = sock.fileno()
    transport = loop._transport_of(fileno) or loop._transports.get(fileno)
    # Whose socket was closed by its user has lost the number to the new one.
    if transport is not None and transport._sock is not None and transport._sock.fileno() != -1:
        ensure_no_transport(loop, sock)


def _remove_unix_socket(path: str | bytes, inode: int) -> None:
    """Remove a server's socket from the file system, unless somebody else's is there by now."""
    try:
        _native.remove_socket_file(os.fsencode(path), inode)
    except FileNotFoundError:
        pass
    except OSError as error:
        logger.error("Unable to clean up listening UNIX socket %r: %r", path, error)


async def _finish_handshake(
    loop: Loop, protocol: Any, transport: Any, waiter: asyncio.Future[None]
) -> None:
    try:
        try:
            await waiter
        except BaseException:
            transport.close()
            # The exception holds this frame, and the future holds the exception.
            del waiter
            raise
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as exc:  # noqa: BLE001 - reported, as asyncio does; the server goes on
        if loop.get_debug():
            context = {
                "message": "Error on transport creation for incoming connection",
                "exception": exc,
                "protocol": protocol,
                "transport": transport,
            }
            loop.call_exception_handler(context)
