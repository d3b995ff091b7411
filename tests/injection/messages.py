"""Datagrams, one by one and in order, and descriptors watched by the application."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.injection.run import Run

# Messages in flight: a socket's buffer has room for them.
_WINDOW = 8


class Datagrams:
    """Numbered messages in one direction, and an answer to each in the other."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.is_unix = run.rng.random() < 0.5
        self.messages = run.rng.choice((1, 20, 100))
        self.sender, self.receiver = _Numbered(self), _Numbered(self)
        self.sent = self.answered = 0
        self.folder: tempfile.TemporaryDirectory[str] | None = None
        self.left = 2
        run.begin(self, "datagrams")
        run.work(self.connect, self.fill, whole=True)

    def __repr__(self) -> str:
        return f"<datagrams sent {self.sent}/{self.messages} {self.receiver.count} {self.sender.count}>"

    async def connect(self) -> None:
        if not self.is_unix:
            await self.connect_to(("127.0.0.1", 0), None)
            return
        self.folder = tempfile.TemporaryDirectory()
        ours, theirs = (os.path.join(self.folder.name, name) for name in ("ours", "theirs"))
        await self.connect_to(theirs, ours)

    async def connect_to(self, to: Any, own: Any) -> None:
        loop = self.run.loop
        family = socket.AF_UNIX if self.is_unix else socket.AF_INET
        transport, _ = await loop.create_datagram_endpoint(
            lambda: self.receiver, local_addr=to, family=family
        )
        # Received messages wait in the socket until the address for the answers is known.
        to = transport.get_extra_info("sockname")
        await loop.create_datagram_endpoint(
            lambda: self.sender, local_addr=own, remote_addr=to, family=family
        )

    def fill(self) -> None:
        """Send as many as may be in flight."""
        while self.sent < self.messages and self.sent - self.sender.count < _WINDOW:
            number = self.sent
            self.sent += 1
            padding = bytes(self.run.rng.choice((0, 100, 100, 1000)))
            self.sender.transport.sendto(number.to_bytes(4, "big") + padding)

    def took(self, end: _Numbered, address: Any) -> None:
        if end is self.receiver:
            self.run.soon(self.answer, address)
        elif end.count == self.messages:
            self.run.soon(self.sender.transport.close)
            self.run.soon(self.receiver.transport.close)
        else:
            self.run.soon(self.fill)

    def answer(self, address: Any) -> None:
        self.answered += 1
        self.receiver.transport.sendto((self.answered - 1).to_bytes(4, "big"), address)

    def lost(self) -> None:
        self.left -= 1
        if not self.left:
            if self.folder is not None:
                self.folder.cleanup()
            self.run.finish(self)


class _Numbered(asyncio.DatagramProtocol):
    """Receives messages 0, 1, 2 …"""

    def __init__(self, datagrams: Datagrams) -> None:
        self.datagrams = datagrams
        self.run = datagrams.run
        self.count = 0
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.run.check(self.transport is None, "connection_made again")
        self.transport = transport
        self.run.point()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        number = int.from_bytes(data[:4], "big")
        self.run.check(number == self.count, f"message {number} after {self.count - 1}")
        self.count = number + 1
        self.datagrams.took(self, addr)
        self.run.point()

    def error_received(self, error: Exception) -> None:
        self.run.fault(f"error_received: {error!r}")

    def connection_lost(self, error: Exception | None) -> None:
        self.run.check(error is None, f"datagrams lost by {error!r}")
        self.datagrams.lost()
        self.run.point()


class Watched:
    """A descriptor that is written and read by the application's own callbacks."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.total = run.rng.choice((1, 50, 200))
        self.written = self.read = 0
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.theirs.setblocking(False)
        run.begin(self, "watchers")
        run.loop.add_writer(self.ours, self.may_write)
        run.loop.add_reader(self.theirs, self.may_read)

    def __repr__(self) -> str:
        return f"<watched written {self.written} read {self.read} of {self.total}>"

    def may_write(self) -> None:
        if self.written == self.total:
            self.run.loop.remove_writer(self.ours)
            return
        self.written += self.ours.send(bytes([self.written % 256]))
        self.run.point()

    def may_read(self) -> None:
        data = self.theirs.recv(self.run.rng.choice((1, 100)))
        self.run.check(
            data == bytes((self.read + index) % 256 for index in range(len(data))),
            f"{data!r}: {self}",
        )
        self.read += len(data)
        if self.read == self.total:
            self.run.loop.remove_reader(self.theirs)
            self.run.loop.remove_writer(self.ours)
            self.ours.close()
            self.theirs.close()
            self.run.finish(self)
        self.run.point()


PARTS: tuple[Callable[[Run], object], ...] = (Datagrams, Datagrams, Watched)
