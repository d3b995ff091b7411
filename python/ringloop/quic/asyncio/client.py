"""The client's side of QUIC on an asyncio loop.

Owns: `connect`. Called by: programs. Never does: leave a socket behind, whatever fails.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ringloop.quic._driver import checked_port
from ringloop.quic.asyncio.endpoint import AsyncEndpoint
from ringloop.quic.asyncio.protocol import QuicConnectionProtocol
from ringloop.quic.configuration import QuicConfiguration
from ringloop.quic.connection import QuicConnection

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from ringloop.quic.asyncio.protocol import QuicStreamHandler
    from ringloop.quic.connection import QuicTokenHandler
    from ringloop.quic.tls import SessionTicketHandler

__all__ = ["connect"]


@asynccontextmanager
async def connect(
    host: str,
    port: int,
    *,
    configuration: QuicConfiguration | None = None,
    create_protocol: Callable[..., QuicConnectionProtocol] = QuicConnectionProtocol,
    session_ticket_handler: SessionTicketHandler | None = None,
    stream_handler: QuicStreamHandler | None = None,
    token_handler: QuicTokenHandler | None = None,
    wait_connected: bool = True,
    local_port: int = 0,
) -> AsyncGenerator[QuicConnectionProtocol, None]:
    """Connect to a server; on exit the protocol is closed (`close`), by default with code 0.

    That returns once the close was sent; the socket stays open briefly for late packets.

    `create_protocol(connection, stream_handler=…)` makes the protocol. `stream_handler(reader,
    writer)` is called for each stream that the server opens; it may be a coroutine function.
    Without `wait_connected` the body starts before the handshake ends, so that early data may be
    sent (with `configuration.session_ticket`). `session_ticket_handler`, `token_handler`: receive
    what the server issues for later connections.

    Errors: `ConnectionError` if the handshake fails; `OSError` of name resolution and of the
    socket.
    """
    if configuration is None:
        configuration = QuicConfiguration(is_client=True)
    if configuration.server_name is None:
        configuration.server_name = host.partition("%")[0]
    connection = QuicConnection(
        configuration=configuration,
        session_ticket_handler=session_ticket_handler,
        token_handler=token_handler,
    )
    protocol = create_protocol(connection, stream_handler=stream_handler)
    async with connected(
        protocol, connection, host, port, waits=wait_connected, local_port=local_port
    ):
        yield protocol


@asynccontextmanager
async def connected(
    protocol: QuicConnectionProtocol,
    connection: QuicConnection,
    host: str,
    port: int,
    *,
    waits: bool,
    local_port: int,
) -> AsyncGenerator[None, None]:
    """Connect with a new socket."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, checked_port(port), type=socket.SOCK_DGRAM)
    family, _, _, _, address = found[0]
    endpoint = AsyncEndpoint(
        loop,
        connection.configuration,
        host=None,
        port=local_port,
        family=family,
        connection_id=connection.host_cid,
    )
    try:
        endpoint._take_client(connection, protocol)
        protocol.connect(address, transmit=waits)
        if waits:
            await protocol.wait_connected()
        yield
    finally:
        try:
            protocol.close()
        finally:
            await endpoint._leave()
