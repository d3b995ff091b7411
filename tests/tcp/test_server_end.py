"""The end of a server of `loop.create_server` and of its connections."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import Echo, Factory, Recorder, ask, closed, is_refused, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

HAS_CLOSE_CLIENTS = hasattr(asyncio.base_events.Server, "close_clients")
# 3.11 and 3.12.0 returned immediately while connections were still open.
WAIT_CLOSED_WAITS = sys.version_info >= (3, 12, 1)

needs_close_clients = pytest.mark.skipif(
    not HAS_CLOSE_CLIENTS, reason="this CPython's Server has no close_clients()"
)


def test_close_refuses_at_once(run: Run) -> None:
    async def main() -> None:
        factory = Factory()
        async with serving(factory) as (server, address):
            await ask(address)
            server.close()
            assert is_refused(address)
            assert not server.is_serving()
            assert server.sockets == ()
            server.close()

    run(main())


def test_the_port_is_free_after_close(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Factory(), "127.0.0.1", 0, reuse_address=False)
        address = server.sockets[0].getsockname()
        server.close()
        again = await loop.create_server(Factory(), *address, reuse_address=False)
        async with again:
            assert await ask(address) == b"ping"

    run(main())


def test_close_before_anything_runs(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for start in (True, False):
            server = await loop.create_server(Factory(), "127.0.0.1", 0, start_serving=start)
            server.close()
            await support.within(server.wait_closed())

    run(main())


def test_connections_outlive_close(run: Run) -> None:
    async def main() -> None:
        factory = Factory()
        async with serving(factory) as (server, address):
            loop = asyncio.get_running_loop()
            transport, client = await loop.create_connection(Recorder, *address)
            await factory.connections(1)
            server.close()
            transport.write(b"still here")
            await support.wait_until(lambda: client.data == b"still here", "the answer")
            transport.close()
            await factory.made[0].until_lost()
            await closed(transport)

    run(main())


def test_wait_closed_waits_as_this_version_does(run: Run) -> None:
    async def main() -> None:
        factory = Factory()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(factory, "127.0.0.1", 0)
        transport, _ = await loop.create_connection(Recorder, *server.sockets[0].getsockname())
        await factory.connections(1)
        server.close()
        waiting = asyncio.ensure_future(server.wait_closed())
        for _ in range(10):
            await asyncio.sleep(0)
        assert waiting.done() != WAIT_CLOSED_WAITS
        transport.close()
        await support.within(waiting)
        await factory.made[0].until_lost()
        await closed(transport)

    run(main())


def test_wait_closed_is_woken_by_close(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Factory(), "127.0.0.1", 0)
        waiting = asyncio.ensure_future(server.wait_closed())
        await asyncio.sleep(0)
        server.close()
        await support.within(waiting)

    run(main())


@needs_close_clients
@pytest.mark.parametrize("end", ["close_clients", "abort_clients"])
def test_close_clients(run: Run, end: str) -> None:
    async def main() -> None:
        factory = Factory()
        async with serving(factory) as (server, address):
            clients = [socket.create_connection(address) for _ in range(5)]
            await factory.connections(5)
            server.close()
            getattr(server, end)()
            await support.within(server.wait_closed())
            for protocol in factory.made:
                assert protocol.is_lost
                assert protocol.reason is None
            for client in clients:
                client.close()

    run(main())


@needs_close_clients
def test_abandoned_clients_are_not_kept_by_the_server(run: Run) -> None:
    async def main() -> None:
        factory = Factory()
        async with serving(factory) as (server, address):
            await ask(address)
            await factory.made[0].until_lost()
            await closed(factory.made[0].transport)
            assert len(server._clients) == 0  # type: ignore[attr-defined]

    run(main())


def test_async_with_closes(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with await loop.create_server(Factory(), "127.0.0.1", 0) as server:
            address = server.sockets[0].getsockname()
            assert await ask(address) == b"ping"
        assert not server.is_serving()
        assert is_refused(address)

    run(main())


def test_cancelling_serve_forever_closes(run: Run) -> None:
    async def main() -> None:
        async with serving(Factory(), start_serving=False) as (server, address):
            task = asyncio.ensure_future(server.serve_forever())
            await support.wait_until(server.is_serving, "the server")
            with pytest.raises(RuntimeError, match="already being awaited"):
                await server.serve_forever()
            assert await ask(address) == b"ping"
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await support.within(task)
            assert not server.is_serving()
            assert is_refused(address)
            with pytest.raises(RuntimeError, match="closed"):
                await server.serve_forever()

    run(main())


def test_close_ends_serve_forever(run: Run) -> None:
    async def main() -> None:
        async with serving(Factory()) as (server, _):
            task = asyncio.ensure_future(server.serve_forever())
            await asyncio.sleep(0)
            server.close()
            with pytest.raises(asyncio.CancelledError):
                await support.within(task)

    run(main())


@pytest.mark.parametrize("given", [False, True])
def test_server_cancelled_while_it_starts_does_not_listen(
    loop_name: str, run: Run, given: bool
) -> None:
    """The caller has no server to close; a socket that was given stays open."""
    if loop_name == support.ORACLE:
        pytest.skip("asyncio's goes on to serve")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            options: dict[str, Any] = {"sock": sock} if given else {"host": "127.0.0.1", "port": 0}
            before = set(loop._listeners)  # type: ignore[attr-defined]
            starting = asyncio.ensure_future(loop.create_server(asyncio.Protocol, **options))
            made: set[Any] = set()
            # The turn in which it listens is the last before it returns.
            while not made:
                await asyncio.sleep(0)
                made = set(loop._listeners) - before  # type: ignore[attr-defined]
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
            assert set(loop._listeners) == before  # type: ignore[attr-defined]
            assert [listening.fileno() == -1 for listening in made] == [not given]
            if given:
                async with await loop.create_server(asyncio.Protocol, sock=sock):
                    socket.create_connection(sock.getsockname()).close()

    run(main())


def test_close_from_one_of_its_protocols(run: Run) -> None:
    async def main() -> None:
        servers: list[asyncio.Server] = []

        class Closes(Echo):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                super().connection_made(transport)
                servers[0].close()

        factory = Factory(Closes)
        async with serving(factory) as (server, address):
            servers.append(server)
            clients = []
            for _ in range(3):
                client = socket.socket()
                client.setblocking(False)
                client.connect_ex(address)
                clients.append(client)
            await factory.connections(1)
            for client in clients:
                client.close()
            for protocol in factory.made:
                await protocol.until_lost()

    run(main())


def test_loop_closed_with_a_server_open(loop_factory: support.LoopFactory) -> None:
    loop = loop_factory()
    server = loop.run_until_complete(loop.create_server(Factory(), "127.0.0.1", 0))
    sock = server._sockets[0]  # type: ignore[attr-defined]
    loop.close()
    sock.close()
