"""Servers that can pause, with a limit of connections.

Owns: what `Server` adds to `asyncio.base_events.Server`: when its listeners leave connections in the
kernel's backlog. Called by: `Loop.create_server` and `create_unix_server`; transports, which attach and
detach.
"""

from __future__ import annotations

import contextlib
import weakref
from asyncio import base_events, tasks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any


class Server(base_events.Server):
    """What `Loop.create_server` and `asyncio.start_server` return: asyncio's server, which can pause."""

    _is_paused = False
    _connections_max: int | None = None

    @property
    def max_connections(self) -> int | None:
        """How many connections may be open at once; None for no limit. Can be set at any time.

        Others wait in the kernel's backlog until one has ended. Lowering it closes none.
        """
        return self._connections_max

    @max_connections.setter
    def max_connections(self, count: int | None) -> None:
        before, self._connections_max = self._connections_max, checked_max(count)
        if before is None and count is not None:
            for transport in getattr(self, "_clients", ()):
                _watch(self, transport)
        settle(self)

    def is_accepting(self) -> bool:
        """Whether connections are accepted: the server is serving, not paused, and below its limit."""
        return self.is_serving() and not is_held(self)

    def pause_accepting(self) -> None:
        """Stop accepting connections until `resume_accepting()`; open ones continue.

        New ones wait in the kernel's backlog; when it is full their peers try again. Other processes
        and loops that serve the same socket accept them. A server that is not serving yet starts
        paused. RuntimeError: the server is closed.
        """
        _check_open(self)
        self._is_paused = True
        settle(self)

    def resume_accepting(self) -> None:
        """Accept connections again, starting with the backlog. RuntimeError: the server is closed."""
        _check_open(self)
        self._is_paused = False
        settle(self)

    def _start_serving(self) -> None:
        """Serve all sockets; or none, where one is refused, so that the caller may try again."""
        serving: Any = self
        try:
            super()._start_serving()  # type: ignore[misc]
        except BaseException:
            serving._serving = False
            _leave_sockets(self)
            raise

    # One argument since 3.12.1: the transport.
    def _attach(self, *transport: Any) -> None:
        super()._attach(*transport)  # type: ignore[misc]
        if self._connections_max is not None:
            for one in transport:
                _watch(self, one)
            settle(self)

    def _detach(self, *transport: Any) -> None:
        super()._detach(*transport)  # type: ignore[misc]
        if self._connections_max is not None:
            settle(self)


def checked_max(count: Any) -> int | None:
    """Return the limit; TypeError or ValueError if it is invalid."""
    if count is None:
        return None
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"max_connections is {count!r}: give a whole number, or None for no limit")
    if count < 1:
        raise ValueError(
            f"max_connections is {count}: give 1 or more, or None for no limit "
            "(pause_accepting() accepts none at all)"
        )
    return count


def connections(server: Any) -> int:
    """Count the connections that are open."""
    clients = getattr(server, "_clients", None)
    count: int = server._active_count if clients is None else len(clients)
    return count


def is_held(server: Server) -> bool:
    """Say whether its listeners leave connections in the backlog."""
    limit = server._connections_max
    return server._is_paused or (limit is not None and connections(server) >= limit)


def settle(server: Any) -> None:
    """Have the listeners of a server that serves take connections, or leave them."""
    loop = server._loop
    if server._sockets is None or loop.is_closed():
        return
    held = is_held(server)
    for sock in server._sockets:
        serving = loop._listeners.get(sock)
        if serving is not None:
            if held:
                serving.stop()
            else:
                serving.resume()


def _leave_sockets(server: Any) -> None:
    """Accept no more on the server's sockets, which stay open."""
    for sock in server._sockets:
        if (listener := server._loop._listeners.pop(sock, None)) is not None:
            listener.stop()


def _check_open(server: Any) -> None:
    if server._sockets is None:
        raise RuntimeError(f"server {server!r} is closed: it no longer accepts connections")


def _watch(server: Any, transport: Any) -> None:
    """Notice a transport that is collected, as an abandoned one may be: it detaches from no server."""
    weakref.finalize(transport, _client_is_gone, weakref.ref(server)).atexit = False


def _client_is_gone(to_server: weakref.ref[Any]) -> None:
    server = to_server()
    # In whatever thread the collector runs.
    if server is not None and server._sockets is not None:
        # Closed meanwhile: there is nothing to settle.
        with contextlib.suppress(RuntimeError):
            server._loop.call_soon_threadsafe(settle, server)


async def create(
    make: Callable[..., Awaitable[Any]],
    options: dict[str, Any],
    *,
    max_connections: int | None,
    start_serving: bool,
) -> Server:
    """Make a server as asyncio does by `make(start_serving=False)`, with its limit from the start."""
    limit = checked_max(max_connections)
    server = await make(start_serving=False, **options)
    server.__class__ = Server
    server._connections_max = limit
    if start_serving:
        try:
            server._start_serving()
            # As asyncio does: one turn, in which the listeners begin.
            await tasks.sleep(0)
        except BaseException:
            # Cancelled, too: the caller has no server to close. A socket that the caller has brought
            # stays the caller's.
            if options["sock"] is None:
                server.close()
            else:
                _leave_sockets(server)
            raise
    made: Server = server
    return made
