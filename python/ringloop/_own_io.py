"""Sockets that do their own input and output: a class that overrides `recv`, `send` or their kin.

Owns: which sockets these are, and their transports, which are asyncio's own on this loop's watchers:
they call the socket's methods, where the native transports make system calls on its descriptor.
Called by: `_loop`, once a connection. Never does: anything for a plain `socket.socket`.
"""

from __future__ import annotations

import socket
from asyncio import selector_events

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_METHODS = ("recv", "recv_into", "recvfrom", "send", "sendto", "sendmsg")


def does_its_own_io(sock: Any) -> bool:
    """Return whether the class of `sock` overrides methods that move bytes."""
    kind = type(sock)
    if kind is socket.socket:
        return False
    plain = socket.socket
    # Not every system's sockets have `sendmsg`.
    return any(
        getattr(kind, name, None) not in {None, getattr(plain, name, None)} for name in _METHODS
    )


class _Described:
    """What these transports print; asyncio's words come from a selector, and there is none."""

    _loop: Any
    _sock: Any
    _sock_fd: int
    _closing: bool

    def __repr__(self) -> str:
        info = [type(self).__name__]
        if self._sock is None:
            info.append("closed")
        elif self._closing:
            info.append("closing")
        info.append(f"fd={self._sock_fd}")
        return f"<{' '.join(info)}>"


class _OwnSocketTransport(_Described, selector_events._SelectorSocketTransport):  # type: ignore[name-defined,misc]
    pass


class _OwnDatagramTransport(_Described, selector_events._SelectorDatagramTransport):  # type: ignore[name-defined,misc]
    pass


def make_socket_transport(
    loop: Any, sock: Any, protocol: Any, waiter: Any, extra: Any, server: Any
) -> Any:
    """Make the stream transport of a socket that does its own I/O."""
    return _OwnSocketTransport(loop, sock, protocol, waiter, extra, server)


def make_datagram_transport(
    loop: Any, sock: Any, protocol: Any, address: Any, waiter: Any, extra: Any
) -> Any:
    """Make the datagram transport of a socket that does its own I/O."""
    return _OwnDatagramTransport(loop, sock, protocol, address, waiter, extra)
