"""Ready chain next to 250 idle TCP connections that the loop serves.

One operation is one link. A loop that polls every descriptor in each iteration pays for the idle ones
here.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

from ready_chain import one_round
from support.scheduling import measure

CONNECTIONS = 250


@contextlib.contextmanager
def idle_connections(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Hold connections open that the loop has accepted and reads from."""
    arrived = asyncio.Semaphore(0)

    class Idle(asyncio.Protocol):
        def connection_made(self, _: asyncio.BaseTransport) -> None:
            arrived.release()

    async def serve() -> tuple[asyncio.AbstractServer, list[socket.socket]]:
        server = await loop.create_server(Idle, "127.0.0.1", 0, backlog=CONNECTIONS)
        address = server.sockets[0].getsockname()
        clients = [socket.create_connection(address) for _ in range(CONNECTIONS)]
        for _ in clients:
            await arrived.acquire()
        return server, clients

    async def end(server: asyncio.AbstractServer) -> None:
        server.close()
        # The transports see EOF in the next iterations.
        await asyncio.sleep(0.05)

    server, clients = loop.run_until_complete(serve())
    try:
        yield
    finally:
        for client in clients:
            client.close()
        loop.run_until_complete(end(server))


if __name__ == "__main__":
    measure(one_round, idle_connections)
