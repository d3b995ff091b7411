"""Messages of 256 bytes echoed by the package `websockets`, over one connection and over 16 at once.

One operation is one message, there and back. Client and server share the loop.
"""

import asyncio
import contextlib
from collections.abc import Iterator

from support.scheduling import measure
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_websockets

CONNECTIONS = 16
IN_SERIES = 100
EACH_AT_ONCE = 25
MESSAGE = b"m" * 256

connections: list[ClientConnection] = []


async def echo(connection: ServerConnection) -> None:
    """Send back what comes."""
    async for message in connection:
        await connection.send(message)


@contextlib.contextmanager
def connected(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Serve and connect; close both at the end."""

    async def begin() -> None:
        nonlocal server
        server = await serve_websockets(echo, "127.0.0.1", 0, compression=None)
        address = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        made = [await connect(address, compression=None) for _ in range(CONNECTIONS)]
        connections.extend(made)

    async def end() -> None:
        await asyncio.gather(*(connection.close() for connection in connections))
        server.close()
        await server.wait_closed()

    server = None
    loop.run_until_complete(begin())
    yield
    loop.run_until_complete(end())


async def exchange(connection: ClientConnection, count: int) -> None:
    """Send messages and wait for each."""
    for _ in range(count):
        await connection.send(MESSAGE)
        received = await connection.recv()
        assert received == MESSAGE


async def exchanges() -> None:
    """One connection alone, then all at once."""
    await exchange(connections[0], IN_SERIES)
    await asyncio.gather(*(exchange(connection, EACH_AT_ONCE) for connection in connections))


def one_round(loop: asyncio.AbstractEventLoop) -> int:
    """Run all of them."""
    loop.run_until_complete(exchanges())
    return IN_SERIES + CONNECTIONS * EACH_AT_ONCE


if __name__ == "__main__":
    measure(one_round, connected)
