"""The services under load: streams of every kind, datagrams, HTTP/1, HTTP/3, WebSocket, WebTransport.

A request names the seed of its own body and the length of the response's, which belongs to the next
seed; both ends can compare each byte.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import socket
from typing import TYPE_CHECKING, Any, TypeAlias

import uvicorn

from ringloop import serve
from tests.soak.soak import HEADER, LENGTH_MAX, material

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.soak.soak import Soak

Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter
STREAMS = (
    "tcp",
    "tcp-buffered",
    "tcp-streams",
    "tls",
    "tls-streams",
    "starttls",
    "unix",
    "unix-streams",
)
START_TRIES = 10
# On a machine that lets a run wait for half a minute a connection's end would meet its next request,
# of which the client cannot know whether it was processed (docs/http3.md).
IDLE_SECONDS = 600.0


class Requests:
    """Cuts a stream of bytes into requests, and compares their bodies."""

    def __init__(self, soak: Soak, where: str) -> None:
        self._soak = soak
        self._where = where
        self._waiting = bytearray()

    def feed(self, data: bytes | memoryview) -> list[bytes]:
        """Return the responses to the requests that are complete now."""
        self._waiting += data
        responses = []
        while len(self._waiting) >= HEADER.size:
            seed, length, wanted = HEADER.unpack_from(self._waiting)
            end = HEADER.size + length
            if length > LENGTH_MAX or wanted > LENGTH_MAX:
                raise ValueError(f"{self._where}: a request of {length} bytes for {wanted}")
            if len(self._waiting) < end:
                break
            self._soak.same(self._waiting[HEADER.size : end], material(seed, length), self._where)
            del self._waiting[:end]
            responses.append(material(seed + 1, wanted))
        return responses


class _Answers:
    """A server's end of a connection; it reads no more while the peer takes nothing."""

    def __init__(self, soak: Soak, where: str) -> None:
        self.soak = soak
        self.requests = Requests(soak, where)
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def take(self, data: bytes | memoryview) -> None:
        try:
            responses = self.requests.feed(data)
        except Exception as error:
            self.soak.fault(f"server: {error}")
            self.transport.abort()
            return
        for response in responses:
            if self.soak.rng.random() < 0.5:
                self.transport.write(response)
            else:
                half = len(response) // 2
                self.transport.writelines([response[:half], response[half:]])

    def pause_writing(self) -> None:
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.transport.resume_reading()

    def eof_received(self) -> bool:
        # The transport sends what is left, and closes.
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None


class Answers(_Answers, asyncio.Protocol):
    """Receives by `data_received`."""

    def data_received(self, data: bytes) -> None:
        self.take(data)


class BufferedAnswers(_Answers, asyncio.BufferedProtocol):
    """Receives into its own buffer."""

    def __init__(self, soak: Soak, where: str) -> None:
        super().__init__(soak, where)
        self._buffer = bytearray(soak.rng.choice((500, 20_000, 100_000)))

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.take(memoryview(self._buffer)[:nbytes])


class DatagramAnswers(asyncio.DatagramProtocol):
    """Answers requests of one datagram; other datagrams are noise."""

    def __init__(self, soak: Soak) -> None:
        self.soak = soak

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if len(data) < HEADER.size:
            return
        seed, length, wanted = HEADER.unpack_from(data)
        if len(data) == HEADER.size + length and wanted < 60_000:
            self.soak.same(data[HEADER.size :], material(seed, length), "udp server")
            self.transport.sendto(HEADER.pack(seed, wanted, 0) + material(seed + 1, wanted), addr)


