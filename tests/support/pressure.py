"""A process without memory for seconds: `python -m tests.support.pressure LOOP FOLDER`.

Its address space is limited to a little more than it uses, and a thread repeatedly allocates all of
that, frees a little, and allocates it again, while streams of every kind, datagrams, timers, tasks,
`sock_*` calls and children run. Then the memory is available again, and everything must come to an
end: each stream is complete, or one of its two ends got an error, with no hole in what arrived; the
loop works as before.

Prints one line of JSON: what was transferred, what ended in an error, and `faults`, which must be
empty. A hang ends the process with the stacks of its threads. Run by `test_pressure.py`, and by hand.
"""

from __future__ import annotations

import _thread
import argparse
import asyncio
import contextlib
import faulthandler
import functools
import gc
import itertools
import json
import logging
import operator
import os
import random
import resource
import socket
import ssl
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringloop import quic
from tests import support

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

# The data of a stream, by its position: a prime period, so that chunks at any offset differ.
PERIOD = 65_521
PATTERN = random.Random(1).randbytes(PERIOD) * 6
CHUNKS = (1, 40, 700, 3000, 20_000, 70_000, 200_000)
# Timers due at once, and messages of another thread, while memory is short: more than the loop has
# preallocated.
FLOOD = 20_000
FLOOD_SECONDS = 0.3
# Blocks that use up the memory, the largest first. Smaller ones are the interpreter's own, and it
# needs some of them: without, it cannot create a MemoryError and aborts.
BLOCKS = (1 << 20, 1 << 16, 1 << 12, 1 << 10, 600)
SLACKS = (0, 0, 2000, 20_000, 200_000, 2 << 20)
STREAMS_OF_A_KIND = 3
SERVED = ("tcp", "tls", "unix")
HANG_SECONDS = 60.0


def is_of_the_interpreter(error: BaseException) -> bool:
    """Whether an error is CPython's own for lack of memory; others are faults, such as a panic."""
    if isinstance(error, SystemError) and sys.version_info < (3, 14):
        # It loses the exception if it cannot create a traceback (python/cpython#131173).
        return "without exception set" in str(error)
    # "can't start new thread", "can't allocate lock", "can't allocate read lock"
    return isinstance(error, RuntimeError) and str(error).endswith(("thread", "lock"))


class Hog:
    """Allocates all memory and frees a part of it, repeatedly, in a thread of its own."""

    def __init__(self, seed: int, seconds: float, tick: Callable[[], None]) -> None:
        numbers = random.Random(seed)
        self.end = time.monotonic() + seconds
        self.tick = tick
        # All numbers exist before memory is short; small integers are preallocated.
        self.slacks = itertools.cycle(numbers.choices(SLACKS, k=1000))
        self.rests = itertools.cycle([numbers.randrange(1, 12) for _ in range(997)])
        self.blocks: list[bytes] = []
        self.rounds = 0

    def run(self) -> None:
        is_over = False
        while not is_over:
            try:
                is_over = time.monotonic() >= self.end
                self._take()
                self._rest()
                self._give(next(self.slacks))
                self._rest()
                self.rounds += 1
            except MemoryError:
                # Too little memory for this thread itself.
                self.blocks.clear()
        self.blocks.clear()

    def _take(self) -> None:
        for size in BLOCKS:
            try:
                while True:
                    self.blocks.append(bytes(size))
            except MemoryError:
                continue

    def _give(self, size: int) -> None:
        while self.blocks and size > 0:
            size -= len(self.blocks.pop())

    def _rest(self) -> None:
        left = next(self.rests)
        while left:
            left -= 1
            # `contextlib.suppress` would need memory.
            try:  # noqa: SIM105
                self.tick()
            except MemoryError:
                pass
            time.sleep(0.001)


class Stream:
    """One direction of a connection: what was sent, what arrived, and how both ends ended."""

    def __init__(self, kind: str, number: int) -> None:
        self.kind = kind
        self.number = number
        self.sent = 0
        self.got = 0
        # Its creation has started, and nothing else is known yet.
        self.is_making = True
        self.ends: list[End] = []
        self.is_told = False
        self.fault: str | None = None

    def is_over(self) -> bool:
        return not self.is_making and all(end.lost for end in self.ends)

    def check(self, data: Any) -> None:
        """Compare received data with what was sent at its position."""
        if self.fault is not None:
            return
        start = self.got % PERIOD
        length = len(data)
        if PATTERN[start : start + length] != data:
            self.fault = "a hole"
        self.got += length

    def verdict(self) -> str | None:
        if self.fault is not None:
            return self.fault
        if not self.is_over():
            return f"never ended: {[(type(end).__name__, end.lost) for end in self.ends]}"
        if self.kind in SERVED and len(self.ends) < 2:
            # Its other end was closed before it received the stream's number.
            return None
        if not self.is_told and self.got != self.sent:
            return f"cut at {self.got} of {self.sent}, and no error says so"
        return None


