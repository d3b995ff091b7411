"""`create_connection` to an address without options: asyncio's steps, in one coroutine.

Owns: which calls need no more than that. Called by: `Loop.create_connection`.

Most of `BaseEventLoop.create_connection` handles names, several addresses, TLS and the other options; a
connection to `("127.0.0.1", 5432)` spends more time there than in the kernel. Every other call is passed
on to it, and so is this one if a program has replaced a part of it.
"""

from __future__ import annotations

import _socket
import socket
from asyncio import base_events

from ringloop import _native, _sock, _system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ringloop._loop import Loop

# What a program may replace, on a loop or its class, to take part in the making of a connection.
PARTS = frozenset(
    {
        "_connect_sock",
        "_create_connection_transport",
        "_ensure_resolved",
        "_make_socket_transport",
        "getaddrinfo",
        "sock_connect",
    }
)
PORT_MAX = 65535
# A number: the names are members of an enumeration, and joining them costs more than the system call.
NON_BLOCKING_STREAM = int(socket.SOCK_STREAM | _system.SOCK_NONBLOCK)

_SOCKET = _system.new_socket
_BASE: Any = base_events.BaseEventLoop
_CREATE_CONNECTION = _BASE.create_connection
_CONNECT_SOCK = _BASE._connect_sock
_CREATE_TRANSPORT = _BASE._create_connection_transport


def has_own_parts(loop_class: type) -> bool:
    """Whether a subclass of our loop overrides a part."""
    from ringloop._loop import Loop  # noqa: PLC0415 - that module imports this one

    return any(getattr(loop_class, name) is not getattr(Loop, name) for name in PARTS)


def address_of(loop: Loop, host: Any, port: Any) -> tuple[int, tuple[Any, ...]] | None:
    """Return family and address of a numeric host; None if asyncio's steps are needed."""
    if type(host) is not str or type(port) is not int or not 0 <= port <= PORT_MAX:
        return None
    if loop._has_own_parts or loop._debug or not _are_original():  # type: ignore[attr-defined]
        return None
    try:
        if ":" in host:
            _socket.inet_pton(socket.AF_INET6, host)
            return socket.AF_INET6, (host, port, 0, 0)
        _socket.inet_pton(socket.AF_INET, host)
    except (OSError, ValueError):
        return None
    return socket.AF_INET, (host, port)


def _are_original() -> bool:
    """Whether neither sockets nor a step of asyncio has been replaced."""
    return (
        base_events.socket.socket is _SOCKET  # type: ignore[attr-defined]
        and _BASE.create_connection is _CREATE_CONNECTION
        and _BASE._connect_sock is _CONNECT_SOCK
        and _BASE._create_connection_transport is _CREATE_TRANSPORT
    )


async def create_connection(
    loop: Loop, protocol_factory: Callable[[], Any], family: int, address: tuple[Any, ...]
) -> tuple[Any, Any]:
    """Connect to one address."""
    sock = _SOCKET(family, NON_BLOCKING_STREAM, socket.IPPROTO_TCP)
    try:
        pending = loop._begin_connect(sock, address)
        if pending is not None:
            await _sock.finish(pending)
    except BaseException:
        sock.close()
        raise
    protocol = protocol_factory()
    waiter = loop.create_future()
    transport = _native.make_socket_transport(loop, sock, protocol, waiter, None, None, True)
    try:
        await waiter
    except BaseException:
        transport.close()
        raise
    return transport, protocol
