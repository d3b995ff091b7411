"""Tasks that wait: for `sock_*` calls, for streams, for connections.

Each task records its progress before anything can be injected; its replacement continues from there.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import os
import socket
import tempfile
import termios
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.injection.talks import PATTERN

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.injection.run import Run


def unread(sock: socket.socket) -> int:
    """Number of unread bytes in the kernel."""
    count = array.array("i", [0])
    fcntl.ioctl(sock, termios.FIONREAD, count)
    return count[0]


class SocketBytes:
    """`sock_sendall` on one socket, `sock_recv` and `sock_recv_into` on the other."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.total = run.rng.choice((1, 5000, 300_000))
        self.sent = self.received = 0
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.theirs.setblocking(False)
        self.left = 2
        run.begin(self, "sock bytes")
        run.work(self.send, self.ended)
        run.work(self.receive, self.ended)

    def __repr__(self) -> str:
        return f"<sock bytes sent {self.sent} received {self.received} of {self.total}>"

    async def send(self) -> None:
        while self.sent < self.total:
            start = self.sent
            count = min(self.total - start, self.run.rng.choice((1, 100, 10_000, 300_000)))
            try:
                await self.run.loop.sock_sendall(self.ours, PATTERN[start : start + count])
            except asyncio.CancelledError:
                # Nothing is in flight any more: what has been sent can be received.
                self.sent = self.received + unread(self.theirs)
                self.run.check(
                    start <= self.sent <= start + count, f"sent {count} from {start} on: {self}"
                )
                raise
            self.sent = start + count
            self.run.point()

    async def receive(self) -> None:
        loop = self.run.loop
        while self.received < self.total:
            size = self.run.rng.choice((1, 1000, 100_000))
            if self.run.rng.random() < 0.5:
                data = await loop.sock_recv(self.theirs, size)
            else:
                buffer = bytearray(size)
                data = bytes(buffer[: await loop.sock_recv_into(self.theirs, buffer)])
            end = self.received + len(data)
            self.run.check(
                data and PATTERN[self.received : end] == data, f"{len(data)} bytes: {self}"
            )
            self.received = end
            self.run.point()

    def ended(self) -> None:
        self.left -= 1
        if not self.left:
            self.ours.close()
            self.theirs.close()
            self.run.finish(self)


class SocketMessages:
    """`sock_sendto` and `sock_recvfrom`, one message after the other."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.total = run.rng.choice((1, 10, 60))
        self.sent = self.received = 0
        self.folder = tempfile.TemporaryDirectory()
        self.address = os.path.join(self.folder.name, "socket")
        self.ours, self.theirs = (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2)
        )
        self.theirs.bind(self.address)
        self.ours.setblocking(False)
        self.theirs.setblocking(False)
        self.left = 2
        run.begin(self, "sock messages")
        run.work(self.send, self.ended)
        run.work(self.receive, self.ended)

    def __repr__(self) -> str:
        return f"<sock messages sent {self.sent} received {self.received} of {self.total}>"

    async def send(self) -> None:
        while self.sent < self.total:
            # A message of a cancelled task may have been sent or not: its number tells.
            message = self.sent.to_bytes(4, "big") * self.run.rng.choice((1, 100))
            await self.run.loop.sock_sendto(self.ours, message, self.address)
            self.sent += 1
            self.run.point()

    async def receive(self) -> None:
        while self.received < self.total:
            data, _ = await self.run.loop.sock_recvfrom(self.theirs, 1000)
            number = int.from_bytes(data[:4], "big")
            again = self.run.kind == "cancel" and number == self.received - 1
            self.run.check(number == self.received or again, f"message {number}: {self}")
            self.received = number + 1
            self.run.point()

    def ended(self) -> None:
        self.left -= 1
        if not self.left:
            self.ours.close()
            self.theirs.close()
            self.folder.cleanup()
            self.run.finish(self)


class SocketConnections:
    """`sock_accept` gets every connection that `sock_connect` opens, with its bytes."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.total = run.rng.choice((1, 5, 15))
        self.made = 0
        self.seen: list[int] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.accepted: socket.socket | None = None
        self.left = 2
        run.begin(self, "sock connections")
        run.work(self.connect, self.ended)
        # asyncio forgets an accepted connection if the task is cancelled (`InvalidStateError`).
        run.work(self.accept, self.ended, whole=run.is_oracle)

    def __repr__(self) -> str:
        return f"<sock connections made {self.made} seen {self.seen} of {self.total}>"

    async def connect(self) -> None:
        while self.made < self.total:
            with socket.socket() as sock:
                sock.setblocking(False)
                await self.run.loop.sock_connect(sock, self.listener.getsockname())
                # The socket's buffer is empty, so this never blocks.
                sock.send(bytes([self.made]))
            self.made += 1
            self.run.point()

    async def accept(self) -> None:
        loop = self.run.loop
        while len(self.seen) < self.total:
            if self.accepted is None:
                self.accepted, _ = await loop.sock_accept(self.listener)
                self.run.point()
            data = await loop.sock_recv(self.accepted, 10)
            # A connection whose task was cancelled during connect sends nothing.
            self.run.check(
                data == bytes([len(self.seen)]) or (not data and self.run.kind == "cancel"),
                f"{data!r}: {self}",
            )
            self.accepted.close()
            self.accepted = None
            if data:
                self.seen.append(data[0])
            self.run.point()

    def ended(self) -> None:
        self.left -= 1
        if not self.left:
            self.listener.close()
            self.run.finish(self)


