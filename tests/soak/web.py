"""Good clients of the web servers: HTTP/1, WebSocket, HTTP/3, WebTransport."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import websockets.asyncio.client

from ringloop import h3, webtransport
from tests.soak.servers import IDLE_SECONDS
from tests.soak.soak import material
from tests.soak.streams import closed, opened

if TYPE_CHECKING:
    from tests.soak.soak import Part, Soak


def body_of(soak: Soak) -> bytes:
    return material(soak.rng.randrange(1 << 40), soak.length())


async def post(soak: Soak, reader: Any, writer: Any, where: str) -> None:
    """Post a body by HTTP/1.1, and compare the echo, which is chunked."""
    body = body_of(soak)
    head = f"POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    status = await reader.readuntil(b"\r\n\r\n")
    if not status.startswith(b"HTTP/1.1 200"):
        raise ConnectionError(f"{where}: {status!r}")
    echo = bytearray()
    while size := int(await reader.readuntil(b"\r\n"), 16):
        echo += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readexactly(2)
    soak.same(echo, body, where)


async def http(soak: Soak) -> None:
    """Post some bodies on a connection, with TLS or without."""
    name = soak.rng.choice(("http", "https"))
    reader, writer = await opened(soak, "tls" if name == "https" else name, soak.addresses[name])
    try:
        for _ in range(soak.rng.randint(1, 3)):
            await post(soak, reader, writer, name)
    finally:
        await closed(writer)


async def websocket(soak: Soak) -> None:
    url = "ws://{}:{}/".format(*soak.addresses["http"])
    async with websockets.asyncio.client.connect(url, proxy=None, compression=None) as client:
        for _ in range(soak.rng.randint(1, 4)):
            await message(soak, client, "websocket")


async def message(soak: Soak, client: Any, where: str) -> None:
    sent = body_of(soak)
    await client.send(sent)
    soak.same(await client.recv(), sent, where)


async def kept_websocket(soak: Soak) -> None:
    """Send a message on a WebSocket that stays open."""
    lock = soak.kept.setdefault("websocket lock", asyncio.Lock())
    async with lock:
        client = soak.kept.pop("websocket", None)
        if client is None:
            url = "ws://{}:{}/".format(*soak.addresses["http"])
            client = await websockets.asyncio.client.connect(url, proxy=None)
        try:
            await message(soak, client, "kept websocket")
        except BaseException:
            await client.close()
            raise
        soak.kept["websocket"] = client


async def http3(soak: Soak) -> None:
    """Post a body by HTTP/3, on the connection of the pool."""
    if "pool" not in soak.kept:
        soak.kept["pool"] = h3.Pool(ca_file=soak.authority, idle_timeout=IDLE_SECONDS)
    sent = body_of(soak)
    url = "https://localhost:{}/echo".format(soak.addresses["h3"][1])
    response = await soak.kept["pool"].request("POST", url, body=sent)
    async with response:
        got = await response.read()
    soak.same(got, sent, "http3")


async def http3_connection(soak: Soak) -> None:
    """Post bodies at once, on a connection of their own."""
    host, port = soak.addresses["h3"]
    keywords: dict[str, Any] = {"ca_file": soak.authority, "server_name": "localhost"}
    async with h3.connect(host, port, **keywords) as client:

        async def one() -> None:
            sent = body_of(soak)
            response = await client.request("POST", "/echo", body=sent)
            soak.same(await response.read(), sent, "http3 connection")

        await asyncio.gather(*[one() for _ in range(soak.rng.randint(1, 4))])


async def session(soak: Soak) -> None:
    """Echo streams and datagrams by WebTransport; datagrams may be lost."""
    url = "https://localhost:{}/".format(soak.addresses["h3"][1])
    keywords: dict[str, Any] = {
        "ca_file": soak.authority,
        "connect_to": soak.addresses["h3"],
    }
    async with webtransport.connect(url, **keywords) as one:
        datagram = material(soak.rng.randrange(1 << 40), 500)
        one.send_datagram(datagram)
        for _ in range(soak.rng.randint(1, 3)):
            sent = body_of(soak)
            stream = await one.open_stream()
            reading = asyncio.ensure_future(stream.read())
            await stream.send(sent)
            stream.finish()
            soak.same(await reading, sent, "webtransport")


async def close_kept(soak: Soak) -> None:
    """Close what stayed open between parts."""
    if pair := soak.kept.pop("tls", None):
        await closed(pair[1])
    if client := soak.kept.pop("websocket", None):
        await client.close()
    if pool := soak.kept.pop("pool", None):
        await pool.aclose()


PARTS: tuple[Part, ...] = (http, http, websocket, kept_websocket, http3, http3_connection, session)
