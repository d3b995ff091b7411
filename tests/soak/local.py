"""Load without a server: children, pipes, sockets, timers, threads, files."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import socket
import threading
from asyncio.subprocess import PIPE
from typing import TYPE_CHECKING, Any

from ringloop import fs
from tests.soak.soak import material
from tests.soak.streams import closed

if TYPE_CHECKING:
    from tests.soak.soak import Part, Soak

TIMERS = 200
MESSAGES = 500
# What the clock may be coarser than the loop's.
TIMER_EARLY_SECONDS = 0.001


async def child(soak: Soak) -> None:
    """Pipe bytes through cat(1)."""
    sent = material(soak.rng.randrange(1 << 40), soak.length())
    process = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)
    try:
        got, _ = await process.communicate(sent)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        raise
    soak.same(got, sent, "child")
    if await process.wait():
        raise ConnectionError(f"cat ended with {process.returncode}")


async def killed_child(soak: Soak) -> None:
    """Start a child that does not end by itself, and kill it; or one with a status of its own."""
    if soak.rng.random() < 0.5:
        process = await asyncio.create_subprocess_exec("sleep", "1000")
        number = soak.rng.choice((signal.SIGTERM, signal.SIGKILL))
        process.send_signal(number)
        wanted = -number
    else:
        wanted = soak.rng.randrange(100)
        process = await asyncio.create_subprocess_shell(f"exit {wanted}")
    status = await process.wait()
    if status != wanted:
        soak.fault(f"killed_child: status {status} instead of {wanted}")


class _PipeEnd(asyncio.Protocol):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.got = bytearray()
        self.lost: asyncio.Future[None] = loop.create_future()

    def data_received(self, data: bytes) -> None:
        self.got += data

    def connection_lost(self, error: Exception | None) -> None:
        if error is None:
            self.lost.set_result(None)
        else:
            self.lost.set_exception(error)


async def pipe(soak: Soak) -> None:
    """Send bytes through a pipe between two transports."""
    loop = soak.loop
    sent = material(soak.rng.randrange(1 << 40), soak.length())
    reads, writes = os.pipe()
    reading, writing = os.fdopen(reads, "rb", 0), os.fdopen(writes, "wb", 0)
    with contextlib.ExitStack() as stack:
        stack.callback(writing.close)
        stack.callback(reading.close)
        source, end = await loop.connect_read_pipe(lambda: _PipeEnd(loop), reading)
        stack.callback(source.close)
        target, other = await loop.connect_write_pipe(lambda: _PipeEnd(loop), writing)
        stack.callback(target.close)
        target.write(sent)
        target.write_eof()
        await asyncio.gather(end.lost, other.lost)
        stack.pop_all()
    soak.same(end.got, sent, "pipe")


@contextlib.contextmanager
def _pair() -> Any:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        yield ours, theirs


async def sock_calls(soak: Soak) -> None:
    """Send bytes between two sockets by the loop's `sock_*`."""
    sent = material(soak.rng.randrange(1 << 40), soak.length())
    got = bytearray()
    with _pair() as (ours, theirs):

        async def receive() -> None:
            while len(got) < len(sent) and (chunk := await soak.loop.sock_recv(theirs, 50_000)):
                got.extend(chunk)

        # Where one fails the other would wait for ever.
        both = [
            asyncio.ensure_future(one) for one in (soak.loop.sock_sendall(ours, sent), receive())
        ]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for one in both:
                one.cancel()
            ended = await asyncio.gather(*both, return_exceptions=True)
        for error in ended:
            # Not a cancellation: that is our own.
            if isinstance(error, Exception):
                raise error
    soak.same(got, sent, "sock calls")


async def watcher(soak: Soak) -> None:
    """Send bytes between two descriptors that the program watches itself."""
    loop = soak.loop
    sent = material(soak.rng.randrange(1 << 40), soak.length(70_000))
    got = bytearray()
    position = 0
    done = loop.create_future()
    with _pair() as (ours, theirs):

        def write() -> None:
            nonlocal position
            with contextlib.suppress(BlockingIOError):
                position += ours.send(sent[position : position + 20_000])
            if position == len(sent):
                loop.remove_writer(ours)

        def read() -> None:
            with contextlib.suppress(BlockingIOError):
                got.extend(theirs.recv(30_000))
            if len(got) >= len(sent) and not done.done():
                done.set_result(None)

        try:
            # What is watched must not be closed before.
            loop.add_writer(ours, write)
            loop.add_reader(theirs, read)
            await done
        finally:
            loop.remove_writer(ours)
            loop.remove_reader(theirs)
    soak.same(got, sent, "watcher")


