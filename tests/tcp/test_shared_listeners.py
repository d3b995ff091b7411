"""Several loops and processes on one listening socket: any loop that can serve does.

A busy, stopped or closed loop must not have accepted what another could serve. Two loops in one
thread make this deterministic: while one runs, the other does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import ssl
import sys
import threading
import traceback
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from tests import support

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
    from pathlib import Path

    from tests.support import LoopFactory
    from tests.support.tls import Certificates

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

ANSWERS = 3


class Site:
    """One listening socket, and how to serve it and connect to it."""

    def __init__(self, kind: str, folder: Path, certificates: Certificates) -> None:
        self.address: Any = str(folder / "socket") if kind == "unix" else ("127.0.0.1", 0)
        self.sock = socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET)
        self.sock.bind(self.address)
        self.sock.listen(64)
        self.address = self.sock.getsockname()
        self.server_tls: ssl.SSLContext | None = None
        self.client_tls: ssl.SSLContext | None = None
        if kind == "tls":
            self.server_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.server_tls.load_cert_chain(*certificates.issue())
            self.client_tls = ssl.create_default_context(cafile=str(certificates.authority))

    async def serve(self, name: bytes) -> asyncio.AbstractServer:
        """Answer each connection with `name`, on a server with its own descriptor."""

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(name)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

        if self.sock.family == socket.AF_UNIX:
            # The path belongs to all of them: the first to close would remove it.
            keep: Any = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
            return await asyncio.start_unix_server(answer, sock=self.sock.dup(), **keep)
        return await asyncio.start_server(answer, sock=self.sock.dup(), ssl=self.server_tls)

    async def ask(self, client: socket.socket | None = None) -> bytes:
        """The name of the server that answers this connection, or a new one."""
        if client is None:
            client = socket.socket(self.sock.family)
            client.setblocking(False)
            await asyncio.get_running_loop().sock_connect(client, self.address)
        name = "localhost" if self.client_tls else None
        opening = asyncio.open_connection(sock=client, ssl=self.client_tls, server_hostname=name)
        reader, writer = await support.within(opening)
        try:
            return await support.within(reader.read())
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def answers(self) -> list[bytes]:
        return [await self.ask() for _ in range(ANSWERS)]


@pytest.fixture(params=["tcp", "unix", "tls"])
def site(
    request: pytest.FixtureRequest, tmp_path: Path, certificates: Certificates
) -> Iterator[Site]:
    site = Site(request.param, tmp_path, certificates)
    yield site
    site.sock.close()


async def end(server: asyncio.AbstractServer) -> None:
    """Close a server, and wait for its connections."""
    server.close()
    await support.within(server.wait_closed())
    if answering := asyncio.all_tasks() - {asyncio.current_task()}:
        await support.within(asyncio.wait(answering))


def test_loop_that_does_not_run_takes_no_connection(
    loop: asyncio.AbstractEventLoop, loop_factory: LoopFactory, site: Site
) -> None:
    other = loop_factory()
    ours = loop.run_until_complete(site.serve(b"one"))
    loop.run_until_complete(asyncio.sleep(0.001))
    theirs = other.run_until_complete(site.serve(b"other"))
    # Events reported to a loop while it did not run are stale when it runs again.
    for _ in range(2):
        assert other.run_until_complete(site.answers()) == [b"other"] * ANSWERS
        assert loop.run_until_complete(site.answers()) == [b"one"] * ANSWERS
    loop.run_until_complete(end(ours))
    assert other.run_until_complete(site.answers()) == [b"other"] * ANSWERS
    other.run_until_complete(end(theirs))
    assert not support.close_loop(other)


def test_sock_accept_that_waits_takes_no_connection_of_another_loop(
    loop: asyncio.AbstractEventLoop, loop_factory: LoopFactory, tmp_path: Path
) -> None:
    site = Site("unix", tmp_path, None)  # type: ignore[arg-type]
    site.sock.setblocking(False)
    waiting = loop.create_task(loop.sock_accept(site.sock))
    loop.run_until_complete(asyncio.sleep(0.001))
    other = loop_factory()
    server = other.run_until_complete(site.serve(b"other"))
    assert other.run_until_complete(site.answers()) == [b"other"] * ANSWERS
    other.run_until_complete(end(server))
    assert not support.close_loop(other)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(site.address)
        accepted, _ = loop.run_until_complete(support.within(waiting))
        accepted.close()
    site.sock.close()


def test_blocking_listener_does_not_block_the_loop(
    loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    """The flags are shared by all owners; another process may have accepted the reported connection."""
    site = Site("unix", tmp_path, None)  # type: ignore[arg-type]
    server = loop.run_until_complete(site.serve(b"one"))
    loop.run_until_complete(asyncio.sleep(0.001))
    site.sock.setblocking(True)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(site.address)
        site.sock.accept()[0].close()
    loop.run_until_complete(asyncio.sleep(0.001))
    site.sock.setblocking(False)
    assert loop.run_until_complete(site.answers()) == [b"one"] * ANSWERS
    loop.run_until_complete(end(server))
    site.sock.close()


@pytest.mark.parametrize("turns", range(4))
def test_connections_of_a_closing_server_are_served(
    loop_name: str, loop_factory: LoopFactory, site: Site, run: Run, turns: int
) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio drops what it has accepted and not yet attached to the server")

    async def main() -> None:
        clients = [socket.socket(site.sock.family) for _ in range(8)]
        for client in clients:
            client.connect(site.address)
            client.setblocking(False)
        server = await site.serve(b"one")
        for _ in range(turns):
            await asyncio.sleep(0)
        server.close()
        async with in_a_thread(loop_factory, lambda: site.serve(b"other")):
            answers = await asyncio.gather(*(site.ask(client) for client in clients))
        assert set(answers) <= {b"one", b"other"}
        await support.within(server.wait_closed())

    run(main())


@contextlib.asynccontextmanager
async def in_a_thread(
    loop_factory: LoopFactory, serve: Callable[[], Coroutine[Any, Any, asyncio.AbstractServer]]
) -> AsyncIterator[None]:
    """Run the server of `serve()` on a loop in another thread."""
    loop = loop_factory()
    is_serving = threading.Event()

    def work() -> None:
        server = loop.run_until_complete(serve())
        loop.call_soon(is_serving.set)
        loop.run_forever()
        loop.run_until_complete(end(server))
        assert not support.close_loop(loop)

    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        yield
    finally:
        # An earlier stop would end its first run.
        await asyncio.to_thread(is_serving.wait, support.PATIENCE_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        await support.within(working)


def test_flood_of_connections_does_not_starve_callbacks(
    loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    site = Site("unix", tmp_path, None)  # type: ignore[arg-type]
    clients = [socket.socket(socket.AF_UNIX) for _ in range(40)]
    for client in clients:
        client.connect(site.address)
    made: list[asyncio.BaseTransport] = []

    class Count(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made.append(transport)

    async def main() -> list[int]:
        server = await loop.create_unix_server(Count, sock=site.sock, backlog=4)
        seen = [0]
        while seen[-1] < len(clients):
            await asyncio.sleep(0)
            seen.append(len(made))
        for transport in made:
            transport.close()
        server.close()
        await support.within(server.wait_closed())
        return seen

    seen = loop.run_until_complete(support.within(main()))
    for client in clients:
        client.close()
    # asyncio counts one more since 3.12.
    assert max(later - earlier for earlier, later in itertools.pairwise(seen)) <= 5


# Processes.


@pytest.fixture
def forks_are_meant() -> Iterator[None]:
    """Since 3.12 Python warns of a fork in a process with threads, rightly."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        yield


