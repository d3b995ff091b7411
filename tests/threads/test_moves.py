"""A loop that runs in one thread and then in another keeps all it has open, as on asyncio.

Programs set up servers and clients with `run_until_complete` in the main thread, and call
`run_forever` in a thread of its own.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import Factory, Recorder, ask, pattern, socket_pair
from tests.support.tls import connected_tls

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from tests.support import LoopFactory
    from tests.support.tls import Certificates

LONG = pattern(3_000_000)


class Threads:
    """A loop, and two threads that run it by turns."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.threads = [concurrent.futures.ThreadPoolExecutor(1) for _ in range(2)]

    def run(self, thread: int, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run the loop in a thread until the coroutine ends."""
        running = self.threads[thread].submit(self.loop.run_until_complete, coroutine)
        return running.result(timeout=support.PATIENCE_SECONDS)


@pytest.fixture
def threads(loop_factory: LoopFactory) -> Iterator[Threads]:
    """A loop, closed in a third thread."""
    threads = Threads(loop_factory())
    yield threads
    threads.loop.close()
    for thread in threads.threads:
        thread.shutdown()


async def turns() -> None:
    """Run some turns, so that what was begun waits in the kernel."""
    for _ in range(5):
        await asyncio.sleep(0.001)


# --- servers --------------------------------------------------------------------------------------


def test_server_is_made_in_one_thread_and_runs_in_another(loop_factory: LoopFactory) -> None:
    loop = loop_factory()
    factory = Factory()
    server: Any = loop.run_until_complete(loop.create_server(factory, "127.0.0.1", 0))
    address = server.sockets[0].getsockname()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    with contextlib.closing(socket.create_connection(address, 10)) as client:
        client.sendall(b"ping")
        assert client.recv(100) == b"ping"
    loop.call_soon_threadsafe(loop.stop)
    thread.join(support.PATIENCE_SECONDS)
    assert not thread.is_alive()
    server.close()
    loop.run_until_complete(turns())
    loop.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, 10)


def test_server_goes_back_and_forth(threads: Threads) -> None:
    async def serve() -> Any:
        return await threads.loop.create_server(Factory(), "127.0.0.1", 0)

    async def close(server: Any) -> None:
        server.close()
        await turns()

    server = threads.run(0, serve())
    address = server.sockets[0].getsockname()
    for thread in (1, 0, 0, 1, 1, 0):
        assert threads.run(thread, ask(address)) == b"ping"
    threads.run(1, close(server))


def test_connections_that_wait_to_be_accepted_are(threads: Threads) -> None:
    async def serve() -> Any:
        return await threads.loop.create_server(Factory(), "127.0.0.1", 0)

    async def answered(clients: list[socket.socket]) -> list[bytes]:
        for client in clients:
            client.setblocking(False)
        loop = asyncio.get_running_loop()
        return [await loop.sock_recv(client, 10) for client in clients]

    async def close(server: Any, clients: list[socket.socket]) -> None:
        for client in clients:
            client.close()
        server.close()
        await turns()

    server = threads.run(0, serve())
    address = server.sockets[0].getsockname()
    clients = [socket.create_connection(address) for _ in range(20)]
    for client in clients:
        client.sendall(b"ping")
    assert threads.run(1, answered(clients)) == [b"ping"] * 20
    threads.run(0, close(server, clients))


# --- connections ----------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "between", "after"])
def test_bytes_that_come_before_between_and_after(threads: Threads, when: str) -> None:
    ours, theirs = socket_pair()
    protocol = Recorder()
    sent = b"".join(b"%d " % number for number in range(500))

    def send() -> None:
        theirs.sendall(sent)
        theirs.shutdown(socket.SHUT_WR)

    async def begin() -> Any:
        transport, _ = await threads.loop.create_connection(lambda: protocol, sock=ours)
        await turns()
        if when == "before":
            send()
        return transport

    async def end() -> None:
        if when == "after":
            await turns()
            send()
        await support.wait_until(lambda: protocol.is_lost)

    transport = threads.run(0, begin())
    if when == "between":
        send()
    threads.run(1, end())
    assert bytes(protocol.data) == sent
    assert transport.is_closing()
    theirs.close()


def test_exchange_in_each_thread(threads: Threads) -> None:
    ours, theirs = socket_pair()
    reader: Any = None
    writer: Any = None

    async def begin() -> None:
        nonlocal reader, writer
        reader, writer = await asyncio.open_connection(sock=ours)
        await turns()

    async def exchange(number: int) -> None:
        theirs.sendall(b"%d\n" % number)
        assert await reader.readline() == b"%d\n" % number
        writer.write(b"%d\n" % number)
        await writer.drain()
        assert await asyncio.to_thread(theirs.recv, 100) == b"%d\n" % number

    async def close() -> None:
        writer.close()
        await writer.wait_closed()

    threads.run(0, begin())
    for number in range(20):
        threads.run(number % 3 % 2, exchange(number))
    threads.run(1, close())
    assert theirs.recv(100) == b"", "the end is sent at once"
    theirs.close()


def test_many_connections(threads: Threads) -> None:
    pairs = [socket_pair() for _ in range(150)]
    streams: list[Any] = []

    async def begin() -> None:
        for ours, _ in pairs:
            streams.append(await asyncio.open_connection(sock=ours))
        await turns()

    async def exchange() -> None:
        for number, (_, theirs) in enumerate(pairs):
            theirs.sendall(b"%d\n" % number)
        for number, (reader, writer) in enumerate(streams):
            assert await reader.readline() == b"%d\n" % number
            writer.close()
        await turns()

    threads.run(0, begin())
    threads.run(1, exchange())
    for _, theirs in pairs:
        assert theirs.recv(1) == b""
        theirs.close()


def test_send_that_waits_for_room_loses_nothing(threads: Threads) -> None:
    ours, theirs = socket_pair()
    received = bytearray()

    async def begin() -> Any:
        _, writer = await asyncio.open_connection(sock=ours)
        writer.write(LONG)
        await turns()
        return writer

    async def end(writer: Any) -> None:
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    def receive() -> None:
        while part := theirs.recv(1 << 16):
            received.extend(part)

    writer = threads.run(0, begin())
    # Some room between the runs, so that the kernel could go on.
    received.extend(theirs.recv(1 << 16))
    thread = threading.Thread(target=receive)
    thread.start()
    threads.run(1, end(writer))
    thread.join(support.PATIENCE_SECONDS)
    assert received == LONG
    theirs.close()


def test_paused_transport_goes_on(threads: Threads) -> None:
    ours, theirs = socket_pair()
    protocol = Recorder()

    async def begin() -> Any:
        transport, _ = await threads.loop.create_connection(lambda: protocol, sock=ours)
        transport.pause_reading()
        theirs.sendall(b"there")
        await turns()
        return transport

    async def end(transport: Any) -> None:
        await turns()
        assert not protocol.data
        transport.resume_reading()
        await support.wait_until(lambda: bytes(protocol.data) == b"there")
        transport.abort()
        await turns()

    threads.run(1, end(threads.run(0, begin())))
    theirs.close()


def test_tls_connection(threads: Threads, certificates: Certificates) -> None:
    opened = contextlib.AsyncExitStack()
    protocol = Recorder()

    async def begin() -> tuple[Any, Any]:
        ends = await opened.enter_async_context(connected_tls(protocol, certificates))
        await turns()
        return ends

    async def exchange(transport: Any, peer: Any) -> None:
        transport.write(LONG)
        assert await peer.receive_tls(len(LONG)) == LONG
        await peer.send_tls(b"there")
        await support.wait_until(lambda: bytes(protocol.data) == b"there")

    threads.run(1, exchange(*threads.run(0, begin())))
    threads.run(0, opened.aclose())


# --- what else waits in the kernel ----------------------------------------------------------------


def test_datagrams(threads: Threads) -> None:
    received: list[bytes] = []

    class Protocol(asyncio.DatagramProtocol):
        def datagram_received(self, data: bytes, _addr: Any) -> None:
            received.append(data)

    async def begin() -> Any:
        transport, _ = await threads.loop.create_datagram_endpoint(
            Protocol, local_addr=("127.0.0.1", 0)
        )
        await turns()
        return transport

    async def end(transport: Any, other: socket.socket) -> None:
        await support.wait_until(lambda: received == [b"one", b"two"])
        transport.sendto(b"three", other.getsockname())
        transport.close()
        await turns()

    transport = threads.run(0, begin())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        other.settimeout(10)
        for data in (b"one", b"two"):
            other.sendto(data, transport.get_extra_info("sockname"))
        threads.run(1, end(transport, other))
        assert other.recv(100) == b"three"


def test_pipes(threads: Threads) -> None:
    (read_end, far_write_end), (far_read_end, write_end) = os.pipe(), os.pipe()
    reader: Any = None

    async def begin() -> tuple[Any, Any]:
        nonlocal reader
        reader = asyncio.StreamReader()
        loop = threads.loop
        reading, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", 0)
        )
        writing, _ = await loop.connect_write_pipe(asyncio.Protocol, os.fdopen(write_end, "wb", 0))
        writing.write(bytes(100_000))
        await turns()
        return reading, writing

    async def end(reading: Any, writing: Any) -> int:
        assert await reader.readexactly(5) == b"there"
        count = len(await asyncio.to_thread(read_all))
        reading.close()
        writing.close()
        await turns()
        return count

    def read_all() -> bytes:
        received = b""
        while len(received) < 100_000:
            received += os.read(far_read_end, 100_000)
        return received

    transports = threads.run(0, begin())
    os.write(far_write_end, b"there")
    assert threads.run(1, end(*transports)) == 100_000
    os.close(far_write_end)
    os.close(far_read_end)


@pytest.mark.skipif(
    sys.version_info < (3, 12), reason="asyncio's watcher of children belongs to the main thread"
)
def test_children(threads: Threads) -> None:
    async def begin() -> Any:
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec("cat", stdin=pipe, stdout=pipe)
        await turns()
        return child

    async def end(child: Any) -> None:
        out, _ = await child.communicate(b"there")
        assert (out, child.returncode) == (b"there", 0)

    threads.run(1, end(threads.run(0, begin())))


def test_waits_of_tasks(threads: Threads) -> None:
    """Tasks that wait across the runs: a receive, an accept, a watcher, a timer."""
    ours, theirs = socket_pair()
    watched, far = socket_pair()
    listener = socket.create_server(("127.0.0.1", 0))
    for waiting in (ours, watched, listener):
        waiting.setblocking(False)
    calls: list[bytes] = []

    async def begin() -> list[asyncio.Task[Any]]:
        loop = asyncio.get_running_loop()
        loop.add_reader(watched, lambda: calls.append(watched.recv(10)))
        waits = (loop.sock_recv(ours, 10), loop.sock_accept(listener), asyncio.sleep(0.05, "late"))
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        # Longer than a wait is brief.
        await asyncio.sleep(0.02)
        return tasks

    async def end(tasks: list[asyncio.Task[Any]]) -> None:
        theirs.send(b"there")
        far.send(b"seen")
        with socket.create_connection(listener.getsockname()):
            received, (accepted, _), late = await asyncio.gather(*tasks)
        accepted.close()
        assert (received, late) == (b"there", "late")
        await support.wait_until(lambda: calls == [b"seen"])
        asyncio.get_running_loop().remove_reader(watched)

    threads.run(1, end(threads.run(0, begin())))
    for used in (ours, theirs, watched, far, listener):
        used.close()


def test_connection_is_closed_between_the_runs(threads: Threads) -> None:
    ours, theirs = socket_pair()
    protocol = Recorder()

    async def begin() -> Any:
        transport, _ = await threads.loop.create_connection(lambda: protocol, sock=ours)
        await turns()
        return transport

    transport = threads.run(0, begin())
    transport.close()
    threads.run(1, support.wait_until(lambda: protocol.is_lost))
    theirs.settimeout(10)
    assert theirs.recv(1) == b""
    theirs.close()


def test_loop_with_connections_is_closed_after_its_thread(loop_factory: LoopFactory) -> None:
    loop = loop_factory()
    ours, theirs = socket_pair()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    connecting = loop.create_connection(asyncio.Protocol, sock=ours)
    transport: Any = asyncio.run_coroutine_threadsafe(connecting, loop).result(10)[0]
    loop.call_soon_threadsafe(loop.stop)
    thread.join(support.PATIENCE_SECONDS)
    began = time.monotonic()
    transport.abort()
    loop.run_until_complete(turns())
    loop.close()
    assert time.monotonic() - began < 5
    theirs.settimeout(10)
    assert theirs.recv(1) == b""
    theirs.close()
