"""Servers: from a bound socket to the native listener; the rest is `asyncio.base_events.Server`."""

from __future__ import annotations

import contextvars
import os
from asyncio import constants, selector_events
from asyncio.log import logger

from ringloop import _native, _server

# Since 3.12.
_REFUSES_SECOND_TRANSPORT = (
    "_ensure_fd_no_transport"
    in selector_events.BaseSelectorEventLoop._make_socket_transport.__code__.co_names
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable
    from typing import Any

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
    context: contextvars.Context | None = None,
) -> None:
    """Accept connections on `sock` until `stop_serving`; `BaseEventLoop._start_serving` in asyncio.

    `context`: connections run in copies of it; None, before 3.15, for the current one.
    """
    accepted = None
    if sslcontext is not None:

        def accepted(connection: socket.socket, extra: dict[str, Any]) -> None:
            protocol = protocol_factory()
            waiter = loop.create_future()
            # At once: the server may be closed before a task begins, and then it takes no connection.
            transport = loop._make_ssl_transport(
                connection,
                protocol,
                sslcontext,
                waiter=waiter,
                server_side=True,
                extra=extra,
                server=server,
                ssl_handshake_timeout=ssl_handshake_timeout,
                ssl_shutdown_timeout=ssl_shutdown_timeout,
            )
            loop.create_task(_finish_handshake(loop, protocol, transport, waiter))

    def listen() -> Any:
        return _native.make_listener(
            loop, sock, protocol_factory, server, accepted, max(0, backlog)
        )

    serving = Serving(listen, context)
    if not (isinstance(server, _server.Server) and _server.is_held(server)):
        serving.start()
    loop._listeners[sock] = serving


class Serving:
    """A served socket, which may be paused: its native listener comes and goes."""

    def __init__(self, listen: Callable[[], Any], context: contextvars.Context | None) -> None:
        self._listen = listen
        self._context = contextvars.copy_context() if context is None else context
        self._listener: Any = None

    def start(self) -> None:
        """Accept connections, each in a copy of the context; raises if the kernel refuses."""
        listener = self._context.run(self._listen)
        listener.start()
        self._listener = listener

    def resume(self) -> None:
        """Accept connections again, each in a copy of the context; a refusal is reported."""
        if self._listener is None:
            self._listener = self._context.run(self._listen)
            self._listener.resume()

    def stop(self) -> None:
        """Leave connections in the backlog, including those of this turn."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.stop()


def stop_serving(loop: Loop, sock: socket.socket) -> None:
    """Stop accepting on `sock`, and close it."""
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
    """Refuse a descriptor that a transport uses."""
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
