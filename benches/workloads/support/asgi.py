"""uvicorn as its command line runs it, in a loop that runs already.

Owns: its settings. Called by: the workloads of ASGI applications.
"""

import asyncio
from typing import Any

import uvicorn


async def serve_by_uvicorn(app: Any) -> int:
    """Serve on a free port of 127.0.0.1, by httptools, without access log; returns the port."""
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        http="httptools",
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="error",
    )
    server = uvicorn.Server(config)
    running = asyncio.ensure_future(server.serve())
    while not server.started:
        if running.done():
            await running
        await asyncio.sleep(0.01)
    return int(server.servers[0].sockets[0].getsockname()[1])
