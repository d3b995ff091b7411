"""WebTransport servers of other projects: python sessions.py STACK LOOP PORT CERT KEY

Owns: their settings. Called by: `contestants`. peregrine-server's are ASGI's: see `app`.
"""

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator
from typing import Any

from contract import Counts, answer

WINDOW = 16 * 1024 * 1024
PATH = "/bench"
COUNTS = Counts()


def main() -> None:
    """Serve until killed."""
    stack, loop, port, cert, key = sys.argv[1:]
    serve = {"aiopquic": serve_aiopquic, "pywebtransport": serve_pywebtransport}[stack]
    factory = asyncio.new_event_loop
    if loop != "asyncio":
        factory = importlib.import_module(loop).new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve(int(port), cert, key))


async def serve_aiopquic(port: int, cert: str, key: str) -> None:
    """The native library's thread feeds queues of asyncio."""
    from aiopquic.asyncio import webtransport as wt
    from aiopquic.quic.configuration import (
        QuicConfiguration,
    )

    async def pieces(session: Any, stream_id: int) -> AsyncIterator[bytes]:
        async for event in session.receive_stream_data(stream_id):
            yield bytes(event.data)

    async def respond(session: Any, stream_id: int) -> None:
        async def write(data: bytes) -> None:
            await session.send_stream_data_drained(stream_id, data)

        await answer(pieces(session, stream_id), write, COUNTS)
        await session.send_stream_data_drained(stream_id, b"", True)

    async def handle(session: Any) -> None:
        tasks = set()
        async for event in session.events():
            if type(event) is wt.WebTransportDatagramReceived:
                COUNTS.datagrams += 1
            elif type(event) is wt.WebTransportNewStream:
                task = asyncio.create_task(respond(session, event.stream_id))
                tasks.add(task)
                task.add_done_callback(tasks.discard)

    configuration = QuicConfiguration(
        is_client=False,
        alpn_protocols=["h3"],
        max_data=WINDOW,
        max_stream_data=WINDOW,
        max_datagram_frame_size=65535,
        max_connections=4096,
        max_streams_bidi=512,
    )
    server = await wt.serve_webtransport(
        "127.0.0.1",
        port,
        PATH,
        handler=handle,
        cert_file=cert,
        key_file=key,
        configuration=configuration,
    )
    await asyncio.Event().wait()
    server.close()


async def serve_pywebtransport(port: int, cert: str, key: str) -> None:
    """The native library's controller feeds iterators of asyncio."""
    import pywebtransport as wt

    tasks = set()

    def start(coroutine: Any) -> None:
        task = asyncio.create_task(coroutine)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def respond(stream: Any) -> None:
        await answer(aiter(stream), lambda data: stream.write_all(data=data), COUNTS)
        await stream.write(data=b"", end_stream=True)

    async def count(session: Any) -> None:
        while True:
            await session.read_datagram()
            COUNTS.datagrams += 1

    async def handle(session: Any) -> None:
        await session.accept()
        start(count(session))
        async for stream in session.incoming_bidirectional_streams():
            start(respond(stream))

    async def take(connection: Any) -> None:
        async for session in connection.incoming_sessions():
            start(handle(session))

    config = wt.ServerConfig(
        bind_host="127.0.0.1",
        bind_port=port,
        certfile=cert,
        keyfile=key,
        connection_receive_window=WINDOW,
        stream_receive_window=WINDOW,
        session_receive_window=WINDOW,
        initial_max_data=WINDOW,
    )
    async with wt.WebTransportServer(config=config) as server:
        await server.listen()
        async for connection in server.incoming_connections():
            start(take(connection))


if __name__ == "__main__":
    main()
