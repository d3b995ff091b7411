"""ASGI frameworks under `ringloop.serve`, unchanged: HTTP/3, HTTP/1.1, WebSocket over HTTP/3."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side, State

from ringloop import h3, serve
from tests.ecosystem.smoke import http3_apps
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.ecosystem.smoke.conftest import Certificates

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

FRAMEWORKS = ("starlette", "fastapi", "django", "quart", "litestar")


async def fetched(client: h3.Client, method: str, path: str, body: bytes | None = None) -> Any:
    response = await within(client.request(method, path, body=body))
    return response.status, await within(response.read())


async def exercise(client: h3.Client) -> None:
    """Request everything that an application has, a hundred requests at a time."""
    status, body = await fetched(client, "GET", "/hello/w%C3%B6rld")
    assert (status, json.loads(body)) == (200, {"hello": "wörld", "by": "3"})
    body = os.urandom(1 << 20)
    assert await fetched(client, "POST", "/echo", body) == (200, body)
    status, body = await fetched(client, "GET", "/stream/2000")
    assert body.splitlines() == [b"%d" % number for number in range(2000)]
    assert (await fetched(client, "GET", "/fail"))[0] == 500
    assert (await fetched(client, "GET", "/none"))[0] == 404
    answers = [fetched(client, "GET", "/hello/you") for _ in range(100)]
    assert {status for status, _ in await asyncio.gather(*answers)} == {200}


async def message(exchange: h3.Response, frames: Protocol) -> bytes:
    """Wait for a whole message."""
    parts: list[bytes] = []
    while True:
        frames.receive_data(await within(exchange.read(1 << 16)))
        for frame in frames.events_received():
            assert isinstance(frame, Frame)
            assert frame.opcode in {Opcode.TEXT, Opcode.CONT}, frame
            parts.append(bytes(frame.data))
            if frame.fin:
                return b"".join(parts)


async def talk(client: h3.Client) -> None:
    fields = [(b":method", b"CONNECT"), (b":protocol", b"websocket"), (b":path", b"/talk")]
    fields += [(b":scheme", b"https"), (b":authority", b"localhost")]
    exchange = await within(client.open([*fields, (b"sec-websocket-version", b"13")]))
    await within(exchange._wait_head())
    assert exchange.status == 200
    frames = Protocol(Side.CLIENT, state=State.OPEN, max_size=None)
    for size in (0, 125, 65_536):
        frames.send_text(b"ab" * size)
        for data in frames.data_to_send():
            await within(exchange.send(data))
        assert await message(exchange, frames) == b"ba" * size
    frames.send_close(1000)
    for data in frames.data_to_send():
        await within(exchange.send(data))
    await within(exchange.read())


@pytest.mark.keeps_threads
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_framework_runs_unchanged(run: Run, certificates: Certificates, framework: str) -> None:
    application = getattr(http3_apps, framework)()
    settings = serve.Settings(
        certificate=certificates.certificate,
        private_key=certificates.key,
        bind=("127.0.0.1", 0),
        quic_bind=("127.0.0.1", 0),
    )

    async def main() -> None:
        async with serve.Server(application, settings) as server:
            connecting = h3.open_client(
                *server.quic_address, ca_file=certificates.authority, server_name="localhost"
            )
            async with await within(connecting) as client:
                await exercise(client)
                if framework != "django":
                    await talk(client)
            assert server.tcp_address is not None
            url = f"https://localhost:{server.tcp_address[1]}/hello/you"
            tls = certificates.client()
            async with httpx.AsyncClient(verify=tls, trust_env=False, timeout=30) as over_tcp:
                response = await over_tcp.get(url)
                assert response.json() == {"hello": "you", "by": "1.1"}
                assert response.headers["alt-svc"].startswith("h3=")

    run(main())
