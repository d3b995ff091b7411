"""aiopquic's asyncio interface: `connect`, `serve`, and protocols that can be started manually.

Owns: how these make aiopquic's connections. Called by: programs. Never does: start a thread.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ringloop.quic.asyncio import protocol as shaped
from ringloop.quic.asyncio.client import connected
from ringloop.quic.asyncio.server import opened
from ringloop.quic.compat.aiopquic.configuration import QuicConfiguration
from ringloop.quic.compat.aiopquic.connection import Endpoint, QuicConnection

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator, Callable
    from typing import Self

    from ringloop.quic.asyncio.protocol import QuicStreamHandler
    from ringloop.quic.errors import ConnectionClosed

__all__ = ["QuicConnectionProtocol", "QuicServer", "connect", "serve"]

QuicServer = Endpoint
"""What `serve` returns, under aiopquic's name."""


class QuicConnectionProtocol(shaped.QuicConnectionProtocol):
    """One connection's protocol; override `quic_event_received`."""

    _quic: QuicConnection

    def _start(self, loop: asyncio.AbstractEventLoop | None = None) -> None:  # noqa: ARG002
        """Handle a new connection with a socket of its own; the loop is the running one."""
        self._quic._begin(self)

    def _stop(self) -> None:
        """Do nothing: `QuicConnection.stop` ends the events."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose(timeout=2.0)
        self._quic.stop()


@asynccontextmanager
async def connect(
    host: str,
    port: int,
    *,
    configuration: QuicConfiguration | None = None,
    create_protocol: Callable[..., shaped.QuicConnectionProtocol] | None = None,
    stream_handler: QuicStreamHandler | None = None,
    wait_connected: bool = True,
    local_port: int = 0,
) -> AsyncGenerator[shaped.QuicConnectionProtocol, None]:
    """Connect to a server; close the protocol on exit.

    The server is verified, unless the configuration's `verify_mode` is `ssl.CERT_NONE`.

    Errors: `ConnectionError` if the handshake fails; `OSError` of name resolution and of the
    socket.
    """
    if configuration is None:
        configuration = QuicConfiguration(is_client=True)
    if configuration.server_name is None:
        configuration.server_name = host.partition("%")[0]
    connection = QuicConnection(configuration=configuration)
    make = create_protocol or QuicConnectionProtocol
    protocol = make(connection, stream_handler=stream_handler)
    async with connected(
        protocol, connection, host, port, waits=wait_connected, local_port=local_port
    ):
        yield protocol


async def serve(
    host: str,
    port: int,
    *,
    configuration: QuicConfiguration,
    create_protocol: Callable[..., shaped.QuicConnectionProtocol] | None = None,
    stream_handler: QuicStreamHandler | None = None,
    on_handshake_failed: Callable[[Any, ConnectionClosed], object] | None = None,
) -> Endpoint:
    """Accept connections at `host`; `create_protocol(connection, stream_handler=…)` makes each protocol.

    `on_handshake_failed(address, error)` is called for each client whose handshake fails.

    Errors: ValueError without a certificate; `OSError` of the address and of the socket.
    """
    server = configuration.server_config()
    endpoint = await opened(
        Endpoint, host, port, configuration, server=server, on_handshake_failed=on_handshake_failed
    )
    make = create_protocol or QuicConnectionProtocol
    endpoint._make_protocol = lambda connection: make(connection, stream_handler=stream_handler)
    return endpoint
