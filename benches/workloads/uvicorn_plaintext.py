"""uvicorn serving 13 bytes of plain text by httptools, keep-alive GETs.

One operation is one request. No access log, no lifespan, one worker.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn
from support.serving import measure

Event = MutableMapping[str, Any]

START: Event = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/plain"), (b"content-length", b"13")],
}
BODY: Event = {"type": "http.response.body", "body": b"Hello, World!"}


async def app(
    _scope: Event,
    _receive: Callable[[], Awaitable[Event]],
    send: Callable[[Event], Awaitable[None]],
) -> None:
    """Send the same answer to every request."""
    await send(START)
    await send(BODY)


async def serve() -> int:
    """Run uvicorn as its command line does: it binds a free port itself."""
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


if __name__ == "__main__":
    measure(serve, load="http")
