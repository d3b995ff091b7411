"""`loop.create_server`: serving, addresses and arguments."""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.tcp import Factory, ask, is_refused, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

HAS_CLOSE_CLIENTS = hasattr(asyncio.base_events.Server, "close_clients")
# 3.11 and 3.12.0 returned immediately while connections were still open.
WAIT_CLOSED_WAITS = sys.version_info >= (3, 12, 1)

needs_close_clients = pytest.mark.skipif(
    not HAS_CLOSE_CLIENTS, reason="this CPython's Server has no close_clients()"
)


def test_echo(run: Run) -> None:
    async def main() -> None:
        factory = Factory()
        async with serving(factory) as (server, address):
            assert isinstance(server, asyncio.AbstractServer)
            assert server.is_serving()
            assert server.get_loop() is asyncio.get_running_loop()
            assert await ask(address) == b"ping"
            (protocol,) = factory.made
            await protocol.until_lost()
            assert protocol.transport._server is None

    run(main())


def test_many_clients_at_once(run: Run) -> None:
    async def main() -> None:
        factory = Factory()
        async with serving(factory) as (_, address):
            questions = [b"%04d" % number for number in range(200)]
            answers = await asyncio.gather(*(ask(address, question) for question in questions))
            assert answers == questions
            for protocol in factory.made:
                await protocol.until_lost()
            assert len(factory.made) == 200

    run(main())


def test_accepted_transport_knows_its_names_and_server(run: Run) -> None:
    async def main() -> None:
        factory = Factory()
        async with serving(factory) as (server, address):
            with socket.create_connection(address) as client:
                (protocol,) = await factory.connections(1)
                transport = protocol.transport
                assert transport.get_extra_info("peername") == client.getsockname()
                assert transport.get_extra_info("sockname") == address
                sock = transport.get_extra_info("socket")
                assert (sock.family, sock.type) == (socket.AF_INET, socket.SOCK_STREAM)
                assert sock.gettimeout() == 0
                assert transport._server is server
            await protocol.until_lost()

    run(main())


def test_accepted_descriptors_are_not_inherited(run: Run) -> None:
    async def main() -> None:
        factory = Factory()
        async with serving(factory) as (_, address):
            with socket.create_connection(address):
                (protocol,) = await factory.connections(1)
                assert not protocol.transport._sock.get_inheritable()
            await protocol.until_lost()

    run(main())


def test_connections_before_the_loop_runs_are_served(loop: asyncio.AbstractEventLoop) -> None:
    factory = Factory()
    server = loop.run_until_complete(loop.create_server(factory, "127.0.0.1", 0))
    address = server.sockets[0].getsockname()
    clients = [socket.create_connection(address) for _ in range(10)]

    async def main() -> None:
        await factory.connections(10)
        for client in clients:
            client.close()
        for protocol in factory.made:
            await protocol.until_lost()
        server.close()
        await server.wait_closed()

    loop.run_until_complete(main())


def test_connections_accepted_while_stopping_are_served_by_the_next_run(
    loop: asyncio.AbstractEventLoop,
) -> None:
    factory = Factory()
    server = loop.run_until_complete(loop.create_server(factory, "127.0.0.1", 0))
    address = server.sockets[0].getsockname()
    clients = []

    def connect_and_stop() -> None:
        clients.append(socket.create_connection(address))
        loop.stop()

    for _ in range(5):
        loop.call_soon(connect_and_stop)
        loop.run_forever()

    async def main() -> None:
        await factory.connections(5)
        for client in clients:
            client.close()
        for protocol in factory.made:
            await protocol.until_lost()
        server.close()
        await server.wait_closed()

    loop.run_until_complete(main())


