"""An endpoint's socket on a loop: any asyncio loop that can watch a descriptor.

Owns: the socket, its reader and writer in the loop, and the listeners to the endpoint's events.
Called by: `_connect`, `_serve`, `asyncio`. Never does: parse packets; `turn` and `flush` of the
native endpoint do, and the loop calls them without a Python frame in between.
"""

from __future__ import annotations

import asyncio
import operator
import socket
from typing import TYPE_CHECKING, Any, Final

from ringloop import _system
from ringloop.quic.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringloop._native import quic as _quic

    _Address = tuple[str, int] | tuple[str, int, int, int]

__all__ = ["Driver", "bind", "bound", "checked_port", "look_up", "numeric"]

_PORT_MAX: Final = 65535
_LAST_READS_MAX: Final = 512
# Delay before retrying a full socket that the loop cannot watch, for lack of memory.
_UNWATCHED_SECONDS: Final = 0.05


def bind(
    host: str | None = None, port: int = 0, *, family: int = 0, reuse_port: bool = False
) -> socket.socket:
    """Make a non-blocking UDP socket; `host` is numeric. None: all addresses of both families."""
    if host is None:
        host = "0.0.0.0" if family == socket.AF_INET else "::"  # noqa: S104  # a server's default
    family, address = numeric(host, port, family)
    return bound(family, address, reuse_port=reuse_port)


def numeric(host: str, port: int, family: int = 0) -> tuple[int, _Address]:
    """Return the family and full form of a numeric address; `gaierror` for a name.

    A zone (`fe80::1%eth0`) becomes the number that the kernel knows it by.
    """
    port = checked_port(port)
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    found = socket.getaddrinfo(host, port, family, socket.SOCK_DGRAM, 0, flags)
    return found[0][0], found[0][4]  # type: ignore[return-value]


async def look_up(host: str, port: int, flags: int = 0) -> list[tuple[int, _Address]]:
    """Return the family and full form of each address of a name, or of a numeric address."""
    if not isinstance(host, str):
        raise TypeError(f"host must be one name or address, not {host!r}")
    try:
        return [numeric(host, port)]
    except socket.gaierror:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM, flags=flags)
        return [(family, address) for family, *_, address in found]  # type: ignore[misc]


def checked_port(port: Any) -> int:
    """Validate a port; the resolver would truncate a larger number to another port."""
    if isinstance(port, str) and port.isdecimal():
        port = int(port)
    if isinstance(port, bool) or not hasattr(port, "__index__"):
        raise TypeError(f"port is {port!r}: give a whole number, 0 to 65535")
    number = operator.index(port)
    if not 0 <= number <= _PORT_MAX:
        raise ConfigurationError(f"port is {number}: give 0 to 65535")
    return number


def bound(family: int, address: _Address, *, reuse_port: bool = False) -> socket.socket:
    """Make a non-blocking UDP socket at an address."""
    sock = _system.new_socket(family, socket.SOCK_DGRAM | _system.SOCK_NONBLOCK)
    try:
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        if reuse_port:
            _system.require_unix("port that several sockets share (SO_REUSEPORT)")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return sock


