"""A value of 100 bytes read from Redis by redis-py, over one connection and over 16 at once.

One operation is one command. The server has another CPU, if there is one.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

from redis.asyncio import Redis
from support import databases
from support.scheduling import measure

CONNECTIONS = 16
IN_SERIES = 200
EACH_AT_ONCE = 50
VALUE = b"v" * 100

clients: list[Any] = []


@contextlib.contextmanager
def connected(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Start the server and connect; close both at the end."""
    with databases.redis() as path:

        async def begin() -> None:
            for _ in range(CONNECTIONS):
                client = Redis(unix_socket_path=str(path), single_connection_client=True)
                clients.append(await client.initialize())
            await clients[0].set("key", VALUE)

        async def end() -> None:
            for client in clients:
                await client.aclose()

        loop.run_until_complete(begin())
        yield
        loop.run_until_complete(end())


async def read(client: Any, count: int) -> None:
    """Read the value some times."""
    for _ in range(count):
        assert await client.get("key") == VALUE


async def reads() -> None:
    """One connection alone, then all at once."""
    await read(clients[0], IN_SERIES)
    await asyncio.gather(*(read(client, EACH_AT_ONCE) for client in clients))


def one_round(loop: asyncio.AbstractEventLoop) -> int:
    """Run all of them."""
    loop.run_until_complete(reads())
    return IN_SERIES + CONNECTIONS * EACH_AT_ONCE


if __name__ == "__main__":
    measure(one_round, connected)