@contextlib.contextmanager
def worker(loop_factory: LoopFactory, serve: Callable[[], Coroutine[Any, Any, None]]) -> Any:
    """A forked process whose loop runs `serve()`; yields its pid when it serves.

    `serve` writes a line to descriptor `out` when it is ready.
    """
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        signal.alarm(int(2 * support.PATIENCE_SECONDS))
        try:
            asyncio._set_running_loop(None)
            loop_factory().run_until_complete(serve())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def ask(address: Any) -> bytes:
    with socket.create_connection(address, support.PATIENCE_SECONDS) as client:
        return client.recv(20)


@pytest.mark.usefixtures("forks_are_meant")
def test_stopped_worker_leaves_connections_to_the_others(
    loop_name: str, loop_factory: LoopFactory, tmp_path: Path, certificates: Certificates
) -> None:
    site = Site("tcp", tmp_path, certificates)
    ready, told = os.pipe()

    async def serve() -> None:
        await site.serve(b"%d" % os.getpid())
        os.write(told, b".")
        await asyncio.Event().wait()

    with worker(loop_factory, serve) as first:
        assert os.read(ready, 1) == b"."
        with worker(loop_factory, serve) as second:
            assert os.read(ready, 1) == b"."
            for stopped, other in [(first, second), (second, first)]:
                os.kill(stopped, signal.SIGSTOP)
                os.waitpid(stopped, os.WUNTRACED)
                assert [ask(site.address) for _ in range(ANSWERS)] == [b"%d" % other] * ANSWERS
                os.kill(stopped, signal.SIGCONT)
    os.close(ready)
    os.close(told)
    site.sock.close()


