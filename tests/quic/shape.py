"""A server and a client in aioquic's style, for the tests of `ringloop.quic.asyncio`."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ringloop.quic.asyncio import connect, serve
from tests.quic.test_shape_connection import client_side, server_side

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable, Coroutine

    from ringloop.quic.asyncio.endpoint import AsyncEndpoint
    from tests.support.tls import Certificates

    Run = Callable[[Coroutine[Any, Any, None]], None]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


@asynccontextmanager
async def served(certificates: Certificates, **keywords: Any) -> AsyncIterator[AsyncEndpoint]:
    configuration = keywords.pop("configuration", None) or server_side(certificates)
    host = keywords.pop("host", "127.0.0.1")
    server = await serve(host, 0, configuration=configuration, **keywords)
    try:
        yield server
    finally:
        await server.aclose()


def port_of(server: AsyncEndpoint) -> int:
    # As applications written for aioquic look it up.
    port: int = server._transport.get_extra_info("sockname")[1]
    return port


@asynccontextmanager
async def both(
    certificates: Certificates,
    client: dict[str, Any] | None = None,
    **keywords: Any,
) -> AsyncIterator[Any]:
    async with served(certificates, **keywords) as server:
        configuration = client_side(certificates, **(client or {}))
        async with connect("127.0.0.1", port_of(server), configuration=configuration) as protocol:
            yield protocol
