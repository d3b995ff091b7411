"""A service that can be looked at: a page with plots, text for Prometheus, `top`, and a watchdog.

    python examples/observe/watched_service.py

prints the address of the page. `python -m ringloop top` shows the same in a terminal. Its clients are in
the same process; every hundredth request holds the loop up, and is named as a slow callback.
"""

from __future__ import annotations

import asyncio
import sys
import time

import ringloop

CLIENTS = 20
SLOW_SECONDS = 0.15


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of a connection, a line each."""
    while line := await reader.readline():
        if line.strip().endswith(b"00"):
            recompute()
        writer.write(line.upper())
        await writer.drain()
    writer.close()
    await writer.wait_closed()


def recompute() -> None:
    """Hold the loop up, as a library might that was not made for one."""
    time.sleep(SLOW_SECONDS)


async def ask(port: int, requests: int) -> None:
    """Send requests, some hundred a second."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number in range(1, requests + 1):
        writer.write(f"request {number:06}\n".encode())
        await reader.readline()
        await asyncio.sleep(0.05)
    writer.close()
    await writer.wait_closed()


async def main(requests: int) -> None:
    """Serve the clients until they have their answers; say what the loop has counted."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ringloop.Loop)
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with (
        ringloop.metrics.serve(),
        ringloop.metrics.serve_http() as page,
        ringloop.watchdog(SLOW_SECONDS / 2),
    ):
        print(f"plots: {page.url}", flush=True)
        async with server, asyncio.TaskGroup() as clients:
            for _ in range(CLIENTS):
                clients.create_task(ask(port, requests))
    found = loop.metrics()
    print(f"busy {found.utilisation:.1%}, lag at most {found.lag.max:.3f} s")
    print(f"{found.received_bytes} bytes in, {found.accepted} connections")
    for slow in found.slow_callbacks:
        print(f"slow: {slow.what}, {slow.seconds:.3f} s")


if __name__ == "__main__":
    ringloop.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000))
