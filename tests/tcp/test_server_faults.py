"""Servers of `loop.create_server`: failures of the factory, the clients and the application."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import (
    MORE_THAN_THE_KERNEL_TAKES,
    SOCKET_BUFFER_BYTES,
    Factory,
    Recorder,
    ask,
    closed,
    connected,
    exceptions_of,
    pattern,
    serving,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.support import LoopFactory

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
            # A failure of one connection is logged in debug mode only.
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


def test_connections_after_an_interrupted_one_are_served_by_the_next_run(
    loop: asyncio.AbstractEventLoop, loop_name: str
) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio leaves the accepted socket to the collector")
    good = Factory()
    calls = 0

    def factory() -> Recorder:
        nonlocal calls
        calls += 1
        if calls % 2:
            raise KeyboardInterrupt
        return good()

    async def main() -> None:
        await good.connections(2)
        for client in clients:
            client.close()
        for protocol in good.made:
            await protocol.until_lost()
        server.close()
        await server.wait_closed()

    server = loop.run_until_complete(loop.create_server(factory, "127.0.0.1", 0))
    clients = [socket.create_connection(server.sockets[0].getsockname()) for _ in range(4)]
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            loop.run_forever()
    loop.run_until_complete(main())


def test_clients_that_close_before_accept(loop: asyncio.AbstractEventLoop) -> None:
    factory = Factory()
    server = loop.run_until_complete(loop.create_server(factory, "127.0.0.1", 0))
    address = server.sockets[0].getsockname()
    names = []
    for _ in range(10):
        with socket.create_connection(address) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            names.append(client.getsockname())

    async def main() -> None:
        assert await ask(address) == b"ping"
        for protocol in factory.made:
            await protocol.until_lost()
        found = [one.transport.get_extra_info("peername") for one in factory.made]
        assert found[: len(names)] == names
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


def printed_by(script: str, loop_name: str) -> str:
    """Run a program in its own process; it must end without an error."""
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), loop_name],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=support.PATIENCE_SECONDS + 20,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_out_of_descriptors_backs_off_and_recovers(loop_name: str) -> None:
    assert printed_by(OUT_OF_DESCRIPTORS, loop_name) == "served\n"


INTERRUPTED_BACK_OFF = """
import asyncio, resource, socket, sys
from tests.support import loop_factory, wait_until

class Greeter(asyncio.Protocol):
    def connection_made(self, transport):
        transport.write(b"hello")
        transport.close()

def leave(loop, context):
    loop.set_exception_handler(lambda loop, context: None)
    raise SystemExit

async def serve(loop):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (80, hard))
    return await loop.create_server(Greeter, "127.0.0.1", 0)

async def greeted(client):
    got = b""
    def has_come():
        nonlocal got
        try:
            got = client.recv(5)
        except BlockingIOError:
            return False
        return True
    await wait_until(has_come, "the greeting")
    return got

loop = loop_factory(sys.argv[1])()
server = loop.run_until_complete(serve(loop))
client = socket.socket()
spare = []
try:
    while True:
        spare.append(socket.socket())
except OSError:
    pass
client.connect(server.sockets[0].getsockname())
client.settimeout(0)
loop.set_exception_handler(leave)
try:
    loop.run_forever()
except SystemExit:
    print("left")
for sock in spare:
    sock.close()
print(loop.run_until_complete(greeted(client)).decode())
client.close()
server.close()
loop.run_until_complete(server.wait_closed())
loop.close()
"""


def test_exception_handler_that_raises_keeps_the_listener(loop_name: str) -> None:
    assert printed_by(INTERRUPTED_BACK_OFF, loop_name) == "left\nhello\n"


SERVER_WITHOUT_DESCRIPTORS = """
import asyncio, os, resource, socket, sys
from tests.support import loop_factory
from tests.support.tcp import Echo, ask

