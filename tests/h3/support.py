"""Shared by the HTTP/3 tests: a server and a client on the loop under test."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ringloop import h3
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.support.tls import Certificates


@asynccontextmanager
async def served(
    certificates: Certificates, handler: Callable[[h3.Request], Awaitable[object]], **keywords: Any
) -> AsyncIterator[h3.Server]:
    """Serve on the loop under test."""
    certificate, key = certificates.issue()
    server = await h3.serve(
        handler, "127.0.0.1", certificate=certificate, private_key=key, **keywords
    )
    try:
        yield server
    finally:
        server.close()
        await within(server.wait_closed())


@asynccontextmanager
async def both(
    certificates: Certificates,
    handler: Callable[[h3.Request], Awaitable[object]],
    server: dict[str, Any] | None = None,
    **client: Any,
) -> AsyncIterator[h3.Client]:
    """Open a client of a server with this handler, and close both at the end."""
    async with served(certificates, handler, **(server or {})) as endpoint:
        port = endpoint.address[1]
        opening = h3.open_client(
            "127.0.0.1", port, ca_file=certificates.authority, server_name="localhost", **client
        )
        async with await within(opening) as connection:
            yield connection
