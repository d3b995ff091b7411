"""Two protocols exchanging data over streams: TCP, TLS, Unix sockets, socket pairs, pipes.

Each side sends a number of bytes of one pattern and receives those of the other, whatever is injected
into its callbacks.
"""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.injection.run import Run

# No two positions look alike.
PATTERN = b"".join(number.to_bytes(4, "big") for number in range(150_000))
_SIZES = (0, 1, 300, 5000, 70_000, 400_000)


class Side:
    """One end of a talk: what it has sent and received, and its callbacks so far."""

    def __init__(self, talk: Talk, sends: int, receives: int) -> None:
        self.talk = talk
        self.run = talk.run
        self.sends, self.receives = sends, receives
        self.sent = self.received = 0
        self.state = "new"
        self.transport: Any = None
        self.ends = 0
        self.has_ended = self.is_paused = self.is_pumping = self.reads_paused = False

    def __repr__(self) -> str:
        return (
            f"<{self.talk.kind} {type(self).__name__} {self.state} sent {self.sent}/{self.sends}"
            f" received {self.received}/{self.receives} ends {self.ends} {self.is_paused=}"
            f" {self.is_pumping=} {self.reads_paused=} {self.transport!r}>"
        )

    def point(self) -> None:
        """Skipped where asyncio itself would hang: see `Talk`."""
        if not self.talk.is_spared:
            self.run.point()

    # --- callbacks of both directions -------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self.run.check(self.state == "new", f"connection_made again: {self}")
        self.state = "connected"
        self.transport = transport
        self.pump_soon()
        self.point()

    def connection_lost(self, error: Exception | None) -> None:
        self.run.check(self.state == "connected" and error is None, f"lost by {error!r}: {self}")
        self.run.check(self.is_done(), f"lost too early: {self}")
        self.state = "lost"
        self.talk.lost()
        self.point()

    def is_done(self) -> bool:
        return self.sent == self.sends and self.received == self.receives

    def settle(self) -> None:
        """Close once both directions are done; at random, send EOF before that."""
        if self.state != "connected" or self.sent < self.sends:
            return
        if self.received == self.receives:
            self.transport.close()
        elif self.talk.half_closes and not self.has_ended:
            self.has_ended = True
            self.transport.write_eof()

    # --- sending ----------------------------------------------------------------------------------

    def pump_soon(self) -> None:
        if not self.is_pumping:
            self.is_pumping = True
            self.run.soon(self.pump)

    def pump(self) -> None:
        self.is_pumping = False
        if self.is_paused or self.state != "connected":
            return
        count = min(self.sends - self.sent, self.talk.piece(self.run))
        piece = PATTERN[self.sent : self.sent + count]
        # An interrupt in `pause_writing` propagates out of `write`, which has accepted the bytes.
        self.sent += count
        if self.sent < self.sends:
            self.pump_soon()
        else:
            self.run.soon(self.settle)
        if count:
            self.write(piece)

    def write(self, piece: bytes) -> None:
        match self.run.rng.randrange(4):
            case 0:
                self.transport.write(piece)
            case 1:
                self.transport.write(bytearray(piece))
            case 2:
                self.transport.write(memoryview(piece))
            case _:
                half = len(piece) // 2
                if hasattr(self.transport, "writelines"):
                    self.transport.writelines([piece[:half], piece[half:]])
                else:
                    self.transport.write(piece)

    def pause_writing(self) -> None:
        self.run.check(not self.is_paused, f"pause_writing again: {self}")
        self.is_paused = True
        self.point()

    def resume_writing(self) -> None:
        self.run.check(self.is_paused, f"resume_writing again: {self}")
        self.is_paused = False
        if self.sent < self.sends:
            self.pump_soon()
        if not self.run.is_oracle:
            # asyncio asserts that there is something to be sent when the callback returns.
            self.point()

    # --- receiving --------------------------------------------------------------------------------

    def take(self, data: bytes | memoryview) -> None:
        end = self.received + len(data)
        if self.state != "connected" or PATTERN[self.received : end] != data or end > self.receives:
            self.run.fault(f"{len(data)} wrong bytes at {self.received}: {self}")
            return
        self.received = end
        if not data or self.reads_paused:
            self.run.fault(f"{len(data)} bytes while paused: {self}")
        if end == self.receives:
            self.run.soon(self.settle)
        elif self.run.rng.random() < 0.1:
            self.reads_paused = True
            self.transport.pause_reading()
            self.run.soon(self.resume)
        self.point()

    def resume(self) -> None:
        self.reads_paused = False
        self.transport.resume_reading()

    def eof_received(self) -> bool:
        self.run.check(self.received == self.receives, f"the end too early: {self}")
        self.run.check(not self.ends, f"the end again: {self}")
        # An interrupted call is repeated, as by asyncio.
        self.point()
        self.ends += 1
        return self.sent < self.sends


