"""`loop.create_server` and the server that it returns."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.tcp import Recorder, closed, exceptions_of, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

HAS_CLOSE_CLIENTS = hasattr(asyncio.base_events.Server, "close_clients")
# 3.11 and 3.12.0 answered at once when there were still connections.
WAIT_CLOSED_WAITS = sys.version_info >= (3, 12, 1)

needs_close_clients = pytest.mark.skipif(
    not HAS_CLOSE_CLIENTS, reason="this CPython's Server has no close_clients()"
)


class Echo(Recorder):
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.write(data)


class Factory:
    """Make protocols and remember them."""

    def __init__(self, kind: type[Recorder] = Echo) -> None:
        self.kind = kind
        self.made: list[Recorder] = []

    def __call__(self) -> Recorder:
        self.made.append(self.kind())
        return self.made[-1]

    async def connections(self, count: int) -> list[Recorder]:
        """Wait until so many are connected."""
        await support.wait_until(
            lambda: sum(bool(protocol.events) for protocol in self.made) >= count,
            f"{count} connections",
        )
        return self.made


async def ask(address: Any, question: bytes = b"ping") -> bytes:
    """Connect, send, and take back what the server echoes."""
    loop = asyncio.get_running_loop()
    transport, protocol = await support.within(loop.create_connection(Recorder, *address[:2]))
    transport.write(question)
    await support.wait_until(lambda: len(protocol.data) >= len(question), "the answer")
    transport.close()
    await closed(transport)
    return bytes(protocol.data)


def is_refused(address: Any) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(address) == errno.ECONNREFUSED


# --- serving --------------------------------------------------------------------------------------


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


def test_accepts_while_the_loop_stops_are_served_by_the_next_run(
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
        # One port for all of them, as port 0 is one a socket before 3.13.
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
        # The server's end was not the first to close, yet old connections may linger.
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


# --- ending ---------------------------------------------------------------------------------------


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


def test_close_from_a_protocol_of_its_own(run: Run) -> None:
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


# --- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("debug", [False, True])
def test_factory_that_raises_closes_that_connection_only(
    loop: asyncio.AbstractEventLoop, loop_name: str, run: Run, debug: bool
) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio leaves the accepted socket to the collector")
    good = Factory()
    calls = 0

    def factory() -> Recorder:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ZeroDivisionError
        return good()

    async def main() -> None:
        with exceptions_of(loop) as contexts:
            async with serving(factory) as (_, address):
                with socket.create_connection(address) as client:
                    client.setblocking(False)
                    await support.wait_until(lambda: calls == 1, "the factory")
                    await support.wait_until(lambda: ended(client), "the end of the connection")
                assert await ask(address) == b"ping"
            # A fault of one connection is the log's business in debug mode only.
            messages = [context["message"] for context in contexts]
            assert messages == debug * ["Error on transport creation for incoming connection"]

    def ended(client: socket.socket) -> bool:
        try:
            return client.recv(1) == b""
        except BlockingIOError:
            return False

    loop.set_debug(debug)
    run(main())


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_interrupt_in_a_factory_leaves_the_loop(
    loop: asyncio.AbstractEventLoop, loop_name: str, error: type[BaseException]
) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio leaves the accepted socket to the collector")

    def factory() -> Recorder:
        raise error

    server = loop.run_until_complete(loop.create_server(factory, "127.0.0.1", 0))
    with socket.create_connection(server.sockets[0].getsockname()), pytest.raises(error):
        loop.run_forever()
    server.close()
    loop.run_until_complete(server.wait_closed())


def test_clients_that_are_gone_before_they_are_accepted(loop: asyncio.AbstractEventLoop) -> None:
    factory = Factory()
    server = loop.run_until_complete(loop.create_server(factory, "127.0.0.1", 0))
    address = server.sockets[0].getsockname()
    for _ in range(10):
        with socket.create_connection(address) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    async def main() -> None:
        assert await ask(address) == b"ping"
        for protocol in factory.made:
            await protocol.until_lost()
        server.close()
        await server.wait_closed()

    loop.run_until_complete(main())


OUT_OF_DESCRIPTORS = """
import asyncio, resource, socket, sys
from tests.support import loop_factory, wait_until

class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
    def data_received(self, data):
        self.transport.write(data)

async def main(loop):
    reports = []
    loop.set_exception_handler(lambda _loop, context: reports.append(context))
    # First the limit: a ring takes it when the accept is submitted.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (80, hard))
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    clients = [socket.socket() for _ in range(3)]
    spare = []
    try:
        while True:
            spare.append(socket.socket())
    except OSError:
        pass
    for client in clients:
        client.connect(address)
        client.settimeout(0)
    began = loop.time()
    await wait_until(lambda: reports, "the report")
    await asyncio.sleep(0.3)
    # No storm: it waits before it tries again. (asyncio tries as often as its backlog first.)
    assert len(reports) == 1 or sys.argv[1] == "asyncio", reports
    assert reports[0]["message"] == "socket.accept() out of system resource", reports
    assert reports[0]["exception"].errno == 24, reports
    for sock in spare:
        sock.close()
    for client in clients:
        client.sendall(b"ping")
    def answered():
        for client in list(clients):
            try:
                assert client.recv(4) == b"ping"
            except BlockingIOError:
                return False
            clients.remove(client)
            client.close()
        return True
    await wait_until(answered, "the answers")
    assert 0.9 < loop.time() - began < 5
    server.close()
    await server.wait_closed()
    print("served")

loop = loop_factory(sys.argv[1])()
loop.run_until_complete(main(loop))
loop.close()
"""


def test_out_of_descriptors_backs_off_and_recovers(loop_name: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(OUT_OF_DESCRIPTORS), loop_name],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "served\n"


def test_close_during_the_back_off(loop_name: str) -> None:
    script = OUT_OF_DESCRIPTORS.replace(
        "    await asyncio.sleep(0.3)\n",
        "    server.close()\n"
        "    for sock in spare + clients: sock.close()\n"
        "    await asyncio.sleep(1.2)\n"
        "    assert len(reports) == 1, reports\n"
        "    await server.wait_closed()\n"
        "    print('served')\n"
        "    return\n",
    )
    if loop_name == support.ORACLE:
        pytest.skip("asyncio's retry trips over the closed server")
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), loop_name],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "served\n"


def test_listening_socket_closed_under_the_server(
    loop: asyncio.AbstractEventLoop, run: Run
) -> None:
    async def main() -> None:
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        with exceptions_of(loop):
            server = await loop.create_server(Factory(), sock=sock)
            sock.close()
            for _ in range(5):
                await asyncio.sleep(0)
            with contextlib.suppress(ValueError):  # asyncio looks the descriptor up: it is -1
                server.close()
        assert await asyncio.sleep(0, "alive") == "alive"

    run(main())
