"""A row selected from PostgreSQL by asyncpg, over one connection and over 8 at once.

One operation is one query of a prepared statement. The server has another CPU, if there is one.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import asyncpg
from support import databases
from support.scheduling import measure

CONNECTIONS = 8
IN_SERIES = 100
EACH_AT_ONCE = 25
QUERY = "SELECT $1::int AS number, 'a text' AS text"

connections: list[Any] = []


@contextlib.contextmanager
def connected(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Start the server and connect; close both at the end."""
    with databases.postgres() as folder:

        async def begin() -> None:
            for _ in range(CONNECTIONS):
                made = await asyncpg.connect(host=str(folder), user="bench", database="postgres")
                connections.append(made)

        async def end() -> None:
            for connection in connections:
                await connection.close()

        loop.run_until_complete(begin())
        yield
        loop.run_until_complete(end())


async def select(connection: Any, count: int) -> None:
    """Select some rows."""
    for number in range(count):
        row = await connection.fetchrow(QUERY, number)
        assert tuple(row) == (number, "a text"), row


async def selects() -> None:
    """One connection alone, then all at once."""
    await select(connections[0], IN_SERIES)
    await asyncio.gather(*(select(connection, EACH_AT_ONCE) for connection in connections))


def one_round(loop: asyncio.AbstractEventLoop) -> int:
    """Run all of them."""
    loop.run_until_complete(selects())
    return IN_SERIES + CONNECTIONS * EACH_AT_ONCE


if __name__ == "__main__":
    measure(one_round, connected)
