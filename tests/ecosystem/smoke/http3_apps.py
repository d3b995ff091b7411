"""Small applications of five frameworks, as their documentation has them: what `test_http3.py` serves.

Each has `/hello/NAME` (JSON), `/echo` (the request's body), `/stream/COUNT` (lines), `/fail` (raises);
all but Django a WebSocket at `/talk` that returns messages reversed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


async def lines(count: int) -> AsyncIterator[bytes]:
    for number in range(count):
        yield b"%d\n" % number


def starlette() -> Any:
    from starlette.applications import Starlette
    from starlette.requests import Request  # noqa: TC002
    from starlette.responses import JSONResponse, Response, StreamingResponse
    from starlette.routing import Route, WebSocketRoute
    from starlette.websockets import WebSocket, WebSocketDisconnect

    async def hello(request: Request) -> Response:
        return JSONResponse(
            {"hello": request.path_params["name"], "by": request.scope["http_version"]}
        )

    async def echo(request: Request) -> Response:
        return Response(await request.body())

    async def stream(request: Request) -> Response:
        return StreamingResponse(lines(request.path_params["count"]))

    async def fail(request: Request) -> Response:
        raise RuntimeError("of the application")

    async def talk(socket: WebSocket) -> None:
        await socket.accept()
        try:
            while True:
                await socket.send_text((await socket.receive_text())[::-1])
        except WebSocketDisconnect:
            return

    return Starlette(
        routes=[
            Route("/hello/{name}", hello),
            Route("/echo", echo, methods=["POST"]),
            Route("/stream/{count:int}", stream),
            Route("/fail", fail),
            WebSocketRoute("/talk", talk),
        ]
    )


def fastapi() -> Any:
    from fastapi import FastAPI, Request, WebSocket, WebSocketDisconnect
    from fastapi.responses import Response, StreamingResponse

    app = FastAPI()
    # Annotations are looked up in the module.
    globals().update(Request=Request, WebSocket=WebSocket)

    @app.get("/hello/{name}")
    async def hello(name: str, request: Request) -> dict[str, str]:
        return {"hello": name, "by": request.scope["http_version"]}

    @app.post("/echo")
    async def echo(request: Request):  # noqa: ANN202
        return Response(await request.body())

    @app.get("/stream/{count}")
    async def stream(count: int):  # noqa: ANN202
        return StreamingResponse(lines(count))

    @app.get("/fail")
    def fail() -> None:
        raise RuntimeError("of the application")

    @app.websocket("/talk")
    async def talk(socket: WebSocket) -> None:
        await socket.accept()
        try:
            while True:
                await socket.send_text((await socket.receive_text())[::-1])
        except WebSocketDisconnect:
            return

    return app


def django() -> Any:
    from django.conf import settings

    if not settings.configured:
        settings.configure(
            SECRET_KEY="of the tests",
            ALLOWED_HOSTS=["*"],
            ROOT_URLCONF=__name__,
            LOGGING_CONFIG=None,
        )
    import django as package
    from django.core.asgi import get_asgi_application

    package.setup()
    return get_asgi_application()


def __getattr__(name: str) -> Any:
    """Return Django's routes, which are made once it has its settings."""
    if name != "urlpatterns":
        raise AttributeError(name)
    from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
    from django.urls import path

    async def hello(request: Any, name: str) -> Any:
        return JsonResponse({"hello": name, "by": request.scope["http_version"]})

    def echo(request: Any) -> Any:
        return HttpResponse(request.body)

    async def stream(request: Any, count: int) -> Any:
        return StreamingHttpResponse(lines(count))

    async def fail(request: Any) -> Any:
        raise RuntimeError("of the application")

    return [
        path("hello/<str:name>", hello),
        path("echo", echo),
        path("stream/<int:count>", stream),
        path("fail", fail),
    ]


def quart() -> Any:
    from quart import Quart, Response, request, websocket

    app = Quart(__name__)
    app.config["MAX_CONTENT_LENGTH"] = None

    @app.get("/hello/<name>")
    async def hello(name: str) -> dict[str, str]:
        return {"hello": name, "by": request.http_version}

    @app.post("/echo")
    async def echo() -> Response:
        return Response(await request.get_data())

    @app.get("/stream/<int:count>")
    async def stream(count: int) -> Response:
        return Response(lines(count))

    @app.get("/fail")
    async def fail() -> Response:
        raise RuntimeError("of the application")

    @app.websocket("/talk")
    async def talk() -> None:
        while True:
            await websocket.send((await websocket.receive())[::-1])

    return app


def litestar() -> Any:
    from litestar import Litestar, Request, WebSocket, get, post, websocket_listener
    from litestar.response import Stream

    # Annotations are looked up in the module.
    globals().update(Request=Request, Stream=Stream, WebSocket=WebSocket, Any=Any)

    @get("/hello/{name:str}")
    async def hello(name: str, request: Request[Any, Any, Any]) -> dict[str, str]:
        return {"hello": name, "by": request.scope["http_version"]}

    @post("/echo", media_type="application/octet-stream", status_code=200)
    async def echo(request: Request[Any, Any, Any]) -> bytes:
        return await request.body()

    @get("/stream/{count:int}")
    async def stream(count: int) -> Stream:
        return Stream(lines(count))

    @get("/fail")
    async def fail() -> None:
        raise RuntimeError("of the application")

    @websocket_listener("/talk")
    async def talk(data: str) -> str:
        return data[::-1]

    return Litestar([hello, echo, stream, fail, talk], request_max_body_size=None)