async def answer(soak: Soak, reader: Reader, writer: Writer) -> None:
    """Serve a connection by streams."""
    try:
        while True:
            head = await reader.readexactly(HEADER.size)
            seed, length, wanted = HEADER.unpack(head)
            body = await reader.readexactly(length)
            soak.same(body, material(seed, length), "streams server")
            writer.write(material(seed + 1, wanted))
            await writer.drain()
    except (EOFError, OSError):
        # The client has closed, or a peer cut the connection.
        pass
    except Exception as error:
        soak.fault(f"streams server: {type(error).__name__}: {error}")
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def answer_upgraded(soak: Soak, reader: Reader, writer: Writer) -> None:
    """Serve a connection that begins in plain text, as that of a mail server."""
    try:
        if await reader.readline() != b"STARTTLS\n":
            writer.close()
            return
        writer.write(b"go on\n")
        await writer.drain()
        await writer.start_tls(soak.server_context)
    except OSError:
        writer.close()
        return
    await answer(soak, reader, writer)


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the body of the request; echo WebSocket messages and WebTransport streams."""
    match scope["type"]:
        case "lifespan":
            for what in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{what}.complete"})
        case "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            more = True
            while more:
                message = await receive()
                if message["type"] != "http.request":
                    return
                more = message["more_body"]
                body = {"type": "http.response.body", "body": message["body"], "more_body": more}
                await send(body)
        case "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            while (message := await receive())["type"] == "websocket.receive":
                await send({"type": "websocket.send", "bytes": message["bytes"]})
        case "webtransport":
            await answer_session(receive, send)


async def answer_session(receive: Any, send: Any) -> None:
    """Echo the streams and datagrams of a WebTransport session."""
    await receive()
    await send({"type": "webtransport.accept"})
    while (message := await receive())["type"] != "webtransport.disconnect":
        if message["type"] == "webtransport.stream.receive":
            sending = {"type": "webtransport.stream.send", "stream": message["stream"]}
            await send(sending | {"data": message["data"], "end_stream": message["end_stream"]})
        elif message["type"] == "webtransport.datagram.receive":
            await send({"type": "webtransport.datagram.send", "data": message["data"]})


class Services:
    """Everything that listens."""

    def __init__(self, soak: Soak) -> None:
        self.soak = soak
        self.listeners: dict[str, asyncio.Server] = {}
        self._datagrams: Any = None
        self._web: serve.Server | None = None
        self._plain: uvicorn.Server | None = None
        self._ticking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        for name in STREAMS:
            await self._begin(functools.partial(self.listen, name))
        for start in (self._start_datagrams, self._start_web, self._start_plain):
            await self._begin(start)

    async def _begin(self, start: Callable[[], Awaitable[None]]) -> None:
        """Start one of the services; where calls fail on purpose, try again."""
        for left in reversed(range(START_TRIES)):
            try:
                await start()
            except OSError:
                if not (self.soak.tolerant and left):
                    raise
            else:
                return

    async def _start_datagrams(self) -> None:
        soak = self.soak
        self._datagrams, _ = await soak.loop.create_datagram_endpoint(
            lambda: DatagramAnswers(soak), ("127.0.0.1", 0)
        )
        soak.addresses["udp"] = self._datagrams.get_extra_info("sockname")

    async def listen(self, name: str) -> None:
        """Open a listener, at the address that it had before."""
        soak, loop = self.soak, self.soak.loop
        kind, _, way = name.partition("-")
        context = soak.server_context if kind == "tls" else None
        path = str(soak.folder / f"{name}-{os.getpid()}")
        host, port = soak.addresses.get(name, ("127.0.0.1", 0)) if kind != "unix" else ("", 0)
        handler = answer_upgraded if kind == "starttls" else answer
        factory = BufferedAnswers if way == "buffered" else Answers
        if way == "streams" or kind == "starttls":
            if kind == "unix":
                server = await asyncio.start_unix_server(lambda r, w: handler(soak, r, w), path)
            else:
                server = await asyncio.start_server(
                    lambda r, w: handler(soak, r, w), host, port, ssl=context
                )
        elif kind == "unix":
            server = await loop.create_unix_server(lambda: factory(soak, name), path)
        else:
            server = await loop.create_server(lambda: factory(soak, name), host, port, ssl=context)
        self.listeners[name] = server
        soak.addresses[name] = path if kind == "unix" else server.sockets[0].getsockname()

    async def _start_web(self) -> None:
        soak = self.soak
        folder = soak.folder
        web = serve.Server(
            application,
            serve.Settings(
                certificate=folder / "localhost.pem",
                private_key=folder / "localhost.key",
                bind=("127.0.0.1", 0),
                quic_bind=("127.0.0.1", 0),
                access_log=False,
                alt_svc_seconds=0,
                quic={"idle_timeout": IDLE_SECONDS},
            ),
        )
        await web.start()
        assert web.tcp_address is not None
        soak.addresses["https"] = web.tcp_address
        soak.addresses["h3"] = web.quic_address
        self._web = web

    async def _start_plain(self) -> None:
        """Start uvicorn without TLS, as a library."""
        soak = self.soak
        sock = socket.create_server(("127.0.0.1", 0))
        sock.setblocking(False)
        config = uvicorn.Config(
            application, http="httptools", lifespan="off", log_config=None, access_log=False
        )
        config.load()
        plain = uvicorn.Server(config)
        plain.lifespan = config.lifespan_class(config)
        try:
            await plain.startup(sockets=[sock])
        except OSError:
            sock.close()
            raise
        soak.addresses["http"] = sock.getsockname()
        self._ticking = soak.loop.create_task(plain.main_loop())
        self._plain, self._sock = plain, sock

    async def stop(self) -> None:
        for server in self.listeners.values():
            server.close()
        for server in self.listeners.values():
            await server.wait_closed()
        self._datagrams.close()
        if self._plain is not None and self._ticking is not None:
            self._plain.should_exit = True
            await self._ticking
            await self._plain.shutdown(sockets=[self._sock])
        if self._web is not None:
            self._web.shut_down()
            await self._web.wait_closed()