class DataSide(Side, asyncio.Protocol):
    """Receives by `data_received`."""

    def data_received(self, data: bytes) -> None:
        self.take(data)


class BufferSide(Side, asyncio.BufferedProtocol):
    """Receives into its own buffer."""

    def __init__(self, talk: Talk, sends: int, receives: int) -> None:
        super().__init__(talk, sends, receives)
        # Not so small that a run takes long.
        self.buffer = bytearray(
            max(receives // 200, self.run.rng.choice((7, 1000, 20_000, 100_000)))
        )

    def get_buffer(self, sizehint: int) -> memoryview:
        self.point()
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.take(memoryview(self.buffer)[:nbytes])


class Talk:
    """Both sides of a connection, and how it is opened.

    asyncio's own TLS and pipes hang if some callbacks are interrupted: `get_buffer`, `connection_made`
    and the end in TLS, `resume_writing` of a closing pipe. There nothing is injected on asyncio, only on
    ours.
    """

    def __init__(self, run: Run, kind: str) -> None:
        self.run = run
        self.kind = kind
        self.is_spared = run.is_oracle and kind in ("tls", "pipe")
        self.half_closes = kind != "tls" and run.rng.random() < 0.5
        self.server: asyncio.Server | None = None
        sizes = _SIZES if kind != "pipe" else _SIZES[1:]
        sent, back = run.rng.choice(sizes), run.rng.choice(sizes)
        self.client = self.side(sent, back)
        self.served = self.side(back, sent)
        self.left = 2
        run.begin(self, kind)
        run.work(getattr(self, f"connect_{kind}"), self.connected, whole=True)

    def __repr__(self) -> str:
        return f"{self.client} {self.served}"

    def side(self, sends: int, receives: int) -> Any:
        return self.run.rng.choice((DataSide, BufferSide))(self, sends, receives)

    @staticmethod
    def piece(run: Run) -> int:
        return run.rng.choice((1, 100, 100, 5000, 5000, 40_000, 150_000))

    def connected(self) -> None:
        """The client's side is open; the server's may not be yet."""

    def lost(self) -> None:
        self.left -= 1
        if not self.left:
            if self.server is not None:
                self.server.close()
            self.run.finish(self)

    async def connect_tcp(self, context: Any = None, client_context: Any = None) -> None:
        loop = self.run.loop
        self.server = await loop.create_server(lambda: self.served, "127.0.0.1", 0, ssl=context)
        port = self.server.sockets[0].getsockname()[1]
        await loop.create_connection(
            lambda: self.client,
            "127.0.0.1",
            port,
            ssl=client_context,
            server_hostname="localhost" if client_context else None,
        )

    async def connect_tls(self) -> None:
        await self.connect_tcp(self.run.server_context, self.run.client_context)

    async def connect_unix(self) -> None:
        loop = self.run.loop
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "socket")
            self.server = await loop.create_unix_server(lambda: self.served, path)
            await loop.create_unix_connection(lambda: self.client, path)

    async def connect_pair(self) -> None:
        loop = self.run.loop
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        await loop.create_connection(lambda: self.client, sock=ours)
        await loop.connect_accepted_socket(lambda: self.served, theirs)


class PipeEnd(Side, asyncio.Protocol):
    """An end of a pipe, which only reads or only writes."""

    def data_received(self, data: bytes) -> None:
        self.take(data)

    def settle(self) -> None:
        if self.sends and self.state == "connected":
            if self.run.rng.random() < 0.5:
                self.transport.write_eof()
            else:
                self.transport.close()


class PipeTalk(Talk):
    """A pipe between two transports."""

    def __init__(self, run: Run) -> None:
        super().__init__(run, "pipe")

    def side(self, sends: int, receives: int) -> Any:
        # Called twice; the first end writes.
        first = not hasattr(self, "client")
        return PipeEnd(self, sends, 0) if first else PipeEnd(self, 0, receives)

    async def connect_pipe(self) -> None:
        reads, writes = os.pipe()
        await self.run.loop.connect_read_pipe(lambda: self.served, os.fdopen(reads, "rb", 0))
        await self.run.loop.connect_write_pipe(lambda: self.client, os.fdopen(writes, "wb", 0))


PARTS: tuple[Callable[[Run], object], ...] = (
    *(partial(Talk, kind=kind) for kind in ("tcp", "tls", "tls", "unix", "pair")),
    PipeTalk,
)
