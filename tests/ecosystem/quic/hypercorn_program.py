"""Serve HTTP/3 with hypercorn and query it: PROGRAM aioquic|ringloop|ringloop-http3 FOLDER."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

from tests.ecosystem.quic import shim
from tests.interop.http3.processes import is_bound

if sys.argv[1] != "aioquic":
    shim.install("aioquic", http3=sys.argv[1] == "ringloop-http3")

from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived
from aioquic.quic.configuration import QuicConfiguration
from hypercorn.asyncio import serve
from hypercorn.config import Config

FOLDER = sys.argv[2]
TAIL = 1_000_000


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        for _phase in range(2):
            await send({"type": (await receive())["type"] + ".complete"})
        return
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"%08d" % size + bytes(TAIL)})


class Client(QuicConnectionProtocol):
    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.http = H3Connection(self._quic)
        self.bodies: dict[int, tuple[bytearray, asyncio.Future[bytes]]] = {}

    def quic_event_received(self, event: Any) -> None:
        for answer in self.http.handle_event(event):
            body, done = self.bodies[answer.stream_id]
            if isinstance(answer, DataReceived):
                body += answer.data
            if answer.stream_ended:
                done.set_result(bytes(body))

    async def post(self, body: bytes) -> bytes:
        stream_id = self._quic.get_next_available_stream_id()
        done = self._loop.create_future()
        self.bodies[stream_id] = (bytearray(), done)
        headers = {"method": "POST", "scheme": "https", "authority": "localhost", "path": "/"}
        self.http.send_headers(
            stream_id, [(b":" + name.encode(), value.encode()) for name, value in headers.items()]
        )
        self.http.send_data(stream_id, body, end_stream=True)
        self.transmit()
        return await done


async def ask(port: int) -> None:
    configuration = QuicConfiguration(alpn_protocols=H3_ALPN, server_name="localhost")
    configuration.load_verify_locations(f"{FOLDER}/authority.pem")
    async with connect(
        "127.0.0.1", port, configuration=configuration, create_protocol=Client
    ) as client:
        for size in (10, 3_000_000):
            body = await client.post(bytes(size))
            assert body == b"%08d" % size + bytes(TAIL)
        bodies = await asyncio.gather(*[client.post(b"") for _request in range(10)])
        assert {len(body) for body in bodies} == {8 + TAIL}
        client.change_connection_id()
        await client.post(b"from another id")


async def main() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.quic_bind = [f"127.0.0.1:{port}"]
    config.certfile, config.keyfile = f"{FOLDER}/certificate.pem", f"{FOLDER}/key.pem"
    stop = asyncio.Event()
    serving = asyncio.ensure_future(serve(app, config, shutdown_trigger=stop.wait))
    try:
        async with asyncio.timeout(60):
            # A client of ringloop's ends at once where nothing is bound.
            while not is_bound(port) and not serving.done():  # noqa: ASYNC110 - it does not tell
                await asyncio.sleep(0.01)
            await ask(port)
    finally:
        stop.set()
        await serving
    print("done")


asyncio.run(main())
