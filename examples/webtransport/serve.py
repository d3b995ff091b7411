"""WebTransport in a browser: an echo, the latency of datagrams and of a stream, an upload.

python examples/webtransport/serve.py

It prints the address of its page, for a browser of this machine. The certificate is made at the start,
and the page gets its hash, so nothing is to be installed. The page can also reach the server by a relay
that delays and loses datagrams, as a network does.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ringloop import webtransport

if TYPE_CHECKING:
    from ringloop.quic import Stream

HOST: Final = "127.0.0.1"
PAGE: Final = Path(__file__).with_name("page.html")
# Of the relay: seconds each way, and of 100 datagrams how many are lost.
DELAY: Final = 0.02
LOST_PERCENT: Final = 2
# How often an upload is reported on.
REPORT_SECONDS: Final = 0.1

_Address = tuple[Any, ...]


async def handler(session: webtransport.Session) -> None:
    """Serve a session: datagrams are sent back, what is done with streams depends on the path."""
    serve_stream = take_upload if session.path == "/upload" else echo_stream
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(echo_datagrams(session))
        async for stream in session:
            tasks.create_task(serve_stream(stream))


async def echo_datagrams(session: webtransport.Session) -> None:
    """Send datagrams back, until the session is closed."""
    async for datagram in session.datagrams():
        session.send_datagram(datagram)


async def echo_stream(stream: Stream) -> None:
    """Send back what comes on a stream."""
    # The page may leave at any time.
    with contextlib.suppress(ConnectionError):
        async for piece in stream.chunks():
            await stream.send(piece)
        stream.finish()
        await stream.acked()


async def take_upload(stream: Stream) -> None:
    """Count what comes, and tell the page how much that is by now: a line of JSON each."""
    loop = asyncio.get_running_loop()
    begun = reported = loop.time()
    count = 0

    def report(now: float, *, done: bool) -> None:
        line = {"bytes": count, "seconds": now - begun, "done": done}
        stream.write(json.dumps(line).encode() + b"\n")

    with contextlib.suppress(ConnectionError):
        async for piece in stream.chunks(1 << 20):
            count += len(piece)
            now = loop.time()
            if now - reported >= REPORT_SECONDS:
                reported = now
                report(now, done=False)
        report(loop.time(), done=True)
        stream.finish()
        await stream.acked()


class Relay(asyncio.DatagramProtocol):
    """A network in this process: datagrams take a while, and some are lost."""

    def __init__(self, server: _Address) -> None:
        self.server = server
        self.loop = asyncio.get_running_loop()
        self.clients: dict[_Address, Way] = {}

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        """Take the socket that clients send to."""
        self.transport = transport

    def datagram_received(self, data: bytes, address: _Address) -> None:
        """Pass a client's datagram on; each client has a socket of its own towards the server."""
        way = self.clients.get(address)
        if way is None:
            way = self.clients[address] = Way(self, address)
            way.opening = self.loop.create_task(self.open(way))
        if not is_lost():
            self.loop.call_later(DELAY, way.send, data)

    async def open(self, way: Way) -> None:
        """Open a client's socket."""
        await self.loop.create_datagram_endpoint(lambda: way, remote_addr=self.server)

    def send(self, data: bytes, client: _Address) -> None:
        """Pass on what the server has sent."""
        if not self.transport.is_closing():
            self.transport.sendto(data, client)

    def close(self) -> None:
        """Close all sockets."""
        self.transport.close()
        for way in self.clients.values():
            if way.transport is not None:
                way.transport.close()


class Way(asyncio.DatagramProtocol):
    """One client's socket towards the server."""

    opening: asyncio.Task[None]

    def __init__(self, relay: Relay, client: _Address) -> None:
        self.relay = relay
        self.client = client
        self.transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        """Take the socket; datagrams that were to be sent before are lost."""
        self.transport = transport

    def send(self, data: bytes) -> None:
        """Pass on what the client has sent."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.sendto(data)

    def datagram_received(self, data: bytes, _: _Address) -> None:
        """Have what the server has sent passed on."""
        if not is_lost():
            self.relay.loop.call_later(DELAY, self.relay.send, data, self.client)


def is_lost() -> bool:
    """Whether the network loses a datagram."""
    return random.random() * 100 < LOST_PERCENT


class PageServer:
    """The page and its settings, over HTTP/1.1: browsers trust that of this machine itself."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {}

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        with contextlib.suppress(OSError, EOFError, asyncio.LimitOverrunError, ValueError):
            head = await reader.readuntil(b"\r\n\r\n")
            _, target, _ = head.decode("latin-1").split("\r\n")[0].split(" ")
            status, kind, body = self.found(target.partition("?")[0])
            fields = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n"
            writer.write(fields.encode() + b"cache-control: no-store\r\nconnection: close\r\n\r\n")
            writer.write(body)
            await writer.drain()
        writer.close()

    def found(self, path: str) -> tuple[str, str, bytes]:
        """Return status, type and body."""
        match path:
            case "/":
                return "200 OK", "text/html; charset=utf-8", PAGE.read_bytes()
            case "/settings.json":
                return "200 OK", "application/json", json.dumps(self.settings).encode()
        return "404 Not Found", "text/plain", b"not here\n"


async def main(port: int, quic_port: int) -> None:
    """Serve until the program is interrupted."""
    pages = PageServer()
    page = await asyncio.start_server(pages.answer, HOST, port)
    origin = f"http://{HOST}:{page.sockets[0].getsockname()[1]}"
    made = webtransport.certificate_for_browsers(HOST)
    server = await webtransport.serve(
        handler,
        HOST,
        quic_port,
        paths=["/echo", "/upload"],
        # Other pages in the browser have no sessions here.
        origins=[origin],
        certificate=made.certificate,
        private_key=made.private_key,
    )
    loop = asyncio.get_running_loop()
    place = (HOST, quic_port + 1 if quic_port else 0)
    _, relay = await loop.create_datagram_endpoint(lambda: Relay(server.address), place)
    pages.settings = {
        "host": HOST,
        "certificateHash": list(made.hash),
        "networks": [
            {"name": "Direct", "port": server.address[1]},
            {
                "name": f"+{2000 * DELAY:.0f} ms, {LOST_PERCENT} % loss",
                "port": relay.transport.get_extra_info("sockname")[1],
            },
        ],
    }
    print(f"{origin}/ is ready: open it in a browser of this machine (Ctrl-C ends it)", flush=True)
    try:
        async with page, server:
            await page.serve_forever()
    finally:
        relay.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=8080, help="of TCP, of the page; 0: any")
    parser.add_argument(
        "--quic-port", type=int, default=4433, help="of UDP, the relay has the next; 0: any"
    )
    given = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(given.port, given.quic_port))