async def main(loop):
    listening = socket.create_server(("127.0.0.1", 0))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (80, hard))
    spare = []
    try:
        while True:
            spare.append(os.dup(0))
    except OSError:
        pass
    server = await loop.create_server(Echo, sock=listening)
    for fd in spare:
        os.close(fd)
    for _ in range(3):
        print((await ask(listening.getsockname())).decode())
    server.close()
    await server.wait_closed()

loop = loop_factory(sys.argv[1])()
loop.run_until_complete(main(loop))
loop.close()
"""


def test_serving_needs_no_further_descriptor(loop_name: str) -> None:
    assert printed_by(SERVER_WITHOUT_DESCRIPTORS, loop_name) == "ping\n" * 3


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
    assert printed_by(script, loop_name) == "served\n"


def test_listening_socket_closed_under_the_server(
    loop: asyncio.AbstractEventLoop, run: Run
) -> None:
    async def main() -> None:
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        address = sock.getsockname()
        with exceptions_of(loop):
            server = await loop.create_server(Factory(), sock=sock)
            sock.close()
            for _ in range(5):
                await asyncio.sleep(0)
            with contextlib.suppress(ValueError):  # asyncio looks the descriptor up: it is -1
                server.close()
        assert await asyncio.sleep(0, "alive") == "alive"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address).close()

    run(main())


def test_clients_that_close_early_do_not_stop_the_server(
    run: Run, loop: asyncio.AbstractEventLoop
) -> None:
    async def main() -> None:
        handled = 0

        def reached(count: int) -> Callable[[], bool]:
            return lambda: handled >= count

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal handled
            await reader.read()
            # The answer meets a reset, after which shutdown(2) fails, in write_eof() or later: this
            # affects only that connection.
            writer.write(b"too late")
            with contextlib.suppress(OSError):
                writer.write_eof()
            await asyncio.sleep(0.01)
            writer.close()
            handled += 1

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        with exceptions_of(loop):
            for count in range(1, 21):
                socket.create_connection(address).close()
                await support.wait_until(reached(count), "the handler")
            reader, writer = await asyncio.open_connection(*address)
            writer.write_eof()
            assert await support.within(reader.read()) == b"too late"
            writer.close()
            # CPython 3.11's wait_closed() does not wait for handlers.
            await support.wait_until(reached(21), "the last handler")
            server.close()
            await support.within(server.wait_closed())

    run(main())


def test_write_eof_behind_queued_data_survives_a_reset(
    run: Run, loop: asyncio.AbstractEventLoop
) -> None:
    async def main() -> None:
        protocol = Recorder()
        with exceptions_of(loop):
            async with connected(protocol, SOCKET_BUFFER_BYTES) as (transport, peer):
                transport.write(bytes(MORE_THAN_THE_KERNEL_TAKES))
                transport.write_eof()
                peer.reset()
                await protocol.until_lost()
        assert await asyncio.sleep(0, "alive") == "alive"

    run(main())


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_factory_that_returns_none_does_not_block_the_server(
    run: Run, loop: asyncio.AbstractEventLoop
) -> None:
    async def main() -> None:
        made = asyncio.Event()

        def factory() -> Any:
            made.set()

        with exceptions_of(loop):
            server = await loop.create_server(factory, "127.0.0.1", 0)
            with socket.create_connection(server.sockets[0].getsockname()):
                await support.within(made.wait())
                await asyncio.sleep(0)
                gc.collect()
                server.close()
                await support.within(server.wait_closed())

    run(main())


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("pauses", [False, True])
def test_unreferenced_connections_are_closed(run: Run, pauses: bool) -> None:
    ended = 0
    transports: list[Any] = []

    class Forgetful(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            transports.append(transport)

        def eof_received(self) -> bool:
            nonlocal ended
            ended += 1
            return True

    async def main() -> None:
        def forgotten() -> bool:
            gc.collect()
            return len(os.listdir("/proc/self/fd")) <= before

        def each(method: str) -> None:
            for transport in transports if pauses else ():
                getattr(transport, method)()

        loop = asyncio.get_running_loop()
        server = await loop.create_server(Forgetful, "127.0.0.1", 0)
        before = len(os.listdir("/proc/self/fd"))
        address = server.sockets[0].getsockname()
        clients = [socket.create_connection(address) for _ in range(20)]
        await support.wait_until(lambda: len(transports) == 20, "the connections")
        # The reads are in flight.
        await asyncio.sleep(0.01)
        each("pause_reading")
        while clients:
            clients.pop().close()
        await asyncio.sleep(0.02)
        each("resume_reading")
        transports.clear()
        await support.wait_until(lambda: ended == 20, "the ends")
        await support.wait_until(forgotten, "the descriptors to be closed")
        server.close()
        await support.within(server.wait_closed())

    run(main())


def test_socket_is_still_the_transports_after_eof(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        protocol.keep_open_after_eof = True
        loop = asyncio.get_running_loop()
        async with connected(protocol, SOCKET_BUFFER_BYTES) as (transport, peer):
            peer.sock.shutdown(socket.SHUT_WR)
            await support.wait_until(lambda: "eof_received" in protocol.events, "the end")
            with pytest.raises(RuntimeError, match="is used by transport"):
                await loop.sock_sendall(
                    transport.get_extra_info("socket")._sock, bytes(MORE_THAN_THE_KERNEL_TAKES)
                )

    run(main())


def test_server_closed_by_another_thread_than_its_loops(loop_factory: LoopFactory) -> None:
    made: list[Any] = []

    def other() -> None:
        loop = loop_factory()
        server = loop.run_until_complete(loop.create_server(asyncio.Protocol, "127.0.0.1", 0))
        loop.run_until_complete(asyncio.sleep(0.01))
        made.extend([loop, server])

    thread = threading.Thread(target=other)
    thread.start()
    thread.join(support.PATIENCE_SECONDS)
    loop, server = made
    (listening,) = server.sockets
    address = listening.getsockname()
    server.close()
    assert listening.fileno() == -1
    loop.close()

    def refused() -> bool:
        with socket.socket() as client:
            return client.connect_ex(address) == errno.ECONNREFUSED

    # A ring being torn down closes its files a moment later.
    support.wait_until_blocking(refused, "the port to be free")


@pytest.mark.one_thread("counts on the numbers of new descriptors")
def test_socket_that_reuses_the_descriptor_of_a_closed_listener(run: Run, loop_name: str) -> None:
    if loop_name == "asyncio":
        pytest.skip("its server.close() refuses a socket that is closed already")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        server = await loop.create_server(asyncio.Protocol, sock=listening)
        await asyncio.sleep(0.01)
        number = listening.fileno()
        listening.close()
        server.close()
        protocol = Recorder()
        ours, theirs = socket.socketpair()
        assert ours.fileno() == number
        with theirs:
            transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
            theirs.sendall(b"x")
            await support.wait_until(lambda: protocol.data == b"x", "the byte")
            transport.close()
            await closed(transport)

    run(main())


def test_connection_stays_usable_after_eof(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        protocol.keep_open_after_eof = True
        async with connected(protocol, SOCKET_BUFFER_BYTES) as (transport, peer):
            peer.shut_down()
            await support.wait_until(lambda: "eof_received" in protocol.events, "the end")
            for _ in range(5):
                await asyncio.sleep(0.001)
            gc.collect()
            data = pattern(300_000)
            transport.write(data[:100])
            await asyncio.sleep(0.001)
            transport.write(data[100:])
            with pytest.raises(RuntimeError, match="is used by transport"):
                asyncio.get_running_loop().add_reader(
                    transport.get_extra_info("socket").fileno(), print
                )
            assert await peer.receive(len(data)) == data
            transport.close()
            await protocol.until_lost()
            assert protocol.reason is None

    run(main())