async def timers(soak: Soak) -> None:
    """Fire timers in the order of their times, none early; cancel others."""
    loop = soak.loop
    fired: list[int] = []
    done = loop.create_future()

    def fire(when: float) -> None:
        if loop.time() < when - TIMER_EARLY_SECONDS:
            soak.fault(f"a timer came {when - loop.time()} s early")
        # Ours has whole nanoseconds, and runs those of one in the order of scheduling.
        fired.append(math.ceil(when * 1e9))
        if len(fired) == TIMERS:
            done.set_result(None)

    def never() -> None:
        soak.fault("a cancelled timer came")

    now = loop.time()
    for _ in range(TIMERS):
        when = now + soak.rng.random() / 10
        loop.call_at(when, fire, when)
        loop.call_later(soak.rng.random(), never).cancel()
    await done
    if fired != sorted(fired):
        soak.fault("timers out of order")


async def threads(soak: Soak) -> None:
    """Call from two threads, each in its order; and compute in the loop's executor."""
    loop = soak.loop
    got: list[list[int]] = [[], []]
    done = loop.create_future()

    def take(which: int, number: int) -> None:
        got[which].append(number)
        if sum(map(len, got)) == 2 * MESSAGES:
            done.set_result(None)

    def send(which: int) -> None:
        for number in range(MESSAGES):
            loop.call_soon_threadsafe(take, which, number)

    senders = [threading.Thread(target=send, args=(which,)) for which in (0, 1)]
    for sender in senders:
        sender.start()
    total = await loop.run_in_executor(None, sum, range(1000))
    await done
    for sender in senders:
        sender.join()
    if got != [list(range(MESSAGES))] * 2 or total != 499_500:
        soak.fault("messages of threads out of order")


async def files(soak: Soak) -> None:
    """Write a file, read it in other pieces, remove it."""
    path = soak.folder / f"file-{os.getpid()}-{soak.rng.randrange(1 << 40)}"
    sent = material(soak.rng.randrange(1 << 40), soak.length())
    try:
        if soak.rng.random() < 0.3:
            await fs.write_bytes(path, sent, durable=soak.rng.random() < 0.1)
            soak.same(await fs.read_bytes(path), sent, "whole file")
            return
        size = soak.rng.choice((1000, 30_000, 200_000))
        async with fs.open(path, "wb") as file:
            for start in range(0, len(sent), size):
                await file.write(sent[start : start + size])
        got = bytearray()
        async with fs.open(path, "rb") as file:
            while chunk := await file.read(soak.rng.choice((100_000, 7000))):
                got += chunk
            start = soak.rng.randrange(len(sent))
            soak.same(await file.pread(100, start), sent[start : start + 100], "pread")
        soak.same(got, sent, "file")
    finally:
        with contextlib.suppress(FileNotFoundError):
            await fs.unlink(path)


async def sent_file(soak: Soak) -> None:
    """Send a file's bytes to a socket by sendfile(2)."""
    path = soak.folder / f"sent-{os.getpid()}-{soak.rng.randrange(1 << 40)}"
    sent = material(soak.rng.randrange(1 << 40), soak.length())
    path.write_bytes(sent)
    ours, theirs = socket.socketpair()
    try:
        _, writer = await asyncio.open_connection(sock=ours)
        reader, other = await asyncio.open_connection(sock=theirs)
        getting = asyncio.ensure_future(reader.readexactly(len(sent)))
        try:
            await fs.sendfile(writer, path)
            soak.same(await getting, sent, "sendfile")
        finally:
            getting.cancel()
            await closed(writer)
            await closed(other)
    finally:
        ours.close()
        theirs.close()
        path.unlink()


async def names(soak: Soak) -> None:
    """Look up a name, which the loop does in a thread."""
    found = await soak.loop.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)
    if not found:
        soak.fault("localhost has no address")


async def cancelled(soak: Soak) -> None:
    """Cancel waits of every kind at a random time; none leaves anything."""
    loop = soak.loop
    with _pair() as (ours, _theirs):
        waits: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(loop.sock_recv(ours, 100)),
            asyncio.ensure_future(asyncio.sleep(1000)),
            asyncio.ensure_future(loop.run_in_executor(None, sum, range(1000))),
            asyncio.ensure_future(_endless()),
        ]
        await asyncio.sleep(soak.rng.random() / 100)
        for wait in waits:
            wait.cancel()
        await asyncio.wait(waits)


async def _endless() -> None:
    process = await asyncio.create_subprocess_exec("sleep", "1000", stdout=PIPE)
    try:
        await process.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


PARTS: tuple[Part, ...] = (
    *(child, killed_child, pipe, sock_calls, watcher, timers, threads),
    *(files, files, sent_file, names, cancelled),
)
