"""Shared by the TCP tests: a recording protocol, and a connection to a plain socket.

The peer is an ordinary non-blocking `socket.socket`, driven by the test itself, so that the test
sees what is on the wire, independent of any transport.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
import socket
import struct
from typing import TYPE_CHECKING, Any

from tests import support

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

# Small kernel buffers: keeps "more than the kernel takes" cheap.
SOCKET_BUFFER_BYTES = 32 * 1024
MORE_THAN_THE_KERNEL_TAKES = 4 << 20


class Recorder(asyncio.Protocol):
    """Records each callback by name, with its data."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.data = bytearray()
        self.chunks: list[bytes] = []
        self.transport: Any = None
        self.reason: BaseException | None = None
        self.keep_open_after_eof = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.note("connection_made")

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.chunks.append(data)
        # How the data was split depends on the kernel.
        if not self.events or self.events[-1] != "data_received":
            self.note("data_received")

    def eof_received(self) -> bool:
        self.note("eof_received")
        return self.keep_open_after_eof

    def pause_writing(self) -> None:
        self.note("pause_writing")

    def resume_writing(self) -> None:
        self.note("resume_writing")

    def connection_lost(self, exc: Exception | None) -> None:
        self.reason = exc
        self.note("connection_lost")

    def note(self, event: str) -> None:
        self.events.append(event)

    @property
    def is_lost(self) -> bool:
        return "connection_lost" in self.events

    async def until_lost(self) -> None:
        await support.wait_until(lambda: self.is_lost, "connection_lost")


class Peer:
    """The plain end of a connection."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock

    async def send(self, data: bytes) -> None:
        """Send everything, running the loop while the kernel's buffer is full."""
        view = memoryview(data)
        while view:
            try:
                view = view[self.sock.send(view) :]
            except BlockingIOError:
                await asyncio.sleep(0.001)

    def received(self) -> bytes | None:
        """Read what has arrived; None: nothing yet, b"": EOF."""
        try:
            return self.sock.recv(1 << 20)
        except BlockingIOError:
            return None

    async def receive(self, count: int) -> bytes:
        """Receive exactly `count` bytes."""
        data = bytearray()

        def complete() -> bool:
            while len(data) < count and (chunk := self.received()) is not None:
                assert chunk, f"the stream ended after {len(data)} of {count} bytes"
                data.extend(chunk)
            return len(data) >= count

        await support.wait_until(complete, f"{count} bytes", timeout=30)
        return bytes(data)

    async def receive_all(self) -> bytes:
        """Receive everything until EOF."""
        data = bytearray()

        def complete() -> bool:
            while (chunk := self.received()) is not None:
                if not chunk:
                    return True
                data.extend(chunk)
            return False

        await support.wait_until(complete, "the end of the stream", timeout=30)
        return bytes(data)

    def shut_down(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.sock.close()

    def reset(self) -> None:
        """Close with RST instead of FIN."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


def socket_pair(buffer_bytes: int | None = None) -> tuple[socket.socket, socket.socket]:
    """Create two connected TCP sockets."""
    # With the protocol number, as from getaddrinfo(): asyncio checks it.
    kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    with socket.socket(*kind) as listening:
        if buffer_bytes is not None:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        ours = socket.socket(*kind)
        if buffer_bytes is not None:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        ours.connect(listening.getsockname())
        theirs, _ = listening.accept()
        # Small messages of the test must not wait for acknowledgements of earlier ones.
        theirs.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if buffer_bytes is not None:
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
    ours.setblocking(False)
    return ours, theirs


@contextlib.asynccontextmanager
async def connected(
    protocol: asyncio.BaseProtocol, buffer_bytes: int | None = None
) -> AsyncIterator[tuple[Any, Peer]]:
    """Connect `protocol`; close both ends afterwards, and wait for `connection_lost`."""
    ours, theirs = socket_pair(buffer_bytes)
    peer = Peer(theirs)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
    try:
        yield transport, peer
    finally:
        peer.close()
        if transport.get_extra_info("socket").fileno() != -1:
            transport.abort()
        await closed(transport)


async def closed(transport: Any) -> None:
    """Wait until the transport has released its socket."""
    await support.wait_until(
        lambda: transport.get_extra_info("socket").fileno() == -1, "the socket to be closed"
    )


@contextlib.asynccontextmanager
async def serving(
    factory: Callable[[], asyncio.BaseProtocol], **arguments: Any
) -> AsyncIterator[tuple[asyncio.Server, tuple[str, int]]]:
    """Serve on a free port of 127.0.0.1."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(factory, "127.0.0.1", 0, **arguments)
    try:
        yield server, server.sockets[0].getsockname()
    finally:
        server.close()
        await support.within(server.wait_closed())


@contextlib.contextmanager
def exceptions_of(loop: asyncio.AbstractEventLoop) -> Any:
    """Collect the contexts passed to the loop's exception handler."""
    contexts: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _loop, context: contexts.append(context))
    try:
        yield contexts
    finally:
        loop.set_exception_handler(None)


def pattern(count: int, seed: int = 0) -> bytes:
    """Bytes that show any lost, repeated or swapped part; a longer one begins with a shorter one."""
    # Whole words of the generator.
    return random.Random(seed).randbytes(-(-count // 4) * 4)[:count]


class Echo(Recorder):
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.write(data)


class Factory:
    """Creates protocols and keeps them."""

    def __init__(self, kind: type[Recorder] = Echo) -> None:
        self.kind = kind
        self.made: list[Recorder] = []

    def __call__(self) -> Recorder:
        self.made.append(self.kind())
        return self.made[-1]

    async def connections(self, count: int) -> list[Recorder]:
        """Wait until `count` are connected."""
        await support.wait_until(
            lambda: sum(bool(protocol.events) for protocol in self.made) >= count,
            f"{count} connections",
        )
        return self.made


async def ask(address: Any, question: bytes = b"ping") -> bytes:
    """Connect, send, and return what the server echoes."""
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


async def a_few_turns() -> None:
    """Give data that is already in the kernel every chance to be delivered."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for _ in range(5):
            readable = asyncio.Event()
            loop.add_reader(ours, readable.set)
            theirs.send(b"x")
            await readable.wait()
            loop.remove_reader(ours)
            ours.recv(1)
