"""A file's bytes to a socket: `loop.sendfile` and `loop.sock_sendfile` of the running loop."""

from __future__ import annotations

import asyncio
import io
import socket
from typing import TYPE_CHECKING, Any

from ringloop.fs._backend import call

if TYPE_CHECKING:
    import os


async def send(raw: io.FileIO, target: Any, offset: int, count: int | None) -> int:
    """Send to a `socket.socket`, a transport, or a `StreamWriter`; return the count of bytes."""
    loop = asyncio.get_running_loop()
    if isinstance(target, socket.socket):
        return await loop.sock_sendfile(target, raw, offset, count)
    if isinstance(target, asyncio.StreamWriter):
        # What was written before goes first.
        await target.drain()
        target = target.transport
    return await loop.sendfile(target, raw, offset, count)


async def sendfile(
    target: Any, path: str | bytes | os.PathLike[Any], offset: int = 0, count: int | None = None
) -> int:
    """Send the file at `path` to a transport, `StreamWriter` or non-blocking socket.

    Uses sendfile(2) if the connection supports it, otherwise reads and writes, as
    `loop.sendfile` does. Returns the number of bytes sent. Raises the errors of open(2) and of
    `loop.sendfile`.
    """
    with await call(io.FileIO, path) as raw:
        return await send(raw, target, offset, count)