class Streams:
    """asyncio's readers and writers, over Unix sockets, TCP and TLS."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.how = run.rng.choice(("unix", "tcp", "tls"))
        self.total = run.rng.choice((1, 3000, 200_000))
        self.sent, self.received = [0, 0], [0, 0]
        self.streams: list[Any] = [None, None]
        self.server: Any = None
        self.left = 4
        run.begin(self, f"{self.how} streams")
        run.work(self.connect, lambda: None, whole=True)

    def __repr__(self) -> str:
        return f"<{self.how} streams sent {self.sent} received {self.received} of {self.total}>"

    async def connect(self) -> None:
        run = self.run
        if self.how == "unix":
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "socket")
                self.server = await asyncio.start_unix_server(self.accepted, path)
                self.begin(0, *await asyncio.open_unix_connection(path))
            return
        server_context = run.server_context if self.how == "tls" else None
        context = run.client_context if self.how == "tls" else None
        self.server = await asyncio.start_server(self.accepted, "127.0.0.1", 0, ssl=server_context)
        port = self.server.sockets[0].getsockname()[1]
        name = "localhost" if context else None
        streams = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname=name
        )
        self.begin(0, *streams)

    def accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.begin(1, reader, writer)

    def begin(self, end: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.streams[end] = (reader, writer)
        self.run.work(partial(self.write, end, writer), self.ended)
        self.run.work(partial(self.read, end, reader), self.ended)

    async def write(self, end: int, writer: asyncio.StreamWriter) -> None:
        while self.sent[end] < self.total:
            start = self.sent[end]
            count = min(self.total - start, self.run.rng.choice((1, 100, 10_000, 100_000)))
            self.sent[end] += count
            writer.write(PATTERN[start : start + count])
            self.run.point()
            await writer.drain()
            self.run.point()

    async def read(self, end: int, reader: asyncio.StreamReader) -> None:
        while self.received[end] < self.total:
            start = self.received[end]
            size = self.run.rng.choice((1, 100, 10_000))
            if self.run.rng.random() < 0.5:
                data = await reader.readexactly(min(size, self.total - start))
            else:
                data = await reader.read(size)
            self.received[end] += len(data)
            self.run.check(
                data and PATTERN[start : start + len(data)] == data, f"{len(data)}: {self}"
            )
            self.run.point()

    def ended(self) -> None:
        self.left -= 1
        if self.left:
            return
        self.server.close()
        for _, writer in self.streams:
            writer.close()
        self.left = 2
        for end in (0, 1):
            # Cancelling the wait ends it for all waiters (`StreamReaderProtocol._closed`).
            self.run.work(partial(self.closed, end), self.lost, whole=True)

    async def closed(self, end: int) -> None:
        await self.streams[end][1].wait_closed()
        self.run.point()

    def lost(self) -> None:
        self.left -= 1
        if not self.left:
            self.run.finish(self)


class Attempts:
    """Connections cancelled while they are opened: each established one must be lost."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.rounds = run.rng.choice((1, 4, 8))
        self.open = 0
        self.context = run.rng.random() < 0.5
        self.server: Any = None
        run.begin(self, "attempts")
        run.work(self.listen, self.listening, whole=True)

    def __repr__(self) -> str:
        return f"<attempts {self.rounds} left, {self.open} open>"

    async def listen(self) -> None:
        context = self.run.server_context if self.context else None
        self.server = await self.run.loop.create_server(
            lambda: _Counted(self), "127.0.0.1", 0, ssl=context
        )

    def listening(self) -> None:
        self.run.work(self.attempt, self.ended)

    async def attempt(self) -> None:
        loop = self.run.loop
        while self.rounds:
            self.rounds -= 1
            port = self.server.sockets[0].getsockname()[1]
            context = self.run.client_context if self.context else None
            name = "localhost" if context else None
            with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
                transport, _ = await asyncio.wait_for(
                    loop.create_connection(
                        lambda: _Counted(self), "127.0.0.1", port, ssl=context, server_hostname=name
                    ),
                    self.run.rng.choice((0.0005, 0.002, 20.0)),
                )
                transport.close()
            self.run.point()

    def ended(self) -> None:
        self.server.close()
        self.run.work(self.drain, lambda: self.run.finish(self), whole=True)

    async def drain(self) -> None:
        """Wait until the peers of the cancelled connections have noticed."""
        while self.open or self.accepting():  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    def accepting(self) -> bool:
        """Whether the server has connections that are still handshaking."""
        return any(
            task.get_coro().__qualname__.endswith("_accept_connection2")  # type: ignore[union-attr]
            for task in asyncio.all_tasks()
        ) or bool(self.run.transports())


class _Counted(asyncio.Protocol):
    def __init__(self, attempts: Attempts) -> None:
        self.attempts = attempts

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.attempts.open += 1
        self.attempts.run.point()

    def connection_lost(self, error: Exception | None) -> None:
        self.attempts.open -= 1
        self.attempts.run.point()


PARTS: tuple[Callable[[Run], object], ...] = (
    SocketBytes,
    SocketMessages,
    SocketConnections,
    Streams,
    Streams,
)
ATTEMPTS = Attempts
