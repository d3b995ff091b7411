"""Shared by the WebTransport tests: a server and clients on the loop under test."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ringloop import webtransport
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from ringloop.webtransport import Server, Session
    from tests.support.tls import Certificates

    Handler = Callable[[Session], Awaitable[object]]


@asynccontextmanager
async def served(
    certificates: Certificates, handler: Handler, **keywords: Any
) -> AsyncIterator[Server]:
    """Serve sessions on the loop under test."""
    certificate, key = certificates.issue()
    server = await webtransport.serve(
        handler, "127.0.0.1", certificate=certificate, private_key=key, **keywords
    )
    try:
        yield server
    finally:
        server.close()
        await within(server.wait_closed())


async def opened(
    certificates: Certificates, server: Server, path: str = "/", **keywords: Any
) -> Session:
    """Open a session, on a connection of its own unless one is given."""
    url = f"https://127.0.0.1:{server.address[1]}{path}"
    if "connection" not in keywords:
        keywords = {"ca_file": certificates.authority, "server_name": "localhost", **keywords}
    return await within(webtransport.open_session(url, **keywords))


@asynccontextmanager
async def both(
    certificates: Certificates,
    handler: Handler,
    path: str = "/",
    *,
    server: dict[str, Any] | None = None,
    **client: Any,
) -> AsyncIterator[Session]:
    """Open a session with a server that has this handler, and close both at the end."""
    async with (
        served(certificates, handler, **(server or {})) as endpoint,
        await opened(certificates, endpoint, path, **client) as session,
    ):
        yield session
