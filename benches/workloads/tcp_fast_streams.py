"""TCP echo by streams: ringloop's fast ones on ringloop, those of `asyncio.start_server` elsewhere.

A loop that replaces asyncio's streams when it is imported has its own. One operation is one message
echoed.
"""

import asyncio
from typing import Any

from support.loops import OURS_PREFIX
from support.serving import measure
from tcp_streams import echo


async def start_server(**options: Any) -> asyncio.Server:
    """Serve `echo` by the fastest streams that the running loop brings."""
    start: Any = asyncio.start_server
    if type(asyncio.get_running_loop()).__module__.split(".")[0] == OURS_PREFIX.rstrip("-"):
        import ringloop

        start = ringloop.start_server
    server: asyncio.Server = await start(echo, "127.0.0.1", 0, backlog=1024, **options)
    return server


async def serve() -> int:
    """Listen on a free port."""
    server = await start_server()
    return int(server.sockets[0].getsockname()[1])


if __name__ == "__main__":
    measure(serve)
