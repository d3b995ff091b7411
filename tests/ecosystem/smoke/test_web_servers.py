"""ASGI servers and HTTP clients over TLS: uvicorn, hypercorn, gunicorn; httpx, websockets, aiohttp.

The server is another process on the loop under test; the client runs on the same kind of loop in this
one.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import sys
from typing import TYPE_CHECKING, Any

import aiohttp
import aiohttp.web
import httpx
import websockets

from tests.ecosystem.smoke.services import ROOT, free_port, process
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from tests.ecosystem.smoke.conftest import Certificates

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

APP = "tests.ecosystem.smoke.web_app:app"
FACTORY = "tests.ecosystem.smoke.services:new_event_loop"


@contextlib.contextmanager
def server(environment: dict[str, str], port: int, *command: object) -> Iterator[None]:
    """Run a server as `python -m COMMAND...`; it must exit by itself, without an error, when told to."""
    full = [sys.executable, "-m", *map(str, command)]
    with process(full, port, cwd=ROOT, env=environment) as child:
        yield
        child.terminate()
        assert child.wait(20) in {0, -15}


async def exercise(client: httpx.AsyncClient, loop_name: str) -> None:
    """Request everything that the application has, a hundred requests at a time."""
    assert (await client.get("/loop")).json() == loop_name
    answers = await asyncio.gather(*(client.get("/thread") for _ in range(100)))
    assert {answer.json() for answer in answers} == {499_500}
    body = os.urandom(1 << 20)
    assert (await client.post("/echo", content=body)).content == body
    async with client.stream("GET", "/stream/2000") as answer:
        assert [int(line) async for line in answer.aiter_lines()] == list(range(2000))


async def exercise_websocket(port: int, tls: Any = None) -> None:
    """Exchange WebSocket messages with every kind of length."""
    scheme = "wss" if tls else "ws"
    address = f"{scheme}://localhost:{port}/talk"
    async with websockets.connect(address, ssl=tls, max_size=None, proxy=None) as talk:
        for size in (0, 1, 125, 126, 65_535, 65_536, 1 << 20):
            message = os.urandom(size)
            await talk.send(message)
            assert await within(talk.recv()) == message[::-1]


def test_uvicorn_with_tls_and_websockets(
    run: Run, loop_name: str, loop_environment: dict[str, str], certificates: Certificates
) -> None:
    async def main() -> None:
        root = f"https://localhost:{port}"
        tls = certificates.client()
        async with httpx.AsyncClient(
            base_url=root, verify=tls, trust_env=False, timeout=30
        ) as client:
            await exercise(client, loop_name)
        await exercise_websocket(port, tls)

    port = free_port()
    command = ["uvicorn", APP, "--port", port, "--loop", FACTORY, "--ws", "websockets-sansio"]
    command += ["--ssl-keyfile", certificates.key, "--ssl-certfile", certificates.certificate]
    with server(loop_environment, port, *command):
        run(main())


def test_hypercorn_and_httpx_speak_http2_over_tls(
    run: Run, loop_name: str, loop_environment: dict[str, str], certificates: Certificates
) -> None:
    async def main() -> None:
        options: dict[str, Any] = {
            "verify": certificates.client(),
            "trust_env": False,
            "timeout": 30,
        }
        root = f"https://localhost:{port}"
        async with httpx.AsyncClient(base_url=root, http2=True, **options) as client:
            await exercise(client, loop_name)
            assert (await client.get("/loop")).http_version == "HTTP/2"

    port = free_port()
    command = ["tests.ecosystem.smoke.hypercorn_program", port]
    command += [certificates.certificate, certificates.key]
    with server(loop_environment, port, *command):
        run(main())


def test_gunicorn_with_two_uvicorn_workers(
    run: Run, loop_name: str, loop_environment: dict[str, str]
) -> None:
    async def main() -> None:
        root = f"http://localhost:{port}"
        async with httpx.AsyncClient(base_url=root, trust_env=False, timeout=30) as client:
            await exercise(client, loop_name)
        await exercise_websocket(port)

    port = free_port()
    command = ["gunicorn", APP, "--bind", f"127.0.0.1:{port}", "--workers", 2]
    command += ["--worker-class", "tests.ecosystem.smoke.web_app.Worker", "--no-control-socket"]
    with server(loop_environment, port, *command):
        run(main())


def test_aiohttp_both_ways_over_tls(run: Run, certificates: Certificates) -> None:
    async def echo(request: aiohttp.web.Request) -> aiohttp.web.Response:
        return aiohttp.web.Response(body=await request.read())

    async def talk(request: aiohttp.web.Request) -> aiohttp.web.WebSocketResponse:
        socket = aiohttp.web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_bytes(message.data[::-1])
        return socket

    async def main() -> None:
        app = aiohttp.web.Application(client_max_size=8 << 20)
        app.add_routes([aiohttp.web.post("/echo", echo), aiohttp.web.get("/talk", talk)])
        runner = aiohttp.web.AppRunner(app)
        await runner.setup()
        port = free_port()
        site = aiohttp.web.TCPSite(runner, "127.0.0.1", port, ssl_context=certificates.server())
        await site.start()
        connector = aiohttp.TCPConnector(ssl=certificates.client(), limit=20)
        async with aiohttp.ClientSession(f"https://localhost:{port}", connector=connector) as http:
            bodies = [os.urandom(10_000) for _ in range(100)]

            async def post(body: bytes) -> bool:
                async with http.post("/echo", data=body) as answer:
                    return await answer.read() == body

            assert all(await asyncio.gather(*map(post, bodies)))
            big = os.urandom(4 << 20)
            async with http.post("/echo", data=io.BytesIO(big)) as answer:
                assert await answer.read() == big
            async with http.ws_connect("/talk") as socket:
                for body in bodies:
                    await socket.send_bytes(body)
                    assert await within(socket.receive_bytes()) == body[::-1]
        await runner.cleanup()

    run(main())