class End(asyncio.Protocol):
    """One end of a stream."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.transport: Any = None
        self.lost = False
        self.paused = False
        stream.ends.append(self)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        if error is not None:
            self.stream.is_told = True

    def data_received(self, data: bytes) -> None:
        self.stream.check(data)

    def eof_received(self) -> None:
        pass


class BufferedEnd(End, asyncio.BufferedProtocol):
    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self.buffer = bytearray(20_000)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.stream.check(self.buffer[:nbytes])


class Datagrams(asyncio.DatagramProtocol):
    """Numbers that may be lost but never repeated."""

    def __init__(self) -> None:
        self.last = -1
        self.count = 0
        self.is_lost = False
        self.fault: str | None = None

    def datagram_received(self, data: bytes, addr: Any) -> None:
        number = int(data)
        if number <= self.last:
            self.fault = f"datagram {number} after {self.last}"
        self.last = number
        self.count += 1

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True


class Work:
    """Everything that runs on the loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, folder: Path, seed: int, patience: float
    ) -> None:
        self.loop = loop
        self.random = random.Random(seed + 1)
        self.patience = patience
        self.server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server_context.load_cert_chain(folder / "localhost.pem", folder / "localhost.key")
        self.client_context = ssl.create_default_context(cafile=folder / "authority.pem")
        self.server_keywords: Any = {
            "certificate": folder / "localhost.pem",
            "private_key": folder / "localhost.key",
            "alpn": ["test"],
            "idle_timeout": patience,
        }
        self.client_keywords: Any = {
            "ca_file": folder / "authority.pem",
            "server_name": "localhost",
            "alpn": ["test"],
            "idle_timeout": patience,
            "handshake_timeout": patience,
        }
        self.path = str(folder / f"pressure-{os.getpid()}")
        self.is_native = not isinstance(loop, asyncio.SelectorEventLoop)
        self.makers: dict[str, Callable[[Stream], Coroutine[Any, Any, None]]] = {
            "pair": self.make_pair,
            "buffered": self.make_buffered,
            "tcp": self.make_tcp,
            "unix": self.make_unix,
            "tls": self.make_tls,
            "pipe": self.make_pipe,
            "sock": self.make_sock,
            "child": self.make_child,
            "quic": self.make_quic,
        }
        # In the interpreter's `ssl` a connection without memory to be created aborts the process;
        # in asyncio up to 3.11 a thread that waits for a child hangs without memory.
        self.remade = [kind for kind in self.makers if kind != "tls"]
        if not self.is_native and sys.version_info < (3, 12):
            self.remade.remove("child")
        self.streams: list[Stream] = []
        self.over: list[Stream] = []
        # Accepted connections find their stream here, by the number they start with.
        self.accepted: dict[int, Stream] = {}
        self.servers: dict[str, Any] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.datagrams = Datagrams()
        self.datagrams_sent = 0
        self.datagrams_making: asyncio.Task[None] | None = None
        # Each call takes one, and allocates nothing.
        self.flood = iter(bytes(2 * FLOOD))
        self.quic_errors: dict[str, int] = {}
        self.refused = 0
        self.timers = 0
        self.is_ending = False

    async def begin(self) -> None:
        loop = self.loop
        self.servers["tcp"] = await loop.create_server(lambda: Accepted(self), "127.0.0.1", 0)
        self.servers["tls"] = await loop.create_server(
            lambda: Accepted(self), "127.0.0.1", 0, ssl=self.server_context
        )
        self.servers["unix"] = await loop.create_unix_server(lambda: Accepted(self), self.path)
        await self.make_datagrams()
        self.quic_server = await quic.serve(
            host="127.0.0.1", stream_handler=self.serve_quic, **self.server_keywords
        )
        for kind in self.makers:
            for _ in range(STREAMS_OF_A_KIND):
                self.make(kind)
        await support.within(asyncio.gather(*self.tasks))
        for _ in range(FLOOD):
            self.loop.call_later(FLOOD_SECONDS, self.flood.__next__)

    async def make_datagrams(self) -> None:
        """Create both endpoints, and again whenever one has ended."""
        self.receiver, _ = await self.loop.create_datagram_endpoint(
            lambda: self.datagrams, ("127.0.0.1", 0)
        )
        self.sender, _ = await self.loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, remote_addr=self.receiver.get_extra_info("sockname")
        )

    # Called for the memory thread, in the loop's own thread.

    def tick(self) -> None:
        if self.is_ending:
            return
        try:
            self._step()
        except MemoryError:
            self.refused += 1

    def _step(self) -> None:
        for stream in self.streams:
            self.write(stream)
        self.send_datagram()
        self.loop.call_soon(self._nothing)
        self.loop.call_later(self.random.random() / 50, self._nothing)
        self.loop.call_later(100, self._nothing).cancel()
        for stream in self.streams:
            if stream.is_over():
                self.streams.remove(stream)
                self.over.append(stream)
                break
        kind = self.random.choice(self.remade)
        if sum(stream.kind == kind for stream in self.streams) < STREAMS_OF_A_KIND:
            self.make(kind)

    def send_datagram(self) -> None:
        if self.receiver.is_closing() or self.sender.is_closing():
            if self.datagrams_making is None or self.datagrams_making.done():
                making = self.make_datagrams()
                try:
                    self.datagrams_making = self.loop.create_task(making)
                except MemoryError:
                    making.close()
                    raise
            return
        self.sender.sendto(b"%d" % self.datagrams_sent)
        self.datagrams_sent += 1

    def _nothing(self) -> None:
        self.timers += 1

    def write(self, stream: Stream) -> None:
        if stream.is_making or not stream.ends:
            return
        end = stream.ends[0]
        if end.transport is None or end.lost or end.paused or end.transport.is_closing():
            return
        start = stream.sent % PERIOD
        size = self.random.choice(CHUNKS)
        data = PATTERN[start : start + size]
        # Made now: once the data is accepted, nothing may fail before it is counted.
        sent = stream.sent + size
        try:
            end.transport.write(data)
        except MemoryError:
            # asyncio does not say whether it has sent a part; ours has accepted nothing.
            if not self.is_native:
                stream.is_told = True
                end.transport.abort()
            raise
        stream.sent = sent

    def make(self, kind: str) -> None:
        stream = Stream(kind, len(self.streams) + len(self.over) + 1)
        making = self._make(stream)
        try:
            task = self.loop.create_task(making)
        except MemoryError:
            making.close()
            raise
        self.streams.append(stream)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _make(self, stream: Stream) -> None:
        try:
            await self.makers[stream.kind](stream)
        except (MemoryError, OSError) as error:
            stream.is_told = True
            self.give_up(stream)
            if stream.kind == "quic":
                name = type(error).__name__
                self.quic_errors[name] = self.quic_errors.get(name, 0) + 1
        except BaseException as error:
            stream.is_told = True
            if not is_of_the_interpreter(error):
                stream.fault = repr(error)
            self.give_up(stream)
        finally:
            stream.is_making = False

    def give_up(self, stream: Stream) -> None:
        for end in stream.ends:
            # An end without a transport cannot lose a connection.
            if end.lost or end.transport is None:
                end.lost = True
            elif hasattr(end.transport, "abort"):
                end.transport.abort()
            else:
                end.transport.close()

    async def _connect_pair(self, stream: Stream, factory: type[End]) -> None:
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as stack:
            stack.callback(ours.close)
            stack.callback(theirs.close)
            sender, receiver = End(stream), factory(stream)
            sender.transport, _ = await self.loop.create_connection(lambda: sender, sock=ours)
            receiver.transport, _ = await self.loop.create_connection(lambda: receiver, sock=theirs)
            stack.pop_all()

    async def make_pair(self, stream: Stream) -> None:
        await self._connect_pair(stream, End)

    async def make_buffered(self, stream: Stream) -> None:
        await self._connect_pair(stream, BufferedEnd)

    async def _connect(self, stream: Stream, connect: Callable[..., Any], **keywords: Any) -> None:
        sender = End(stream)
        self.accepted[stream.number] = stream
        sender.transport, _ = await connect(lambda: sender, **keywords)
        sender.transport.write(stream.number.to_bytes(4, "big"))

    async def make_tcp(self, stream: Stream) -> None:
        host, port = self.servers["tcp"].sockets[0].getsockname()
        await self._connect(stream, self.loop.create_connection, host=host, port=port)

    async def make_tls(self, stream: Stream) -> None:
        host, port = self.servers["tls"].sockets[0].getsockname()
        await self._connect(
            stream,
            self.loop.create_connection,
            host=host,
            port=port,
            ssl=self.client_context,
            ssl_handshake_timeout=self.patience,
            ssl_shutdown_timeout=self.patience,
        )

    async def make_unix(self, stream: Stream) -> None:
        await self._connect(stream, self.loop.create_unix_connection, path=self.path)

    async def make_pipe(self, stream: Stream) -> None:
        read_end, write_end = os.pipe()
        reading, writing = os.fdopen(read_end, "rb", 0), os.fdopen(write_end, "wb", 0)
        sender, receiver = End(stream), End(stream)
        sender.transport, _ = await self.loop.connect_write_pipe(lambda: sender, writing)
        receiver.transport, _ = await self.loop.connect_read_pipe(lambda: receiver, reading)

    async def make_sock(self, stream: Stream) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            for each in (ours, theirs):
                each.setblocking(False)
            for _ in range(self.random.randrange(20)):
                size = self.random.choice(CHUNKS[:4])
                start = stream.sent % PERIOD
                await self.loop.sock_sendall(ours, PATTERN[start : start + size])
                stream.sent += size
                while stream.got < stream.sent:
                    stream.check(await self.loop.sock_recv(theirs, stream.sent - stream.got))

    async def make_child(self, stream: Stream) -> None:
        child = await asyncio.create_subprocess_exec(
            "cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        data = PATTERN[:5000]
        try:
            answer, _ = await child.communicate(data)
        except MemoryError:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            raise
        stream.sent = len(data)
        stream.check(answer)
        # `communicate` does not report a truncated pipe; its transport has.
        if stream.got < stream.sent and PATTERN.startswith(answer):
            stream.is_told = True

    async def make_quic(self, stream: Stream) -> None:
        self.accepted[stream.number] = stream
        address = self.quic_server.address
        connection = await quic.open_connection(*address[:2], **self.client_keywords)
        try:
            ours = await connection.open_stream()
            await ours.send(stream.number.to_bytes(4, "big"))
            for _ in range(self.random.randrange(20)):
                size = self.random.choice(CHUNKS)
                start = stream.sent % PERIOD
                await ours.send(PATTERN[start : start + size])
                stream.sent += size
            ours.finish()
            # The handler answers what it has read to the end.
            await ours.read_to_end(100)
        except MemoryError:
            connection.close(1)
            raise
        else:
            connection.close()

    async def serve_quic(self, theirs: Any) -> None:
        stream = self.accepted[int.from_bytes(await theirs.readexactly(4), "big")]
        async for chunk in theirs.chunks():
            stream.check(chunk)
        await theirs.send(b"all")

    # After the pressure.

    async def finish(self) -> None:
        """Close every stream once the written data has arrived, and wait for the ends."""
        self.is_ending = True
        deadline = time.monotonic() + HANG_SECONDS / 2
        while not all(stream.is_over() for stream in self.streams) and time.monotonic() < deadline:
            for stream in self.streams:
                if stream.is_told:
                    self.give_up(stream)
                elif not stream.is_making and stream.ends and stream.ends[0].transport is not None:
                    stream.ends[0].transport.close()
            await asyncio.sleep(0.02)
        if self.is_native:
            left = functools.partial(operator.length_hint, self.flood)
            await support.wait_until(lambda: left() == 0, "every timer and message")
        self.over += self.streams
        for server in self.servers.values():
            server.close()
        self.sender.close()
        self.receiver.close()
        self.quic_server.close()
        await support.within(self.quic_server.wait_closed())


class Accepted(End):
    """A server's end, which learns its stream's number from the first bytes."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.begun = b""
        self.is_known = False
        super().__init__(Stream("stranger", 0))

    def data_received(self, data: bytes) -> None:
        if not self.is_known:
            begun = self.begun + data
            if len(begun) < 4:
                self.begun = begun
                return
            stream = self.work.accepted[int.from_bytes(begun[:4], "big")]
            stream.ends.append(self)
            self.stream = stream
            self.is_known = True
            data = begun[4:]
        if data:
            self.stream.check(data)


def run_short(loop: asyncio.AbstractEventLoop, work: Work, seed: int, options: Any) -> Hog:
    """Run the loop while memory is short; MemoryErrors may leave it, as they leave asyncio's."""

    left = [None] * FLOOD

    def tick() -> None:
        loop.call_soon_threadsafe(work.tick)
        for _ in left[:200]:
            loop.call_soon_threadsafe(work.flood.__next__)
            left.pop()

    hog = Hog(seed, options.seconds, tick)

    is_pressed = True

    def press() -> None:
        nonlocal is_pressed
        while not loop.is_running():
            time.sleep(0.001)
        # The C library allocates a thread's part of a library's variables on first use, or aborts
        # the process.
        tick()
        resource.setrlimit(resource.RLIMIT_AS, (used + options.left * 1024, hard))
        hog.run()
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        is_pressed = False
        for _ in left:
            loop.call_soon_threadsafe(work.flood.__next__)
        loop.call_soon_threadsafe(loop.stop)

    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    gc.collect()
    # Free room in the interpreter's small-object pools.
    small = [bytes(size) for _ in range(2000) for size in range(16, 480, 16)]
    small = small[::2]
    _thread.start_new_thread(press, ())
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    while is_pressed:
        try:
            loop.run_forever()
        except MemoryError:
            work.refused += 1
    return hog


def figures(work: Work) -> dict[str, dict[str, int]]:
    """Count, by kind, the streams, the failed ones, and the received bytes."""
    table: dict[str, dict[str, int]] = {}
    for stream in work.over:
        row = table.setdefault(stream.kind, {"streams": 0, "told": 0, "got": 0, "stuck": 0})
        row["streams"] += 1
        row["told"] += stream.is_told
        row["got"] += stream.got
        row["stuck"] += stream.is_making
    return table


def faults_of(work: Work, *, is_short: bool) -> list[str]:
    """List the faults; an error is one if memory was available."""
    faults = []
    for stream in work.over:
        # A future without memory to wake its task loses it, in asyncio and here.
        if is_short and stream.is_making:
            continue
        fault = stream.verdict()
        if fault is None and stream.is_told and not is_short:
            fault = "an error with all memory there"
        if fault is not None:
            faults.append(f"{stream.kind} {stream.number}: {fault}")
    if work.datagrams.fault:
        faults.append(work.datagrams.fault)
    return faults


async def play(work: Work) -> None:
    """The same work once more, with memory."""
    await work.begin()
    for _ in range(FLOOD):
        work.loop.call_soon(work.flood.__next__)
    for _ in range(20):
        work.tick()
        await asyncio.sleep(0.002)
    await work.finish()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loop")
    parser.add_argument(
        "certificates", type=Path, help="the folder of `tests.support.tls.Certificates`"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--without", nargs="*", default=[], help="kinds not made while it is short")
    parser.add_argument("--left", type=int, default=16 * 1024, help="KiB beyond what is in use")
    options = parser.parse_args()
    logging.disable()
    faulthandler.enable()
    faulthandler.dump_traceback_later(options.seconds + 2 * HANG_SECONDS, exit=True)
    sys.unraisablehook = lambda _: None
    loop = support.loop_factory(options.loop)()
    loop.set_exception_handler(lambda _loop, _context: None)
    asyncio.set_event_loop(loop)
    work = Work(loop, options.certificates, options.seed, 5)
    work.remade = [kind for kind in work.remade if kind not in options.without]
    loop.run_until_complete(work.begin())
    hog = run_short(loop, work, options.seed, options)
    loop.run_until_complete(work.finish())
    again = Work(loop, options.certificates, options.seed, HANG_SECONDS)
    loop.run_until_complete(play(again))
    report = {
        "faults": [
            *faults_of(work, is_short=True),
            *(f"afterwards: {fault}" for fault in faults_of(again, is_short=False)),
        ],
        "rounds": hog.rounds,
        "refused": work.refused,
        "timers": work.timers,
        "datagrams": [work.datagrams_sent, work.datagrams.count],
        "quic": work.quic_errors,
        "streams": figures(work),
    }
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()
    # Skip the checks at exit: what was lost for lack of memory would fail them.
    os._exit(0)


if __name__ == "__main__":
    main()
