"""Echo on a Unix socket by `asyncio.Protocol`: `data_received` writes back what it got.

One operation is one message echoed.
"""

import asyncio
import tempfile
from pathlib import Path

from support.serving import measure
from tcp_protocol import Echo


async def serve() -> str:
    """Listen on a socket in a folder of its own."""
    path = Path(tempfile.mkdtemp()) / "socket"
    loop = asyncio.get_running_loop()
    await loop.create_unix_server(Echo, path, backlog=1024)
    return f"unix:{path}"


if __name__ == "__main__":
    measure(serve)
