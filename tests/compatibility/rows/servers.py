"""Servers."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Any

from tests.compatibility.registry import Group
from tests.compatibility.rows.connections import ask, echo, end, open_server

if TYPE_CHECKING:
    from tests.compatibility.registry import Probe

group = Group("Servers")

server_row = group.row("create_server: reuse_port, backlog, start_serving, several hosts")


@server_row
def options(probe: Probe) -> None:
    async def main() -> None:
        server = await asyncio.start_server(
            echo, ["127.0.0.1", "127.0.0.2"], 0, backlog=7, reuse_port=True, start_serving=False
        )
        async with open_server(server):
            assert not server.is_serving()
            assert len(server.sockets) == 2
            await server.start_serving()
            assert server.is_serving()
            for sock in server.sockets:
                assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT)
                await end(await ask(*sock.getsockname()))

    probe.run(main)


keep_alive = group.row("create_server: keep_alive", since=(3, 13))


@keep_alive
def sets_the_option(probe: Probe) -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0, keep_alive=True)
        async with open_server(server):
            assert server.sockets[0].getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)

    probe.run(main)


cleanup = group.row("create_unix_server: cleanup_socket", since=(3, 13))


@cleanup
def path_is_removed_or_kept(probe: Probe) -> None:
    async def main() -> None:
        for kept in (False, True):
            path = str(probe.folder / f"socket-{kept}")
            server = await asyncio.start_unix_server(echo, path, cleanup_socket=not kept)
            server.close()
            await server.wait_closed()
            assert os.path.exists(path) is kept

    probe.run(main)


clients = group.row("Server.close_clients, abort_clients", since=(3, 13))


@clients
def end_the_connections(probe: Probe) -> None:
    async def main() -> None:
        for name in ("close_clients", "abort_clients"):
            server = await asyncio.start_server(echo, "127.0.0.1", 0)
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"ping")
            await reader.readexactly(4)
            server.close()
            getattr(server, name)()
            try:
                assert await reader.read() == b""
            except ConnectionResetError:
                assert name == "abort_clients"
            await server.wait_closed()
            writer.close()

    probe.run(main)


kind = group.row("Server is an asyncio.AbstractServer, with async with")


@kind
def is_an_instance(probe: Probe) -> None:
    async def main() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        assert isinstance(server, asyncio.AbstractServer)
        async with server as entered:
            assert entered is server
            assert server.get_loop() is asyncio.get_running_loop()
        assert not server.is_serving()

    probe.run(main)


forever = group.row("Server.close ends serve_forever")


@forever
def cancels_it(probe: Probe) -> None:
    async def main() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        serving = asyncio.ensure_future(server.serve_forever())
        await asyncio.sleep(0.01)
        server.close()
        await asyncio.wait([serving])
        assert serving.cancelled()

    probe.run(main)


waiting = group.row("Server.wait_closed waits for the connections", since=(3, 12))


@waiting
def until_the_last_one(probe: Probe) -> None:
    async def main() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        writer = await ask(*server.sockets[0].getsockname())
        server.close()
        closed = asyncio.ensure_future(server.wait_closed())
        await asyncio.sleep(0.02)
        assert not closed.done()
        await end(writer)
        await closed

    probe.run(main)


full = group.row("accepting continues after running out of descriptors")


@full
def goes_on(probe: Probe) -> None:
    # In a process of its own: the limit is per process. It is set before the loop is created,
    # because a ring uses the limit in force when the accept was submitted.
    said = probe.script(
        """
import resource, socket, os
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
async def main():
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: None)
    made = []
    class Note(asyncio.Protocol):
        def connection_made(self, transport):
            made.append(transport)
    server = await loop.create_server(Note, "127.0.0.1", 0)
    client = socket.create_connection(server.sockets[0].getsockname())
    while not made:
        await asyncio.sleep(0.001)
    second = socket.socket()
    second.setblocking(False)
    fillers = []
    try:
        while True:
            fillers.append(os.dup(0))
    except OSError:
        pass
    second.connect_ex(server.sockets[0].getsockname())
    await asyncio.sleep(0.05)
    assert len(made) == 1
    for filler in fillers:
        os.close(filler)
    for _ in range(3000):
        if len(made) == 2:
            print("accepted")
            break
        await asyncio.sleep(0.001)
    for transport in made:
        transport.abort()
    server.close()
    client.close(); second.close()
    await asyncio.sleep(0.01)
loop = new_loop()
loop.run_until_complete(main())
"""
    )
    assert said == "accepted", said
