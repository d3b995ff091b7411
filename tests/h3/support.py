"""Shared by the HTTP/3 tests: a server and a client on the loop under test."""

from __future__ import annotations

import ctypes
import os
import socket
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringloop import h3, quic
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from ringloop.quic import Endpoint
    from tests.support.tls import Certificates


async def echo(request: h3.Request) -> None:
    """Answer with the request's body as it comes, and its trailers."""
    request.start(200, {"content-type": "application/octet-stream"})
    async for piece in request:
        await request.send(piece)
    if request.trailers:
        request.send_trailers(request.trailers)


def sending_until(outcomes: list[BaseException]) -> Callable[[h3.Request], Awaitable[None]]:
    """Make a handler whose body has no end, and which notes the error that ends it."""

    async def handler(request: h3.Request) -> None:
        request.start()
        try:
            while True:
                await request.send(bytes(1 << 16))
        except quic.QuicError as error:
            outcomes.append(error)
            raise

    return handler


def resident_bytes() -> int:
    """Return the process's memory, without what the allocator keeps for later."""
    # What an earlier test has freed would be used first. Not every C library has it.
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def silent_port() -> Iterator[int]:
    """Give a port that takes datagrams and answers none; it is closed at the end."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


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


async def opened(certificates: Certificates, server: Endpoint, **keywords: Any) -> h3.Client:
    """Open a client of a server on the loop under test."""
    opening = h3.open_client(
        "127.0.0.1",
        server.address[1],
        ca_file=certificates.authority,
        server_name="localhost",
        **keywords,
    )
    return await within(opening)


@asynccontextmanager
async def both(
    certificates: Certificates,
    handler: Callable[[h3.Request], Awaitable[object]],
    server: dict[str, Any] | None = None,
    **client: Any,
) -> AsyncIterator[h3.Client]:
    """Open a client of a server with this handler, and close both at the end."""
    async with (
        served(certificates, handler, **(server or {})) as endpoint,
        await opened(certificates, endpoint, **client) as connection,
    ):
        yield connection
