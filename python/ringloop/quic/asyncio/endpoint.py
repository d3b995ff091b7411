"""A socket with its connections' protocols.

Owns: the native endpoint that `connect` and `serve` use, its driver in the loop, and the protocol
of each connection. Called by: `client`, `server`; it is also what protocols get as their transport,
and what `serve` returns. Never does: look at packets.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from ringloop._native import quic as _quic
from ringloop.quic._driver import Driver, bind
from ringloop.quic._endpoint import EndpointStats
from ringloop.quic._failures import Failures
from ringloop.quic.configuration import by_field
from ringloop.quic.connection import QuicConnection
from ringloop.quic.errors import ConnectionClosed

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from ringloop.quic.asyncio.protocol import QuicConnectionProtocol
    from ringloop.quic.configuration import QuicConfiguration

LAST_WORDS_SECONDS = 3.0
"""How long the socket stays open for closed connections; their peers are notified in far less."""


class AsyncEndpoint(asyncio.DatagramTransport):
    """One UDP socket, and the protocols of the connections on it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        configuration: QuicConfiguration,
        *,
        host: str | None,
        port: int,
        family: int,
        server: Any = None,
        retry: bool = False,
        connection_id: bytes | None = None,
        on_handshake_failed: Callable[[Any, ConnectionClosed], object] | None = None,
    ) -> None:
        super().__init__()
        self._configuration = configuration
        sock = bind(host, port, family=family)
        self._protocols: dict[int, QuicConnectionProtocol] = {}
        self._client: QuicConnectionProtocol | None = None
        self._failures = Failures(
            loop,
            on_handshake_failed,
            lambda error: self._report("on_handshake_failed() failed", error),
        )
        # Set once it is closing: the deadline.
        self._last: asyncio.TimerHandle | None = None
        self._make_protocol: Callable[[QuicConnection], QuicConnectionProtocol] | None = None
        """Servers: make the protocol of an accepted connection."""
        try:
            with by_field():
                self._native = _quic.Endpoint(
                    server=server,
                    fd=sock.fileno(),
                    events=True,
                    versions=tuple(configuration.supported_versions),
                    retry="always" if retry else "never",
                    max_connections=configuration.max_connections,
                    socket_buffer=configuration.socket_buffer_size,
                    connection_id=connection_id,
                    connection_id_length=None
                    if connection_id is not None
                    else configuration.connection_id_length,
                )
            self._driver = Driver(loop, sock, self._native, self._news)
        except BaseException:
            sock.close()
            raise

    # --- connections ---

    def _take_client(self, connection: QuicConnection, protocol: QuicConnectionProtocol) -> None:
        """Have a client's connection use this endpoint, once it connects."""
        connection._attach(self._native, self._driver)
        self._client = protocol
        protocol.connection_made(self)

    def _news(self, accepted: list[int], eventful: list[int], gone: list[int]) -> bool:
        if gone:
            self._driver.forgotten()
        has_told = self._failures.take(self._native)
        for key in accepted:
            self._let_in(key)
        for key in eventful:
            protocol = self._protocols.get(key, self._client)
            if protocol is None:
                continue
            try:
                protocol._events_came()
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # noqa: BLE001 (it does not end other connections)
                self._report("transmit() failed", error)
        for key in gone:
            self._protocols.pop(key, None)
        if gone and self._last is not None and self._native.connection_count == 0:
            self.abort()
        # Events resolve futures that tasks wait for.
        return has_told or bool(eventful)

    def _let_in(self, key: int) -> None:
        if self._make_protocol is None:
            return
        try:
            protocol = self._make_protocol(self._accepted(key))
            protocol.connection_made(self)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 (it does not end other connections)
            with contextlib.suppress(ConnectionClosed):
                _quic.Connection(self._native, key).close(1, "internal error")
            self._report("create_protocol() failed", error)
            return
        self._protocols[key] = protocol

    def _accepted(self, key: int) -> QuicConnection:
        return QuicConnection._let_in(self._configuration, self._native, key, self._driver)

    def _report(self, message: str, error: BaseException) -> None:
        self._driver.loop.call_exception_handler({"message": message, "exception": error})

    def stats(self) -> EndpointStats:
        """Count connections and handshakes."""
        return EndpointStats._of(self._native)

    # --- closing ---

    def close(self) -> None:
        """Close all connections, and then the socket; `wait_closed` waits for that.

        Calls each protocol's `close`, which may send a different code and reason than 0.
        """
        if self._driver.is_closed:
            return
        if self._driver.loop.is_closed():
            # Raises if the loop is closed: no callback can run any more, protocols' included.
            self._native.close()
        if self._last is None:
            for protocol in list(self._protocols.values()):
                try:
                    protocol.close()
                except (KeyboardInterrupt, SystemExit):
                    raise
                except BaseException as error:  # noqa: BLE001 (it does not keep others open)
                    self._report("close() failed", error)
        self._native.close()
        self._driver.refuse_newcomers()
        if self._native.connection_count == 0:
            self.abort()
        elif self._last is None:
            self._last = self._driver.loop.call_later(LAST_WORDS_SECONDS, self.abort)

    async def wait_closed(self) -> None:
        """Wait until `close` has completed; returns at once if it was not called."""
        if self._last is not None:
            await self._driver.wait_idle()

    async def aclose(self) -> None:
        """Close all connections and the socket, and wait for that."""
        self.close()
        try:
            await self.wait_closed()
        finally:
            self.abort()

    async def _leave(self) -> None:
        """Close, and wait until the close was sent; the socket stays open for late packets.

        This keeps neither the program's protocol nor a task alive, and ends with the loop.
        """
        self.close()
        try:
            await self._driver.send_all()
        except BaseException:
            self.abort()
            raise
        if self._driver.is_closed:
            return
        self._driver.leave()
        if self._client is not None:
            self._driver.loop.call_soon(self._client.connection_lost, None)
            self._client = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.aclose()

    # --- a transport's methods ---

    @property
    def _transport(self) -> AsyncEndpoint:
        """Return itself; programs use this name to look up a server's port."""
        return self

    @property
    def sockname(self) -> Any:
        """The socket's address."""
        return self._driver.address

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return "sockname" or "socket"."""
        if self._driver.is_closed:
            return default
        return {"sockname": self._driver.address, "socket": self._driver.sock}.get(name, default)

    def is_closing(self) -> bool:
        """Return whether the socket is closed, or about to be."""
        return self._driver.is_closed or self._last is not None

    def abort(self) -> None:
        """Close the socket at once; peers are not notified, protocols lose their connections."""
        if self._driver.is_closed:
            return
        if self._last is not None:
            self._last.cancel()
        self._driver.close()
        self._failures.close()
        if self._driver.loop.is_closed():
            return
        # This ends its connections, and nothing else notifies their protocols.
        for protocol in self._protocols.values():
            protocol._process_soon()
        if self._client is not None:
            self._client._process_soon()
            self._driver.loop.call_soon(self._client.connection_lost, None)
