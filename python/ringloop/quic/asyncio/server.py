"""The server's side of QUIC on an asyncio loop.

Owns: `serve`. Called by: programs. Never does: keep anything of an ended connection.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any, TypeVar

from ringloop.quic._driver import checked_port
from ringloop.quic.asyncio.endpoint import AsyncEndpoint
from ringloop.quic.asyncio.protocol import QuicConnectionProtocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringloop._native import quic as _quic
    from ringloop.quic.asyncio.protocol import QuicStreamHandler
    from ringloop.quic.configuration import QuicConfiguration
    from ringloop.quic.errors import ConnectionClosed
    from ringloop.quic.tls import SessionTicketFetcher, SessionTicketHandler

__all__ = ["QuicServer", "serve"]

_Endpoint = TypeVar("_Endpoint", bound=AsyncEndpoint)

QuicServer = AsyncEndpoint
"""What `serve` returns; aioquic's name of it."""


async def serve(
    host: str,
    port: int,
    *,
    configuration: QuicConfiguration,
    create_protocol: Callable[..., QuicConnectionProtocol] = QuicConnectionProtocol,
    session_ticket_fetcher: SessionTicketFetcher | None = None,
    session_ticket_handler: SessionTicketHandler | None = None,
    retry: bool = False,
    stream_handler: QuicStreamHandler | None = None,
    on_handshake_failed: Callable[[Any, ConnectionClosed], object] | None = None,
) -> AsyncEndpoint:
    """Accept connections; `close()` of the result ends them all.

    `create_protocol(connection, stream_handler=…)` makes each one's protocol. `retry`: clients have
    to prove their address first. The configuration keeps sessions, so that clients can resume
    them; the two ticket functions are not called, but passing either allows early data, as with
    aioquic. `on_handshake_failed(address, error)` is called for each client whose handshake fails;
    some of them are also logged, on `ringloop.quic`.

    Errors: ValueError without a certificate; `OSError` of the address and of the socket.
    """
    server = configuration.server_config(
        early_data=session_ticket_fetcher is not None or session_ticket_handler is not None
    )
    endpoint = await opened(
        AsyncEndpoint,
        host,
        port,
        configuration,
        server=server,
        retry=retry,
        on_handshake_failed=on_handshake_failed,
    )
    endpoint._make_protocol = lambda connection: create_protocol(
        connection, stream_handler=stream_handler
    )
    return endpoint


async def opened(
    make: type[_Endpoint],
    host: str,
    port: int,
    configuration: QuicConfiguration,
    *,
    server: _quic.ServerConfig,
    retry: bool = False,
    on_handshake_failed: Callable[[Any, ConnectionClosed], object] | None = None,
) -> _Endpoint:
    """Make an endpoint at a name's first address, or at all of this machine's."""
    loop = asyncio.get_running_loop()
    family, address = socket.AF_UNSPEC, (host, port)
    if host:
        found = await loop.getaddrinfo(
            host, checked_port(port), type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, where = found[0]
        address = (str(where[0]), port)
        if len(where) == 4 and where[3]:  # noqa: PLR2004
            address = (f"{where[0]}%{where[3]}", port)
    return make(
        loop,
        configuration,
        host=address[0] or None,
        port=port,
        family=family,
        server=server,
        retry=retry,
        on_handshake_failed=on_handshake_failed,
    )
