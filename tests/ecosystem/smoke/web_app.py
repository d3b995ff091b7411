"""The application that `test_web_servers.py` serves: FastAPI, over HTTP and WebSockets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import fastapi
from fastapi.responses import StreamingResponse
from uvicorn_worker import UvicornWorker

from tests.ecosystem.smoke.services import describe_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

app = fastapi.FastAPI()


class Worker(UvicornWorker):
    """gunicorn's worker, on the loop that the environment names."""

    CONFIG_KWARGS = {  # noqa: RUF012 - the attribute that the base class reads
        "loop": "tests.ecosystem.smoke.services:new_event_loop",
        "http": "httptools",
    }


@app.get("/loop")
async def loop() -> str:
    return describe_loop(asyncio.get_running_loop())


@app.post("/echo")
async def echo(request: fastapi.Request) -> fastapi.Response:
    return fastapi.Response(await request.body())


@app.get("/stream/{count}")
async def stream(count: int) -> StreamingResponse:
    async def numbers() -> AsyncIterator[bytes]:
        for number in range(count):
            yield b"%d\n" % number

    return StreamingResponse(numbers())


@app.get("/thread")
def thread() -> int:
    return sum(range(1000))


@app.websocket("/talk")
async def talk(socket: fastapi.WebSocket) -> None:
    await socket.accept()
    try:
        while True:
            await socket.send_bytes((await socket.receive_bytes())[::-1])
    except fastapi.WebSocketDisconnect:
        return
