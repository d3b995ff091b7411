"""What both ends of the WebTransport interop tests do, whatever they are made of.

Owns: the contract of session_contract.py. Called by: the programs, each with a `Session` of its own.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

from contract import PIECE, SMALL, WrongError, pattern, same
from session_contract import (
    CLOSE,
    CLOSE_TEXT,
    DATAGRAMS,
    MISSING,
    PATH,
    PROTOCOL,
    PROTOCOLS,
    RESET,
    SESSION_PATHS,
    STOP,
    STREAMS,
    STREAMS_AT_ONCE,
)

READ_BYTES_MAX = 1 << 16


class EndedError(Exception):
    """The peer has reset a stream, or has stopped it."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the peer has ended the stream with code {code}")
        self.code = code


class RejectedError(Exception):
    """The server has rejected a session; the status, if it is known."""

    def __init__(self, status: int | None = None) -> None:
        super().__init__(f"rejected: {status}")
        self.status = status


class Stream(ABC):
    """A stream, of which a half may be missing."""

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Send all; raise `EndedError` where the peer has stopped it."""

    @abstractmethod
    async def finish(self) -> None:
        """End what is sent."""

    @abstractmethod
    async def read(self, size: int = READ_BYTES_MAX) -> bytes:
        """Receive some, nothing at the end; raise `EndedError` after a reset."""

    @abstractmethod
    async def reset(self, code: int) -> None:
        """Reset the sending half."""

    @abstractmethod
    async def stop(self, code: int) -> None:
        """Stop the receiving half."""

    async def send(self, data: bytes) -> None:
        """Send all there is."""
        await self.write(data)
        await self.finish()

    async def read_all(self) -> bytes:
        """Receive to the end."""
        pieces = []
        while piece := await self.read():
            pieces.append(piece)
        return b"".join(pieces)

    async def read_small(self) -> None:
        """Receive what begins a stream, and no more."""
        data = b""
        while len(data) < len(SMALL):
            data += await self.read(len(SMALL) - len(data))
        same(data, SMALL)

    async def reset_code(self) -> int:
        """Receive until the peer resets."""
        try:
            while await self.read():
                pass
        except EndedError as error:
            return error.code
        raise WrongError("the stream was complete")

    async def stop_code(self) -> int:
        """Send until the peer stops that."""
        try:
            while True:
                await self.write(PIECE)
        except EndedError as error:
            return error.code


class Session(ABC):
    """A session of either end; where it is over, what waits is to raise."""

    # The sub-protocol.
    protocol: str | None = None

    @abstractmethod
    async def open(self, *, bidirectional: bool) -> Stream:
        """Open a stream."""

    @abstractmethod
    async def accept(self, *, bidirectional: bool) -> Stream:
        """Take a stream of the peer."""

    @abstractmethod
    async def send_datagram(self, data: bytes) -> None:
        """Send a datagram."""

    @abstractmethod
    async def read_datagram(self) -> bytes:
        """Receive a datagram."""

    @abstractmethod
    async def close(self, code: int, reason: str) -> None:
        """Close it."""

    @abstractmethod
    async def closed(self) -> tuple[int, str]:
        """Wait until the peer closes it."""

    async def tell(self, what: bytes) -> None:
        """Send on a stream of its own."""
        await (await self.open(bidirectional=False)).send(what)

    async def told(self) -> bytes:
        """Receive that."""
        return await (await self.accept(bidirectional=False)).read_all()


# --- the server -----------------------------------------------------------------------------------

tasks: set[asyncio.Task[Any]] = set()
closed = ""


def start(work: Coroutine[Any, Any, object]) -> None:
    """Run something beside the rest; a session that is over ends it."""

    def done(task: asyncio.Task[Any]) -> None:
        tasks.discard(task)
        task.cancelled() or task.exception()

    task = asyncio.ensure_future(work)
    tasks.add(task)
    task.add_done_callback(done)


def accepts(path: str) -> bool:
    """Whether there is such a path."""
    return path.partition("?")[0] in SESSION_PATHS


async def handle(session: Session, path: str) -> None:
    """Do what the path asks for, until the session is over."""
    global closed  # noqa: PLW0603
    match path.partition("?")[0]:
        case "/path":
            await session.tell(path.encode())
        case "/closed":
            await session.tell(closed.encode())
        case "/close":
            code, reason = await session.closed()
            closed = f"{code} {reason}"
            return
        case "/server-bidi":
            stream = await session.open(bidirectional=True)
            _, back = await asyncio.gather(stream.send(pattern()), stream.read_all())
            await session.tell(back)
    start(return_datagrams(session))
    start(return_streams(session))
    while True:
        start(on_stream(session, path, await session.accept(bidirectional=True)))


async def return_datagrams(session: Session) -> None:
    """Send datagrams back."""
    while True:
        await session.send_datagram(await session.read_datagram())


async def return_streams(session: Session) -> None:
    """Send back on streams of its own what comes on unidirectional ones."""
    while True:
        await session.tell(await session.told())


async def on_stream(session: Session, path: str, stream: Stream) -> None:
    """Do what the path asks for with a stream of the client."""
    if path == "/echo":
        while piece := await stream.read():
            await stream.write(piece)
        await stream.finish()
        return
    await stream.read_small()
    match path:
        case "/reset":
            await stream.write(SMALL)
            await session.tell(b"%d" % await stream.reset_code())
        case "/stop":
            await session.tell(b"%d" % await stream.stop_code())
        case "/server-reset":
            await stream.reset(RESET)
        case "/server-stop":
            await stream.stop(STOP)
            await session.closed()
        case "/server-close":
            await session.close(*CLOSE)


# --- the client -----------------------------------------------------------------------------------


async def asked(session: Session) -> Stream:
    """Open a stream and send what begins it."""
    stream = await session.open(bidirectional=True)
    await stream.write(SMALL)
    return stream


async def session(session: Session) -> None:
    """The server tells the path that came."""
    same(await session.told(), PATH.encode())


async def protocol(session: Session) -> None:
    """The server has chosen one."""
    same(session.protocol, PROTOCOL)


async def bidi(session: Session) -> None:
    """Send and receive on one stream."""
    await echo(session, pattern())


async def echo(session: Session, data: bytes) -> None:
    """Send while the same comes back."""
    stream = await session.open(bidirectional=True)
    _, back = await asyncio.gather(stream.send(data), stream.read_all())
    same(back, data)


async def uni(session: Session) -> None:
    """Send on one stream and receive on another."""
    _, back = await asyncio.gather(session.tell(pattern()), session.told())
    same(back, pattern())


async def server_bidi(session: Session) -> None:
    """The server opens a stream; what it has sent comes back to it, and again."""
    stream = await session.accept(bidirectional=True)
    data = await stream.read_all()
    same(data, pattern())
    _, back = await asyncio.gather(stream.send(data), session.told())
    same(back, data)


async def parallel(session: Session) -> None:
    """Have several streams under way at once."""
    gate = asyncio.Semaphore(STREAMS_AT_ONCE)

    async def one(number: int) -> None:
        async with gate:
            await echo(session, b"%d" % number)

    await asyncio.gather(*map(one, range(STREAMS)))


async def datagrams(session: Session) -> None:
    """Send each until it has come back: datagrams may be lost."""
    missing = set(DATAGRAMS)

    async def repeat() -> None:
        while missing:
            for datagram in sorted(missing):
                await session.send_datagram(datagram)
            await asyncio.sleep(0.2)

    start(repeat())
    while missing:
        datagram = await session.read_datagram()
        same(datagram in DATAGRAMS, True)
        missing.discard(datagram)


async def reset(session: Session) -> None:
    """The server tells the code of a reset."""
    stream = await asked(session)
    await stream.read_small()
    await stream.reset(RESET)
    same(await session.told(), b"%d" % RESET)


async def server_reset(session: Session) -> None:
    """The server resets a stream."""
    same(await (await asked(session)).reset_code(), RESET)


async def stop(session: Session) -> None:
    """The server tells the code of STOP_SENDING."""
    stream = await asked(session)
    await stream.read(1)
    await stream.stop(STOP)
    same(await session.told(), b"%d" % STOP)


async def server_stop(session: Session) -> None:
    """The server stops a stream."""
    same(await (await asked(session)).stop_code(), STOP)


async def server_close(session: Session) -> None:
    """The server closes the session."""
    stream = await asked(session)
    same(await session.closed(), CLOSE)
    del stream


CASES: dict[str, tuple[str, Callable[[Session], Awaitable[None]]]] = {
    "session": (PATH, session),
    "protocol": ("/protocol", protocol),
    "bidi": ("/echo", bidi),
    "uni": ("/echo", uni),
    "server-bidi": ("/server-bidi", server_bidi),
    "parallel": ("/echo", parallel),
    "datagrams": ("/echo", datagrams),
    "reset": ("/reset", reset),
    "server-reset": ("/server-reset", server_reset),
    "stop": ("/stop", stop),
    "server-stop": ("/server-stop", server_stop),
    "server-close": ("/server-close", server_close),
}

# A session at a path, with the sub-protocols to offer; `RejectedError` where it is rejected.
Opened = Callable[[str, tuple[str, ...]], AbstractAsyncContextManager[Session]]


async def play(case: str, opened: Opened) -> None:
    """Run one case of a client."""
    match case:
        case "reject":
            try:
                async with opened(MISSING, ()):
                    pass
            except RejectedError as error:
                same(error.status in {404, None}, True)
            else:
                raise WrongError("the session was accepted")
        case "close":
            async with opened("/close", ()) as first:
                await first.close(*CLOSE)
            back = b""
            while not back:
                async with opened("/closed", ()) as second:
                    back = await second.told()
            same(back.decode(), CLOSE_TEXT)
        case _:
            path, work = CASES[case]
            async with opened(path, PROTOCOLS if case == "protocol" else ()) as one:
                await work(one)
