"""Our servers without ASGI: python ours.py h3|quic|webtransport LOOP PORT CERT KEY

Owns: their settings. Called by: `contestants`.
"""

import asyncio
import gc
import importlib
import sys
from typing import Any

from contract import GREETING, Counts, answer, chunks

from ringloop import h3, quic

WINDOW = 16 * 1024 * 1024
READ_BYTES = 1 << 18
SETTINGS = {"max_stream_data": WINDOW, "max_data": WINDOW, "max_streams_bidi": 512}
PLAIN = [(b"content-type", b"text/plain")]


def main() -> None:
    """Serve until killed."""
    kind, loop, port, cert, key = sys.argv[1:]
    serve = {"h3": serve_h3, "quic": serve_quic, "webtransport": serve_webtransport}[kind]
    factory = asyncio.new_event_loop
    if loop != "asyncio":
        factory = importlib.import_module(loop).new_event_loop
    gc.freeze()
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(forever(serve, int(port), {"certificate": cert, "private_key": key, **SETTINGS}))


async def forever(serve: Any, port: int, settings: dict[str, Any]) -> None:
    """Start serving."""
    await serve(port, settings)
    await asyncio.Event().wait()


async def serve_h3(port: int, settings: dict[str, Any]) -> None:
    """HTTP/3 by the handler API."""

    async def handle(request: h3.Request) -> None:
        if request.method == "POST":
            received = 0
            while data := await request.read(READ_BYTES):
                received += len(data)
            await request.respond(200, PLAIN, b"%d" % received)
        elif request.path == "/":
            await request.respond(200, PLAIN, GREETING)
        else:
            request.start(200, PLAIN)
            for chunk in chunks(int((request.path or "/0")[1:])):
                await request.send(chunk)
            request.send(b"", end=True)

    await h3.serve(handle, "127.0.0.1", port, **settings)


async def serve_quic(port: int, settings: dict[str, Any]) -> None:
    """QUIC streams alone."""
    counts = Counts()

    async def handle(stream: Any) -> None:
        await exchange(stream, counts)

    await quic.serve(
        None, "127.0.0.1", port, stream_handler=handle, alpn=["bench-streams"], **settings
    )


async def serve_webtransport(port: int, settings: dict[str, Any]) -> None:
    """WebTransport by the handler API."""
    webtransport = importlib.import_module("ringloop.webtransport")
    counts = Counts()

    async def respond(stream: Any) -> None:
        await exchange(stream, counts)

    async def datagrams(session: Any) -> None:
        while True:
            await session.receive_datagram()
            counts.datagrams += 1

    async def handle(session: Any) -> None:
        async with asyncio.TaskGroup() as tasks:
            counting = tasks.create_task(datagrams(session))
            async for stream in session:
                tasks.create_task(respond(stream))
            counting.cancel()

    await webtransport.serve(handle, "127.0.0.1", port, **settings)


async def exchange(stream: Any, counts: Counts) -> None:
    """Answer one stream, and read it to its end: it would be stopped before the client ends it."""
    request = pieces(stream)
    await answer(request, stream.send, counts)
    stream.finish()
    async for _ in request:
        pass


async def pieces(stream: Any) -> Any:
    """What comes on a stream."""
    while data := await stream.read(READ_BYTES):
        yield data


if __name__ == "__main__":
    main()
