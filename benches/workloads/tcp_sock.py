"""TCP echo by `loop.sock_recv` and `loop.sock_sendall`, a task a connection.

One operation is one message echoed.
"""

import asyncio
import socket

from support.serving import measure

RECEIVE_LEN = 256 * 1024


async def echo(connection: socket.socket) -> None:
    """Write back what one connection sends."""
    loop = asyncio.get_running_loop()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection:
        while data := await loop.sock_recv(connection, RECEIVE_LEN):
            await loop.sock_sendall(connection, data)


async def accept(listener: socket.socket) -> None:
    """Give each connection a task."""
    loop = asyncio.get_running_loop()
    tasks = set()
    while True:
        connection, _ = await loop.sock_accept(listener)
        task = asyncio.create_task(echo(connection))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


async def serve() -> int:
    """Listen on a free port."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    listener.setblocking(False)
    serve.accepting = asyncio.create_task(accept(listener))  # type: ignore[attr-defined]
    return int(listener.getsockname()[1])


if __name__ == "__main__":
    measure(serve)
