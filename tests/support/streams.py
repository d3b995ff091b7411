"""Streams for the tests: connected to a plain socket, and serving."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import ringloop
from tests import support
from tests.support.tcp import SOCKET_BUFFER_BYTES, Peer, socket_pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def is_ours() -> bool:
    return isinstance(asyncio.get_running_loop(), ringloop.Loop)


@contextlib.asynccontextmanager
async def connected(limit: int = 65_536, **options: Any) -> AsyncIterator[tuple[Any, Any, Peer]]:
    """Connect streams to a plain socket; close both ends afterwards."""
    ours, theirs = socket_pair(SOCKET_BUFFER_BYTES)
    ours.setblocking(False)
    peer = Peer(theirs)
    reader, writer = await ringloop.open_connection(sock=ours, limit=limit, **options)
    try:
        yield reader, writer, peer
    finally:
        peer.close()
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def serving(handle: Any, **options: Any) -> AsyncIterator[int]:
    """Serve on a free port."""
    server = await ringloop.start_server(handle, "127.0.0.1", 0, **options)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        await until_alone()
        server.close()
        await server.wait_closed()


async def until_alone() -> None:
    """Wait for the tasks that serve: before 3.12.1 a server does not."""
    await support.wait_until(lambda: len(asyncio.all_tasks()) == 1, "the end of the other tasks")


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Echo until the end, which may be a reset, and close."""
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    await writer.wait_closed()
