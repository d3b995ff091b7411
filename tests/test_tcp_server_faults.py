"""The server of `loop.create_server`: faults of its factory, its clients and its user."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.tcp import Factory, Recorder, ask, exceptions_of, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]


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
    # No storm: it waits a second before it tries again. (asyncio tries as often as its backlog first.)
    assert len(reports) <= 1 + (loop.time() - began) or sys.argv[1] == "asyncio", reports
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
    assert 0.9 < loop.time() - began
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
        timeout=support.PATIENCE_SECONDS + 20,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "served\n"


def test_close_during_the_back_off(loop_name: str) -> None:
    script = OUT_OF_DESCRIPTORS.replace(
        "    await asyncio.sleep(0.3)\n",
        "    server.close()\n"
        "    until_closed = len(reports)\n"
        "    for sock in spare + clients: sock.close()\n"
        "    await asyncio.sleep(1.2)\n"
        "    assert len(reports) == until_closed, reports\n"
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
        timeout=support.PATIENCE_SECONDS + 20,
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
