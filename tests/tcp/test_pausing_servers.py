"""`Server.pause_accepting`, `resume_accepting` and `max_connections`: TCP, Unix and TLS."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support import ORACLE, wait_until, within

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from tests.support.tls import Certificates

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

TRACKS_CLIENTS = hasattr(asyncio.base_events.Server, "close_clients")


class Site:
    """How to serve one kind of address by streams, and to connect to it."""

    def __init__(self, kind: str, folder: Path, certificates: Certificates) -> None:
        self.kind = kind
        self.path = str(folder / "socket")
        self.server_tls = certificates.server() if kind == "tls" else None
        self.client_tls = certificates.client() if kind == "tls" else None
        self.writers: list[asyncio.StreamWriter] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        while line := await reader.readline():
            writer.write(line.upper())
        writer.close()

    async def serve(self, **options: Any) -> Any:
        if self.kind == "unix":
            return await asyncio.start_unix_server(self.answer, self.path, **options)
        return await asyncio.start_server(
            self.answer, "127.0.0.1", 0, ssl=self.server_tls, **options
        )

    async def connect(self, server: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.kind == "unix":
            return await asyncio.open_unix_connection(self.path)
        host, port = server.sockets[0].getsockname()
        if self.client_tls is None:
            return await asyncio.open_connection(host, port)
        return await asyncio.open_connection(
            host, port, ssl=self.client_tls, server_hostname="localhost"
        )


@pytest.fixture(params=["tcp", "unix", "tls"])
def site(request: pytest.FixtureRequest, tmp_path: Path, certificates: Certificates) -> Site:
    return Site(request.param, tmp_path, certificates)


@pytest.fixture
def ours(loop_name: str) -> str:
    if loop_name == ORACLE:
        pytest.skip("asyncio has none of this")
    return loop_name


async def asks(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> bytes:
    reader, writer = connection
    writer.write(b"ping\n")
    return await within(reader.readline())


async def close(*connections: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    for _, writer in connections:
        writer.close()
        await within(writer.wait_closed())


async def turns(count: int = 20) -> None:
    """Let the loop poll the kernel several times."""
    for _ in range(count):
        await asyncio.sleep(0.001)


@pytest.mark.usefixtures("ours")
def test_paused_server_leaves_connections_in_the_backlog(run: Run, site: Site) -> None:
    async def main() -> None:
        server = await site.serve()
        assert server.is_accepting()
        first = await site.connect(server)
        assert await asks(first) == b"PING\n"
        server.pause_accepting()
        server.pause_accepting()
        assert server.is_serving()
        assert not server.is_accepting()
        second = asyncio.ensure_future(site.connect(server))
        await turns()
        assert len(site.writers) == 1
        # Open ones go on.
        assert await asks(first) == b"PING\n"
        server.resume_accepting()
        assert server.is_accepting()
        connection = await within(second)
        assert await asks(connection) == b"PING\n"
        server.resume_accepting()
        await close(first, connection)
        server.close()
        await within(server.wait_closed())
        for change in (server.pause_accepting, server.resume_accepting):
            with pytest.raises(RuntimeError, match="is closed: it no longer accepts connections"):
                change()

    run(main())


@pytest.mark.usefixtures("ours")
def test_connections_beyond_the_limit_wait_for_others_to_end(run: Run, site: Site) -> None:
    async def main() -> None:
        server = await site.serve(max_connections=2)
        assert server.max_connections == 2
        most = 0
        waiting = [asyncio.ensure_future(session(server)) for _ in range(12)]
        while not all(task.done() for task in waiting):
            most = max(most, open_connections(server))
            await asyncio.sleep(0)
        assert [task.result() for task in waiting] == [b"PING\n"] * 12
        assert most == 2
        assert len(site.writers) == 12
        await wait_until(lambda: open_connections(server) == 0, "the server's ends")
        assert server.is_accepting()
        server.close()
        await within(server.wait_closed())

    async def session(server: Any) -> bytes:
        connection = await within(site.connect(server))
        answer = await asks(connection)
        await close(connection)
        return answer

    run(main())


def open_connections(server: Any) -> int:
    clients = getattr(server, "_clients", None)
    return server._active_count if clients is None else len(clients)


@pytest.mark.usefixtures("ours")
def test_limit_holds_in_one_turn_of_many_connections(run: Run) -> None:
    async def main() -> None:
        made = 0

        def factory() -> asyncio.Protocol:
            nonlocal made
            made += 1
            return asyncio.Protocol()

        loop: Any = asyncio.get_running_loop()
        server: Any = await loop.create_server(
            factory, "127.0.0.1", 0, start_serving=False, max_connections=3, backlog=50
        )
        # In the backlog before the first accept.
        for sock in server.sockets:
            sock._sock.listen(50)
        address = server.sockets[0].getsockname()
        writers = [(await asyncio.open_connection(*address))[1] for _ in range(10)]
        await server.start_serving()
        await wait_until(lambda: made == 3, "three connections")
        await turns()
        assert made == 3
        server.max_connections = 5
        await wait_until(lambda: made == 5, "five connections")
        await turns()
        assert made == 5
        server.max_connections = 1  # closes none
        await turns()
        assert open_connections(server) == 5
        server.max_connections = None
        await wait_until(lambda: made == 10, "all connections")
        for writer in writers:
            writer.close()
            await within(writer.wait_closed())
        server.close()
        await within(server.wait_closed())

    run(main())


@pytest.mark.usefixtures("ours")
def test_server_that_is_paused_before_it_serves_begins_paused(run: Run, site: Site) -> None:
    async def main() -> None:
        server = await site.serve(start_serving=False)
        server.pause_accepting()
        await server.start_serving()
        pending = asyncio.ensure_future(site.connect(server))
        await turns()
        assert not site.writers
        server.resume_accepting()
        connection = await within(pending)
        assert await asks(connection) == b"PING\n"
        await close(connection)
        server.close()
        await within(server.wait_closed())

    run(main())


@pytest.mark.usefixtures("ours")
def test_pause_and_limit_are_two_reasons(run: Run) -> None:
    async def main() -> None:
        site = Site.__new__(Site)
        site.kind, site.writers, site.server_tls, site.client_tls = "tcp", [], None, None
        server = await site.serve(max_connections=1)
        first = await site.connect(server)
        assert await asks(first) == b"PING\n"
        second = await site.connect(server)  # in the backlog
        server.pause_accepting()
        await close(first)
        await wait_until(lambda: open_connections(server) == 0, "the server's end")
        await turns()
        assert len(site.writers) == 1
        server.resume_accepting()
        assert await asks(second) == b"PING\n"
        assert not server.is_accepting()
        await close(second)
        server.close()
        await within(server.wait_closed())

    run(main())


@pytest.mark.usefixtures("ours")
def test_close_while_paused_or_full_ends_the_server(run: Run, site: Site) -> None:
    async def main() -> None:
        for options in ({}, {"max_connections": 1}):
            server = await site.serve(**options)
            first = await site.connect(server)
            assert await asks(first) == b"PING\n"
            server.pause_accepting()
            server.close()
            assert not server.is_accepting()
            await close(first)
            await within(server.wait_closed())

    run(main())


@pytest.mark.skipif(not TRACKS_CLIENTS, reason="this CPython's Server does not know its transports")
@pytest.mark.usefixtures("ours")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_abandoned_connection_makes_room(run: Run) -> None:
    class Paused(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            made.append(1)
            transport.pause_reading()

    made: list[int] = []

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        server: Any = await loop.create_server(Paused, "127.0.0.1", 0, max_connections=1)
        address = server.sockets[0].getsockname()
        writers = [(await asyncio.open_connection(*address))[1] for _ in range(2)]

        def second_is_served() -> bool:
            gc.collect()
            return len(made) == 2

        await wait_until(second_is_served, "the collected connection's place")
        for writer in writers:
            writer.close()
            await asyncio.wait([asyncio.ensure_future(writer.wait_closed())])
        server.close()
        server.abort_clients()

    run(main())


@pytest.mark.usefixtures("ours")
@pytest.mark.parametrize(
    ("count", "error"), [(0, ValueError), (-1, ValueError), (True, TypeError), ("5", TypeError)]
)
def test_what_is_no_limit_is_refused_by_name(run: Run, count: Any, error: type) -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        with pytest.raises(error, match="max_connections is "):
            await loop.create_server(asyncio.Protocol, "127.0.0.1", 0, max_connections=count)
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
        with pytest.raises(error, match="max_connections is "):
            server.max_connections = count
        assert server.max_connections is None
        server.close()

    run(main())


def test_other_loops_refuse_the_keyword_by_name(run: Run, loop_name: str) -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        if loop_name == ORACLE:
            with pytest.raises(TypeError, match="max_connections"):
                loop.create_server(asyncio.Protocol, "127.0.0.1", 0, max_connections=1)
        else:
            make = loop.create_server(asyncio.Protocol, "127.0.0.1", 0, max_connections=1)
            (await make).close()

    run(main())


@pytest.mark.usefixtures("ours")
def test_servers_are_of_the_public_class(run: Run) -> None:
    import ringloop

    async def main() -> None:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        assert type(server) is ringloop.Server
        assert isinstance(server, asyncio.Server)
        assert repr(server).startswith("<Server sockets=(")
        server.close()

    run(main())


@pytest.mark.one_thread("it counts the descriptors of the process")
@pytest.mark.usefixtures("ours")
def test_pauses_leave_nothing(run: Run) -> None:
    async def main() -> None:
        accepted = 0

        def count(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal accepted
            accepted += 1
            writer.close()

        server: Any = await asyncio.start_server(count, "127.0.0.1", 0)
        await turns()
        descriptors = len(support.open_descriptors())
        for _ in range(1000):
            server.pause_accepting()
            server.resume_accepting()
        await turns()
        assert len(support.open_descriptors()) == descriptors
        # One listener is left, which accepts each connection once.
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await within(reader.read()) == b""
        writer.close()
        await within(writer.wait_closed())
        assert accepted == 1
        server.pause_accepting()
        assert len(support.open_descriptors()) <= descriptors
        server.close()

    run(main())
