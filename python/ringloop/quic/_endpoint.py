"""A UDP socket with its connections on a loop: shared by clients, or a server.

Owns: the driver, the connections by key, the tasks of handlers. Called by: `_connect`,
`_serve`, programs. Never does: handle streams or datagrams; connections and
native code do.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, Self, Unpack

from ringloop._arguments import check_bools
from ringloop._native import quic as _quic
from ringloop.quic._connection import Connection
from ringloop.quic._driver import Driver, bind
from ringloop.quic._failures import Failures
from ringloop.quic._keywords import check_functions, refuse_unknown, shows
from ringloop.quic._stream import Stream
from ringloop.quic.errors import ConnectionClosed, StreamResetError, StreamStoppedError
from ringloop.quic.keywords import EndpointKeywords

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Coroutine

    from ringloop.quic._workers import Worker

    _Address = tuple[str, int] | tuple[str, int, int, int]

__all__ = ["Endpoint", "EndpointStats", "FailureCounts"]


class FailureCounts(NamedTuple):
    """Failed handshakes of clients by reason."""

    timed_out: int
    """The client stopped responding, or `handshake_timeout` passed."""
    tls: int
    """TLS refused it, on either side: a certificate or a protocol."""
    by_peer: int
    """The client ended it for another reason."""
    other: int
    """Other reasons: protocol violations, versions, a reset."""


class EndpointStats(NamedTuple):
    """Counters of an endpoint."""

    connections: int
    """Current connections, including closed ones from which packets may still arrive."""
    handshakes: int
    """Handshakes in progress, of either side."""
    accepted: int
    """Clients whose handshake started."""
    completed: int
    """Clients whose handshake was completed."""
    failed: int
    """Clients whose handshake failed."""
    refused: int
    """Refused clients: beyond `max_connections`, or the endpoint was closed."""
    retried: int
    """Clients asked to prove their address first."""
    failures: FailureCounts
    """Failed handshakes by reason."""

    @classmethod
    def _of(cls, native: _quic.Endpoint) -> EndpointStats:
        counts = native.counts()
        failures = FailureCounts._make(counts[7:])
        return cls._make([*counts[:7], failures])


class Endpoint:
    """A socket that opens connections, accepts them, or both.

    As a context manager it is closed at the end. `handler(connection)` runs as a task for each
    client; when it returns, the connection is closed with code 0, and with code 1 when it
    raises. `stream_handler(stream)` runs for each stream that a peer opens. Without either,
    `accept()` accepts clients. `on_handshake_failed(address, error)` is called for each client
    whose handshake fails; handlers do not see those. Some of them are also logged, on
    `ringloop.quic`: ten per second, and the number of further ones.
    `worker` is the worker that owns the socket (`bind_workers`). `ringloop.quic.keywords` describes the
    other keywords.
    """

    # HTTP/3 on accepted connections is driven natively (`ringloop.h3`).
    _drives_http = False

    @shows(EndpointKeywords, _quic.Endpoint)
    def __init__(
        self,
        sock: socket.socket,
        *,
        server: _quic.ServerConfig | None = None,
        handler: Callable[[Connection], Awaitable[object]] | None = None,
        stream_handler: Callable[[Stream], Awaitable[object]] | None = None,
        on_handshake_failed: Callable[[_Address, ConnectionClosed], object] | None = None,
        worker: Worker | None = None,
        **settings: Unpack[EndpointKeywords],
    ) -> None:
        refuse_unknown(Endpoint.__init__, settings)
        check_functions(
            handler=handler,
            stream_handler=stream_handler,
            on_handshake_failed=on_handshake_failed,
        )
        self._loop = asyncio.get_running_loop()
        self._handler = handler
        self._stream_handler = stream_handler
        self._failures = Failures(
            self._loop,
            on_handshake_failed,
            lambda error: self._report(error, None, "on_handshake_failed"),
        )
        self._connections: dict[int, Connection] = {}
        # Clients not accepted yet, by key.
        self._waiting: dict[int, Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed: list[asyncio.Future[None]] = []
        self._is_private = False
        # The last notifications queued callbacks in the loop.
        self._has_queued = False
        place = None if worker is None else (worker.number, worker.count, worker.key)
        self._native = _quic.Endpoint(
            server=server, fd=sock.fileno(), worker=place, http=self._drives_http, **settings
        )
        self._driver = Driver(self._loop, sock, self._native, self._news)

    # Connections.

    def begin(self, config: _quic.ClientConfig, address: _Address, server_name: str) -> Connection:
        """Start a connection to a numeric address; `wait_connected()` waits for it."""
        return self._add(self._native.connect(config, address, server_name))

    async def accept(self) -> Connection:
        """Accept the next client of a server without handlers; disconnected clients are skipped."""
        while not self._waiting:
            if self._driver.is_closed:
                raise RuntimeError("the endpoint is closed")
            await self._change()
        return self._waiting.pop(next(iter(self._waiting)))

    @property
    def connections(self) -> list[Connection]:
        """The connections, including closed ones to which the peer may still send packets."""
        return list(self._connections.values())

    def stats(self) -> EndpointStats:
        """Count connections and handshakes."""
        return EndpointStats._of(self._native)

    @property
    def address(self) -> _Address:
        """The socket's address."""
        return self._driver.address

    def _add(self, key: int) -> Connection:
        connection = Connection(self._native, key)
        connection.endpoint = self
        self._connections[key] = connection
        if self._stream_handler is not None:
            connection._announce_streams()
        return connection

    def _news(self, accepted: list[int], eventful: list[int], gone: list[int]) -> bool:
        self._has_queued = False
        if gone:
            self._driver.forgotten()
        if self._failures.take(self._native):
            self._has_queued = True
        for key in accepted:
            self._guarded(self._let_in, key)
        for key in eventful:
            if key in self._connections:
                self._guarded(self._take_streams, key)
        for key in gone:
            connection = self._connections.pop(key, None)
            self._waiting.pop(key, None)
            if connection is not None:
                self._forgotten(connection)
        if gone and self._is_private and not self._connections:
            self._driver.close()
        if self._changed:
            self._wake_changed()
        return self._has_queued

    def _forgotten(self, connection: Connection) -> None:
        """Handle the end of a connection: no more packets can arrive."""

    def _guarded(self, tell: Callable[[int], None], key: int) -> None:
        """Notify one connection; an error is reported, and does not stop the notifications of others.

        Nor does a CancelledError raised by the program, as with the loop's own callbacks.
        """
        try:
            tell(key)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001  # it is reported
            self._report(error, self._connections.get(key))

    def _let_in(self, key: int) -> None:
        connection = self._add(key)
        self._take_streams(key)
        if self._handler is not None:
            self._start(self._handle(connection, self._handler))
        elif self._stream_handler is None:
            self._waiting[key] = connection

    def _wake_changed(self) -> None:
        self._has_queued = True
        waiters, self._changed = self._changed, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _change(self) -> None:
        waiter = self._loop.create_future()
        self._changed.append(waiter)
        await waiter

    # Handlers.

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a handler as a task; its first step runs at once, unless the loop has a task factory.

        A short request has arrived completely by then, so its response leaves in the same turn.
        """
        if sys.version_info >= (3, 12) and self._loop.get_task_factory() is None:
            task = asyncio.Task(coroutine, loop=self._loop, eager_start=True)
            if task.done():
                return
        else:
            task = self._loop.create_task(coroutine)
            self._has_queued = True
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _handle(
        self, connection: Connection, handler: Callable[[Connection], Awaitable[object]]
    ) -> None:
        try:
            await handler(connection)
        except Exception as error:  # noqa: BLE001  # the server goes on
            # If the peer disconnects in the middle there is nothing to report, as in asyncio's stream
            # servers.
            if not (connection.is_closed and _is_all(error, ConnectionError)):
                self._report(error, connection)
            # Now, while the error's traceback keeps the handler's streams: an unreferenced stream is
            # finished, although its data is incomplete.
            _close(connection, 1)
        except BaseException:
            _close(connection, 1)
            raise
        else:
            _close(connection, 0)

    def _take_streams(self, key: int) -> None:
        handler = self._stream_handler
        if handler is None:
            return
        connection = self._connections[key]
        for stream_id in connection._accept_streams():
            self._start(self._handle_stream(Stream(connection, stream_id), handler))

    async def _handle_stream(
        self, stream: Stream, handler: Callable[[Stream], Awaitable[object]]
    ) -> None:
        try:
            await handler(stream)
        except Exception as error:  # noqa: BLE001  # the server goes on
            stream.abort()
            # If the peer disconnected or stopped the stream there is nothing to report.
            if not _is_all(error, ConnectionClosed, StreamResetError, StreamStoppedError):
                self._report(error, stream.connection)
        except BaseException:
            # The data is incomplete, and must not look complete to the peer.
            stream.abort()
            raise
        else:
            stream.close()

    def _report(
        self,
        error: BaseException,
        connection: Connection | None,
        what: str = "a handler of a QUIC connection",
    ) -> None:
        self._loop.call_exception_handler(
            {
                "message": f"{what} raised",
                "exception": error,
                "connection": connection,
            }
        )

    # The end.

    def rebind(self, host: str | None = None, port: int = 0) -> None:
        """Continue with a socket at another address; connections opened here move with it.

        With such connections, an address of another family raises `OSError`. So does a move before the
        handshakes of all of them are confirmed; `Connection.rebind` waits for that.
        """
        old = self.address
        if host is None:
            host = "0.0.0.0" if len(old) == 2 else "::"  # noqa: S104, PLR2004  # any of this machine's
        self._driver.rebind(bind(host, port))

    def close(self, code: int = 0, reason: str = "") -> None:
        """Close all connections, and accept no more; then `wait_closed()`."""
        if not self._driver.is_closed:
            self._native.close(code, reason)

    async def wait_closed(self, *, linger: bool = False) -> None:
        """Wait for handlers to end, notify all peers, close the socket.

        Connections still open then are closed, as by `close()`.

        `linger`: stay until no peer may send any more (three times the probe time-out), so that a
        lost close is repeated.
        """
        check_bools(linger=linger)
        while self._tasks:
            await asyncio.wait(self._tasks)
        if linger:
            await self._driver.wait_idle()
        self.close()
        try:
            self._driver.refuse_newcomers()
            await self._driver.send_all()
        finally:
            self._driver.close()
            self._failures.close()
            self._wake_changed()

    async def _wait_gone(self, connection: Connection) -> None:
        """Wait until no more packets of a connection can arrive."""
        while connection._key in self._connections and not self._driver.is_closed:
            await self._change()

    async def _after_close(self, connection: Connection) -> None:
        """Send a closed connection's last packets; its own endpoint is closed with it."""
        if self._driver.is_closed:
            return
        try:
            await self._driver.send_all()
        finally:
            if self._is_private:
                self._connections.pop(connection._key, None)
                self._driver.close()
                # A caller that waits for the last packets needs no other notification.
                self._wake_changed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()
        await self.wait_closed()

    def __repr__(self) -> str:
        return f"<Endpoint {self._driver!r} with {len(self._connections)} connections>"


def _close(connection: Connection, code: int) -> None:
    if not connection.is_closed:
        connection.close(code)


def _is_all(error: BaseException, *kinds: type[BaseException]) -> bool:
    """Whether an error is of these types, or an exception group with no others."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_all(part, *kinds) for part in error.exceptions)
    return isinstance(error, kinds)
