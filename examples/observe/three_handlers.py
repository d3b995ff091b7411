"""A service with three kinds of handlers, of which one holds the loop up, and its clients.

    python -m ringloop profile -o flame.svg examples/observe/three_handlers.py

`/ping` answers at once, `/search` waits for a database (here: a sleep), `/report` computes. The flame
graph names `report` at the top of its list, below `serve`, which calls all three. Time spent asleep in
`search` is no time of the loop: `--mode waiting` shows it.
"""

from __future__ import annotations

import asyncio
import math
import statistics
import sys

REQUESTS_EACH = 150
CLIENTS = 4


async def ping() -> str:
    """Answer at once."""
    return "pong"


async def search() -> str:
    """Wait for another service."""
    await asyncio.sleep(0.005)
    return "found"


async def report() -> str:
    """Compute in the loop's thread, which nothing else can use meanwhile."""
    return f"deviation {deviation(30_000):.1f}"


def deviation(count: int) -> float:
    """Return the standard deviation of some numbers, slowly."""
    numbers = [number * number % 1009 for number in range(count)]
    mean = sum(numbers) / count
    return math.sqrt(statistics.fmean((number - mean) ** 2 for number in numbers))


HANDLERS = {"/ping": ping, "/search": search, "/report": report}


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of a connection, a line each."""
    while line := await reader.readline():
        answer = await HANDLERS[line.decode().strip()]()
        writer.write(f"{answer}\n".encode())
        await writer.drain()
    writer.close()
    await writer.wait_closed()


async def ask(port: int, requests: int) -> None:
    """Ask for every path in turn."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(requests):
        for path in HANDLERS:
            writer.write(f"{path}\n".encode())
            await reader.readline()
    writer.close()
    await writer.wait_closed()


async def main(requests: int) -> None:
    """Serve until all clients have their answers."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, asyncio.TaskGroup() as clients:
        for number in range(CLIENTS):
            clients.create_task(ask(port, requests // CLIENTS + 1), name=f"client {number}")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else REQUESTS_EACH))