class Driver:
    """Attaches an endpoint, made for a socket's descriptor, to a loop.

    The loop calls `on_events(accepted, eventful, gone)` with lists of connection keys: new ones (for
    an endpoint without events: once there is something to do for them), those with events, and those
    that are gone, which may never have been announced; call `forgotten()` for the gone ones. It
    returns True if it has queued callbacks in the loop that may write. The loop reports errors that
    it raises.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        endpoint: _quic.Endpoint,
        on_events: Callable[[list[int], list[int], list[int]], bool | None],
    ) -> None:
        self.loop = loop
        self.endpoint = endpoint
        self._sock: socket.socket | None = sock
        self._idle: list[asyncio.Future[None]] = []
        self._full_waiters: list[asyncio.Future[None]] = []
        self._writing = False
        self._retry: asyncio.TimerHandle | None = None
        endpoint.attach(loop, on_events, self._full)
        try:
            loop.add_reader(sock.fileno(), endpoint.turn)
        except BaseException:
            endpoint.detach()
            raise

    @property
    def address(self) -> _Address:
        """The socket's address."""
        return self._socket().getsockname()  # type: ignore[no-any-return]

    @property
    def is_closed(self) -> bool:
        """Whether the socket is closed."""
        return self._sock is None

    @property
    def sock(self) -> socket.socket:
        """The socket."""
        return self._socket()

    def _socket(self) -> socket.socket:
        if self._sock is None:
            raise RuntimeError("the endpoint is closed")
        return self._sock

    def forgotten(self) -> None:
        """Report, from `on_events`, that connections are gone; wakes a waiter for the last one's end."""
        if self._idle and self.endpoint.connection_count == 0:
            self._wake_idle()

    def _wake_idle(self) -> None:
        waiters, self._idle = self._idle, []
        _wake(waiters)

    def _full(self) -> None:
        if self._sock is None or self._writing:
            return
        self._writing = True
        try:
            self.loop.add_writer(self._sock.fileno(), self._writable)
        except OSError:
            self._retry = self.loop.call_later(_UNWATCHED_SECONDS, self._writable)

    def _writable(self) -> None:
        self._stop_writing()
        try:
            self.endpoint.flush()
        finally:
            self._wake_full()

    def _wake_full(self) -> None:
        waiters, self._full_waiters = self._full_waiters, []
        _wake(waiters)

    def _stop_writing(self) -> None:
        if self._writing and self._sock is not None:
            self._writing = False
            if self._retry is None:
                self.loop.remove_writer(self._sock.fileno())
            else:
                self._retry.cancel()
                self._retry = None

    def rebind(self, sock: socket.socket) -> None:
        """Switch to another socket; closes the old one, or the new one if it is refused."""
        old = self._socket()
        try:
            self.loop.add_reader(sock.fileno(), self.endpoint.turn)
            try:
                self.endpoint.rebind(sock.fileno())
            except BaseException:
                self.loop.remove_reader(sock.fileno())
                raise
        except BaseException:
            sock.close()
            raise
        self._stop_writing()
        self.loop.remove_reader(old.fileno())
        self._sock = sock
        old.close()
        # Their sends waited for space in the old one.
        self._wake_full()

    async def wait_idle(self) -> None:
        """Wait until all connections are gone: their close frames have been sent."""
        while not self.is_closed and self.endpoint.connection_count:
            waiter = self.loop.create_future()
            self._idle.append(waiter)
            await waiter

    async def send_all(self) -> None:
        """Wait until everything that may be sent now is sent; many connections need several flushes."""
        while not self.is_closed and not self.endpoint.flush():
            if self._writing:
                waiter = self.loop.create_future()
                self._full_waiters.append(waiter)
                await waiter
            else:
                await asyncio.sleep(0)

    def refuse_newcomers(self) -> None:
        """Refuse clients whose packets arrived before the close and are still unread."""
        if self.is_closed:
            return
        # Bounded: a turn reads a few datagrams and a flush sends a few, so a busy peer cannot delay it.
        for _ in range(_LAST_READS_MAX):
            self.endpoint.turn()
            while not (self.endpoint.flush() or self._writing):
                pass
            if not _system.is_readable(self._socket()):
                return

    def leave(self) -> None:
        """Warn about an unreferenced endpoint: it is never closed if the loop ends first."""
        self._sock = _LeftSocket(fileno=self._socket().detach())

    def close(self) -> None:
        """Close the socket. Unsent data is lost, and all connections end."""
        if self._sock is None:
            return
        if not self.loop.is_closed():
            self._stop_writing()
            self.loop.remove_reader(self._sock.fileno())
        self.endpoint.detach()
        self._sock.close()
        self._sock = None
        self._wake_idle()
        self._wake_full()

    def __repr__(self) -> str:
        where: Any = "closed" if self._sock is None else self.address
        return f"<{type(self).__name__} {where}>"


class _LeftSocket(socket.socket):
    """An endpoint that is closed without a warning when it is collected."""

    def __del__(self) -> None:
        self.close()


def _wake(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
