"""uvicorn serving 13 bytes of plain text by httptools, keep-alive GETs.

One operation is one request. No access log, no lifespan, one worker.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from support.asgi import serve_by_uvicorn
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
    """Serve the application."""
    return await serve_by_uvicorn(app)


if __name__ == "__main__":
    measure(serve, load="http")