@pytest.mark.parametrize("host", [None, "", "127.0.0.1", ["127.0.0.1"], "localhost"])
def test_hosts(run: Run, host: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        # One port for all of them; before 3.13 port 0 is another port for each socket.
        server = await loop.create_server(Factory(), host, 0)
        async with server:
            assert server.sockets
            for sock in server.sockets:
                family = "127.0.0.1" if sock.family == socket.AF_INET else "::1"
                assert await ask((family, sock.getsockname()[1])) == b"ping"

    run(main())


def test_several_hosts(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with await loop.create_server(Factory(), ["127.0.0.1", "127.0.0.2"], 0) as server:
            addresses = [sock.getsockname() for sock in server.sockets]
            assert sorted(host for host, _ in addresses) == ["127.0.0.1", "127.0.0.2"]
            for address in addresses:
                assert await ask(address) == b"ping"

    run(main())


def test_given_socket(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        async with await loop.create_server(Factory(), sock=sock) as server:
            assert await ask(sock.getsockname()) == b"ping"
            assert server.sockets[0].fileno() == sock.fileno()
        assert sock.fileno() == -1

    run(main())


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"host": "127.0.0.1", "sock": object()}, ValueError),
        ({}, ValueError),
        ({"host": "127.0.0.1", "port": 0, "ssl": True}, TypeError),
        ({"host": "127.0.0.1", "port": 0, "ssl_handshake_timeout": 1.0}, ValueError),
        ({"host": "127.0.0.1", "port": 0, "nonsense": 1}, TypeError),
        ({"host": "256.0.0.1", "port": 0}, socket.gaierror),
        ({"host": "192.0.2.1", "port": 0}, OSError),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_wrong_arguments(run: Run, arguments: dict[str, Any], error: type[Exception]) -> None:
    async def main() -> None:
        with pytest.raises(error):
            await asyncio.get_running_loop().create_server(Factory(), **arguments)

    run(main())


def test_address_in_use(run: Run) -> None:
    async def main() -> None:
        async with serving(Factory()) as (_, address):
            with pytest.raises(OSError, match="address already in use") as caught:
                await asyncio.get_running_loop().create_server(Factory(), *address)
            assert caught.value.errno == errno.EADDRINUSE

    run(main())


def test_datagram_socket_is_refused(run: Run) -> None:
    async def main() -> None:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock,
            pytest.raises(ValueError, match="Stream Socket"),
        ):
            await asyncio.get_running_loop().create_server(Factory(), sock=sock)

    run(main())


def test_reuse_port(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        first = await loop.create_server(Factory(), "127.0.0.1", 0, reuse_port=True)
        address = first.sockets[0].getsockname()
        second = await loop.create_server(Factory(), *address, reuse_port=True)
        async with first, second:
            for _ in range(10):
                assert await ask(address) == b"ping"

    run(main())


def test_reuse_address_by_default(run: Run) -> None:
    async def main() -> None:
        factory = Factory()
        async with serving(factory) as (server, address):
            option = server.sockets[0].getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
            assert option != 0
            await ask(address)
        # The server did not close first, yet old connections may linger.
        again = await asyncio.get_running_loop().create_server(Factory(), *address)
        async with again:
            assert await ask(address) == b"ping"

    run(main())


@pytest.mark.parametrize("backlog", [1, 5, 100])
def test_backlog(run: Run, backlog: int) -> None:
    async def main() -> None:
        async with serving(Factory(), backlog=backlog) as (_, address):
            for _ in range(5):
                assert await ask(address) == b"ping"

    run(main())


@pytest.mark.skipif(sys.version_info < (3, 13), reason="keep_alive is new in 3.13")
def test_keep_alive(run: Run) -> None:
    async def main() -> None:
        arguments: dict[str, Any] = {"keep_alive": True}
        async with serving(Factory(), **arguments) as (server, _):
            option = server.sockets[0].getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert option != 0

    run(main())


def test_start_serving_later(run: Run) -> None:
    async def main() -> None:
        async with serving(Factory(), start_serving=False) as (server, address):
            assert not server.is_serving()
            assert is_refused(address)
            await server.start_serving()
            assert server.is_serving()
            await server.start_serving()
            assert await ask(address) == b"ping"

    run(main())