@pytest.mark.usefixtures("forks_are_meant")
def test_parent_that_no_longer_runs_takes_no_connection(
    loop_name: str, loop_factory: LoopFactory, site: Site, run: Run
) -> None:
    server = run(site.serve(b"parent"))
    assert run(site.ask()) == b"parent"
    ready, told = os.pipe()

    async def serve() -> None:
        # Closing the inherited server here leaves the parent's open; asyncio would unregister both.
        if loop_name != support.ORACLE:
            server.close()
        await site.serve(b"child")
        os.write(told, b".")
        await asyncio.Event().wait()

    with worker(loop_factory, serve):
        assert os.read(ready, 1) == b"."
        other = loop_factory()
        assert other.run_until_complete(site.answers()) == [b"child"] * ANSWERS
        assert not support.close_loop(other)
    assert run(site.ask()) == b"parent"
    run(end(server))
    os.close(ready)
    os.close(told)


async def by_a_server(listening: socket.socket) -> object:
    return await asyncio.start_server(lambda *_: None, sock=listening)


async def by_a_watcher(listening: socket.socket) -> object:
    asyncio.get_running_loop().add_reader(listening, print)
    return listening


async def by_sock_accept(listening: socket.socket) -> object:
    return asyncio.ensure_future(asyncio.get_running_loop().sock_accept(listening))


@pytest.mark.usefixtures("forks_are_meant")
@pytest.mark.parametrize("serve", [by_a_server, by_a_watcher, by_sock_accept])
def test_port_of_a_killed_server_is_free_at_once(
    loop_name: str,
    loop_factory: LoopFactory,
    serve: Callable[[socket.socket], Coroutine[Any, Any, object]],
) -> None:
    for _ in range(3):
        ready, told = os.pipe()

        async def work(told: int = told) -> None:
            listening = socket.create_server(("127.0.0.1", 0))
            listening.setblocking(False)
            kept = await serve(listening)
            await asyncio.sleep(0.01)
            os.write(told, b"%d" % listening.getsockname()[1])
            await asyncio.Event().wait()
            del kept

        with worker(loop_factory, work):
            port = int(os.read(ready, 10))
        with socket.socket() as next_server:
            next_server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            next_server.bind(("127.0.0.1", port))
        os.close(ready)
        os.close(told)
