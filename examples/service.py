"""A web service as people write them: FastAPI, nothing of ringloop in it.

Serve it on ringloop with `make run`, or by hand:

    uvicorn examples.service:app --loop ringloop:new_event_loop

It has one of each: JSON, path and query parameters, a dependency, a streamed response, a streamed
upload, a WebSocket, a background task, a lifespan, and a middleware that hands a context variable
down to the handlers.
"""

import asyncio
import hashlib
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Annotated, Any

from fastapi import BackgroundTasks, Depends, FastAPI, HTTPException, Query, Request, WebSocket
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

CHUNK_BYTES = 64 * 1024
STREAM_BYTES_MAX = 16 << 30

request_id: ContextVar[str] = ContextVar("request_id", default="none")


class Item(BaseModel):
    """What `POST /items` takes and `GET /items/{item_id}` gives back."""

    name: str = Field(min_length=1, max_length=80)
    price: float = Field(ge=0)
    tags: list[str] = []


class Store:
    """The state of one running service, made and ended by the lifespan."""

    def __init__(self) -> None:
        self.items: dict[int, Item] = {}
        self.audit: list[str] = []
        self.started_s = time.monotonic()
        self.ticks = 0

    async def tick(self) -> None:
        """Count tenths of a second until cancelled: a task that lives as long as the service."""
        while True:
            await asyncio.sleep(0.1)
            self.ticks += 1


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the store and its ticker before the first request; end both after the last."""
    app.state.store = store = Store()
    ticker = asyncio.create_task(store.tick(), name="ticker")
    try:
        yield
    finally:
        ticker.cancel()
        await asyncio.gather(ticker, return_exceptions=True)
        print(f"service stopped after {store.ticks} ticks", flush=True)


class RequestIdMiddleware:
    """Give each request an id that any code below can read, and name it in the response."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection of the ASGI server."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
        ident = given or uuid.uuid4().hex
        token = request_id.set(ident)

        async def send_with_id(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"].append((b"x-request-id", ident.encode("latin-1")))
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        finally:
            request_id.reset(token)


app = FastAPI(title="ringloop example", lifespan=lifespan)
app.add_middleware(RequestIdMiddleware)


def current_store(request: Request) -> Store:
    """Hand the lifespan's store to a handler."""
    store: Store = request.app.state.store
    return store


StoreDependency = Annotated[Store, Depends(current_store)]


@app.get("/")
async def about() -> dict[str, str]:
    """Say which event loop serves, and through which driver."""
    loop = asyncio.get_running_loop()
    kind = type(loop)
    return {
        "loop": f"{kind.__module__}.{kind.__qualname__}",
        "driver": str(getattr(loop, "driver", "none")),
    }


@app.post("/items", status_code=201)
async def add_item(
    item: Item, store: StoreDependency, background: BackgroundTasks
) -> dict[str, int]:
    """Keep an item; write it into the audit trail after the response has gone out."""
    item_id = len(store.items) + 1
    store.items[item_id] = item
    background.add_task(write_audit, store, f"{request_id.get()} added {item.name}")
    return {"item_id": item_id}


async def write_audit(store: Store, line: str) -> None:
    """Append to the audit trail, off the request's path."""
    await asyncio.sleep(0)
    store.audit.append(line)


@app.get("/items/{item_id}")
async def get_item(item_id: int, store: StoreDependency) -> Item:
    """Give an item back."""
    if item_id not in store.items:
        raise HTTPException(404, f"no item {item_id}")
    return store.items[item_id]


@app.get("/audit")
async def audit(store: StoreDependency) -> list[str]:
    """Show what the background tasks wrote."""
    return store.audit


@app.get("/context")
async def context() -> dict[str, str]:
    """Show the request's id as a task started by the handler, and a worker thread, see it."""
    child = asyncio.create_task(read_request_id())
    return {
        "handler": request_id.get(),
        "task": await child,
        "thread": await asyncio.to_thread(request_id.get),
    }


async def read_request_id() -> str:
    """Read the context variable after a turn of the loop."""
    await asyncio.sleep(0)
    return request_id.get()


def pattern(offset: int, size: int) -> bytes:
    """Return the `size` bytes of the stream at `offset`; no two chunks are alike."""
    block = (offset // CHUNK_BYTES).to_bytes(8, "big")
    return (block * (size // 8 + 1))[:size]


@app.get("/stream")
async def stream(
    size: Annotated[int, Query(ge=0, le=STREAM_BYTES_MAX)] = CHUNK_BYTES,
) -> StreamingResponse:
    """Stream `size` bytes in chunks; back-pressure bounds what is in memory."""

    async def chunks() -> AsyncIterator[bytes]:
        for offset in range(0, size, CHUNK_BYTES):
            yield pattern(offset, min(CHUNK_BYTES, size - offset))

    return StreamingResponse(
        chunks(), media_type="application/octet-stream", headers={"content-length": str(size)}
    )


@app.put("/upload")
async def upload(request: Request) -> dict[str, int | str]:
    """Hash the body as it comes in; nothing of it is kept."""
    digest = hashlib.sha256()
    size = 0
    async for chunk in request.stream():
        digest.update(chunk)
        size += len(chunk)
    return {"size": size, "sha256": digest.hexdigest()}


@app.get("/slow")
async def slow(seconds: Annotated[float, Query(ge=0, le=60)] = 1.0) -> dict[str, float]:
    """Answer after a while."""
    await asyncio.sleep(seconds)
    return {"slept": seconds}


@app.websocket("/echo")
async def echo(socket: WebSocket) -> None:
    """Send every text or binary message back until the client closes."""
    await socket.accept()
    try:
        while True:
            message = await socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            if (text := message.get("text")) is not None:
                await socket.send_text(text)
            else:
                await socket.send_bytes(message["bytes"])
    except WebSocketDisconnect:
        return
