"""Our own API: connections and streams with `await`.

Owns: the settings and the server's handlers. Called by: `peer`.
"""

import contextlib
from collections.abc import Awaitable
from typing import Any

from workload import ALPN, STREAMS_MAX, WINDOW, Counts

from ringloop import quic

READ_BYTES = 1 << 18
SETTINGS = {
    "alpn": [ALPN],
    "max_stream_data": WINDOW,
    "max_data": WINDOW,
    "max_streams_bidi": STREAMS_MAX,
}


class Stack:
    """ringloop.quic."""

    def __init__(self, _package: str) -> None:
        self.client: Any = None
        self.endpoint: Any = None

    async def serve(self, port: int, cert: str, key: str, counts: Counts) -> None:
        """Serve forever."""

        async def answer(stream: Any) -> None:
            match await stream.readexactly(1):
                case b"s":
                    while data := await stream.read(READ_BYTES):
                        counts.bytes += len(data)
                case b"e":
                    while data := await stream.read(READ_BYTES):
                        await stream.send(data)
                case _:
                    stream.write(counts.snapshot())
            stream.finish()

        async def accepted(connection: Any) -> None:
            # A client that closes immediately was connected nevertheless.
            with contextlib.suppress(quic.ConnectionClosedByPeer):
                await connection.wait_connected()
            counts.handshakes += 1
            try:
                while True:
                    counts.datagrams += len(await connection.receive_datagrams())
            except quic.QuicError:
                return

        await quic.serve(
            accepted,
            "127.0.0.1",
            port,
            stream_handler=answer,
            certificate=cert,
            private_key=key,
            **SETTINGS,
        )

    async def connect(self, port: int, ca: str) -> "Connection":
        """Open a connection, on a socket of its own as the other stacks do."""
        if self.client is None:
            self.client = quic.ClientConfig(ca_file=ca, sessions=False, **SETTINGS)
        made = await quic.open_connection(
            "127.0.0.1", port, configuration=self.client, server_name="localhost"
        )
        return Connection(made)


class Connection:
    """A client's connection with the interface of the workloads."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def open(self) -> "Stream":
        return Stream(await self.connection.open_stream())

    async def send_datagrams(self, data: bytes, count: int) -> int:
        taken: int = await self.connection.send_datagrams([data] * count)
        return taken

    def end(self) -> Awaitable[None]:
        self.connection.close()
        return self.connection.__aexit__(None, None, None)


class Stream:
    """A stream with the interface of the workloads."""

    def __init__(self, stream: Any) -> None:
        self.write = stream.send
        self.read = stream.readexactly
        self.read_all = stream.read_to_end
        self.stream = stream

    async def finish(self, data: bytes) -> None:
        self.stream.write(data)
        self.stream.finish()
