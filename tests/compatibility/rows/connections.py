"""Stream and datagram connections: transports and protocols."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import TYPE_CHECKING, Any

from tests.compatibility.registry import Group, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.compatibility.registry import Probe

group = Group("Connections")


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


async def ask(host: Any, port: Any, **arguments: Any) -> asyncio.StreamWriter:
    reader, writer = await asyncio.open_connection(host, port, **arguments)
    writer.write(b"ping")
    assert await reader.readexactly(4) == b"ping"
    return writer


@contextlib.asynccontextmanager
async def open_server(server: Any) -> AsyncIterator[Any]:
    """Close a server at the end; `async with server` is a row of its own."""
    before = asyncio.all_tasks()
    try:
        yield server
    finally:
        server.close()
    # Its handlers have seen EOF.
    await until(lambda: asyncio.all_tasks() <= before)
    await asyncio.sleep(0.01)


def open_pipe() -> tuple[Any, Any]:
    read_end, write_end = os.pipe()
    return os.fdopen(read_end, "rb"), os.fdopen(write_end, "wb")


async def end(writer: asyncio.StreamWriter) -> None:
    writer.close()
    await writer.wait_closed()


connection = group.row("create_connection")


@connection
def talks(probe: Probe) -> None:
    async def main() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with open_server(server):
            await end(await ask(*server.sockets[0].getsockname()))

    probe.run(main)


@connection
def takes_a_socket_and_a_local_address(probe: Probe) -> None:
    async def main() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with open_server(server):
            address = server.sockets[0].getsockname()
            sock = socket.create_connection(address)
            sock.setblocking(False)
            await end(await ask(None, None, sock=sock))
            writer = await ask(*address, local_addr=("127.0.0.2", 0))
            assert writer.get_extra_info("sockname")[0] == "127.0.0.2"
            await end(writer)

    probe.run(main)


@connection
def refused_connection_keeps_its_errno(probe: Probe) -> None:
    async def main() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            try:
                await asyncio.open_connection(*unused.getsockname())
            except ConnectionRefusedError as error:
                assert error.errno is not None
            else:
                raise AssertionError("connected to nobody")

    probe.run(main)


eyeballs = group.row("create_connection: happy_eyeballs_delay, interleave")


@eyeballs
def are_accepted(probe: Probe) -> None:
    async def main() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with open_server(server):
            port = server.sockets[0].getsockname()[1]
            await end(await ask("localhost", port, happy_eyeballs_delay=0.1, interleave=1))

    probe.run(main)


all_errors = group.row("create_connection: all_errors", since=(3, 12))


@all_errors
def raises_a_group(probe: Probe) -> None:
    async def main() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            try:
                await asyncio.open_connection(*unused.getsockname(), all_errors=True)
            except ExceptionGroup as raised:
                assert all(isinstance(error, OSError) for error in raised.exceptions)
            else:
                raise AssertionError("connected to nobody")

    probe.run(main)


unix = group.row("create_unix_connection, create_unix_server")


async def exchange_at(path: str) -> None:
    server = await asyncio.start_unix_server(echo, path)
    async with open_server(server):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"ping")
        assert await reader.readexactly(4) == b"ping"
        await end(writer)


@unix
def path(probe: Probe) -> None:
    probe.run(lambda: exchange_at(str(probe.folder / "socket")))


@unix
def abstract_name(probe: Probe) -> None:
    probe.run(lambda: exchange_at(f"\0ringloop-matrix-{os.getpid()}"))


accepted = group.row("connect_accepted_socket")


@accepted
def serves_an_accepted_socket(probe: Probe) -> None:
    class Greeting(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            transport.write(b"hello")
            transport.close()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with theirs:
            theirs.setblocking(False)
            await loop.connect_accepted_socket(Greeting, ours)
            reader, writer = await asyncio.open_connection(sock=theirs)
            assert await reader.read() == b"hello"
            await end(writer)

    probe.run(main)


datagrams = group.row("create_datagram_endpoint")


class Answer(asyncio.DatagramProtocol):
    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        self.transport.sendto(data.upper(), address)


class Collect(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.got: asyncio.Queue[bytes] = asyncio.Queue()
        self.errors: asyncio.Queue[Exception] = asyncio.Queue()

    def datagram_received(self, data: bytes, address: Any) -> None:
        self.got.put_nowait(data)

    def error_received(self, error: Exception) -> None:
        self.errors.put_nowait(error)


async def answered(texts: list[bytes]) -> None:
    loop = asyncio.get_running_loop()
    server, _ = await loop.create_datagram_endpoint(Answer, local_addr=("127.0.0.1", 0))
    client, collected = await loop.create_datagram_endpoint(
        Collect, remote_addr=server.get_extra_info("sockname")
    )
    for text in texts:
        client.sendto(text)
        assert await collected.got.get() == text.upper()
    client.close()
    server.close()
    await asyncio.sleep(0.01)


@datagrams
def udp(probe: Probe) -> None:
    probe.run(lambda: answered([b"one", b"two"]))


empty = group.row("empty datagrams", since=(3, 13))


@empty
def empty_datagrams(probe: Probe) -> None:
    probe.run(lambda: answered([b""]))


@datagrams
def unix_datagrams(probe: Probe) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server, _ = await loop.create_datagram_endpoint(
            Answer, local_addr=str(probe.folder / "server"), family=socket.AF_UNIX
        )
        client, collected = await loop.create_datagram_endpoint(
            Collect,
            local_addr=str(probe.folder / "client"),
            remote_addr=str(probe.folder / "server"),
            family=socket.AF_UNIX,
        )
        client.sendto(b"one")
        assert await collected.got.get() == b"ONE"
        client.close()
        server.close()
        await asyncio.sleep(0.01)

    probe.run(main)


@datagrams
def refusal_reaches_error_received(probe: Probe) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with socket.socket(type=socket.SOCK_DGRAM) as deaf:
            # Keeps the port, and receives only from its connected peer.
            deaf.bind(("127.0.0.1", 0))
            deaf.connect(("127.0.0.1", 9))
            address = deaf.getsockname()
            client, collected = await loop.create_datagram_endpoint(Collect, remote_addr=address)
            client.sendto(b"anybody?")
            assert isinstance(await collected.errors.get(), ConnectionRefusedError)
            client.close()
            await asyncio.sleep(0.01)

    probe.run(main)


pipes = group.row("connect_read_pipe, connect_write_pipe")


@pipes
def bytes_go_through(probe: Probe) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        read_end, write_end = open_pipe()
        reader = asyncio.StreamReader()
        incoming, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), read_end
        )
        outgoing, _ = await loop.connect_write_pipe(asyncio.Protocol, write_end)
        outgoing.write(b"x" * 1_000_000)
        outgoing.close()
        assert len(await reader.read()) == 1_000_000
        incoming.close()
        await asyncio.sleep(0.01)

    probe.run(main)


kinds = group.row("transports are asyncio.Transport, DatagramTransport …")


@kinds
def stream(probe: Probe) -> None:
    async def main() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with open_server(server):
            writer = await ask(*server.sockets[0].getsockname())
            assert isinstance(writer.transport, asyncio.Transport)
            await end(writer)

    probe.run(main)


@kinds
def datagram(probe: Probe) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(Collect, local_addr=("127.0.0.1", 0))
        assert isinstance(transport, asyncio.DatagramTransport)
        transport.close()
        await asyncio.sleep(0.01)

    probe.run(main)


@kinds
def pipe(probe: Probe) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        read_end, write_end = open_pipe()
        incoming, _ = await loop.connect_read_pipe(asyncio.Protocol, read_end)
        outgoing, _ = await loop.connect_write_pipe(asyncio.Protocol, write_end)
        assert isinstance(incoming, asyncio.ReadTransport)
        assert isinstance(outgoing, asyncio.WriteTransport)
        incoming.close()
        outgoing.close()
        await asyncio.sleep(0.01)

    probe.run(main)


marks = group.row("_start_tls_compatible, _sendfile_compatible on transports")


@marks
def exist(probe: Probe) -> None:
    async def main() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with open_server(server):
            writer = await ask(*server.sockets[0].getsockname())
            transport: Any = writer.transport
            assert transport._start_tls_compatible is True
            assert transport._sendfile_compatible is not None
            await end(writer)

    probe.run(main)


late = group.row("write after close is silent, connection_lost is called once")


@late
def nothing_raises(probe: Probe) -> None:
    class Counting(asyncio.Protocol):
        lost = 0

        def connection_lost(self, exc: Exception | None) -> None:
            self.lost += 1

    async def main() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            transport, protocol = await loop.create_connection(Counting, sock=ours)
            transport.close()
            transport.write(b"late")
            transport.close()
            transport.abort()
            await until(lambda: protocol.lost)
            transport.write(b"later")
            await asyncio.sleep(0.02)
            assert protocol.lost == 1

    probe.run(main)


flow = group.row("pause_reading holds back data, pause_writing limits the buffer")


@flow
def reading(probe: Probe) -> None:
    class Collecting(asyncio.Protocol):
        got = b""

        def data_received(self, data: bytes) -> None:
            self.got += data

    async def main() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            transport, protocol = await loop.create_connection(Collecting, sock=ours)
            transport.pause_reading()
            theirs.send(b"held")
            await asyncio.sleep(0.02)
            assert protocol.got == b""
            transport.resume_reading()
            await until(lambda: protocol.got)
            assert protocol.got == b"held"
            transport.close()
            await asyncio.sleep(0.01)

    probe.run(main)


@flow
def writing(probe: Probe) -> None:
    class Noting(asyncio.Protocol):
        def __init__(self) -> None:
            self.events: list[str] = []

        def pause_writing(self) -> None:
            self.events.append("pause")

        def resume_writing(self) -> None:
            self.events.append("resume")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            theirs.setblocking(False)
            transport, protocol = await loop.create_connection(Noting, sock=ours)
            transport.set_write_buffer_limits(high=1000, low=100)
            transport.write(b"x" * 4_000_000)
            assert protocol.events == ["pause"]
            assert transport.get_write_buffer_size() > 1000
            while protocol.events == ["pause"]:
                try:
                    theirs.recv(1 << 20)
                except BlockingIOError:
                    await asyncio.sleep(0.001)
            assert protocol.events == ["pause", "resume"]
            transport.abort()
            await asyncio.sleep(0.01)

    probe.run(main)


half = group.row("half close: write_eof, eof_received() that returns true")


@half
def answer_after_the_end_of_the_request(probe: Probe) -> None:
    class Late(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def eof_received(self) -> bool:
            asyncio.get_running_loop().call_later(0.005, self.answer)
            return True

        def answer(self) -> None:
            self.transport.write(b"answer")
            self.transport.close()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Late, "127.0.0.1", 0)
        async with open_server(server):
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write_eof()
            assert await reader.read() == b"answer"
            await end(writer)

    probe.run(main)


buffered = group.row("BufferedProtocol")


@buffered
def fills_the_protocols_buffer(probe: Probe) -> None:
    expected = bytes(range(256)) * 20

    class Into(asyncio.BufferedProtocol):
        def __init__(self) -> None:
            self.buffer = bytearray(1000)
            self.got = b""
            self.is_complete = asyncio.Event()

        def get_buffer(self, sizehint: int) -> bytearray:
            return self.buffer

        def buffer_updated(self, nbytes: int) -> None:
            self.got += self.buffer[:nbytes]
            if len(self.got) >= len(expected):
                self.is_complete.set()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            transport, protocol = await loop.create_connection(Into, sock=ours)
            theirs.send(expected)
            await protocol.is_complete.wait()
            assert protocol.got == expected
            transport.close()
            await asyncio.sleep(0.01)

    probe.run(main)
