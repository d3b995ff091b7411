"""The measured work, written once for every stack: the server's answers and the client's workloads.

Owns: the contract on the wire, which `crates/ringloop-quic/examples/perf.rs` implements too, and the
figures. Called by: `peer`. Names no stack: adapters implement `Connection`.

The first byte of a bidirectional stream is the request: `s` count the data, `e` echo it, `i` report
the counts so far, as one line of JSON. A client prints the difference of two such reports: the
receiver counts, by its own clock.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

ALPN = "bench"
CHURN_TASKS = 100
# What is in flight when a run ends gets this long to arrive, before losses are counted.
SETTLE_SECONDS = 0.3
WINDOW = 16 * 1024 * 1024
STREAMS_MAX = 512


class Stream(Protocol):
    """A bidirectional stream of a client."""

    async def write(self, data: bytes) -> None:
        """Send as soon as the stack's back-pressure allows."""

    async def finish(self, data: bytes) -> None:
        """Send the last data."""

    async def read(self, size: int) -> bytes:
        """Receive exactly `size` bytes."""

    async def read_all(self) -> bytes:
        """Receive until EOF."""


class Connection(Protocol):
    """A client's connection."""

    async def open(self) -> Stream:
        """Open a stream."""

    async def send_datagrams(self, data: bytes, count: int) -> int:
        """Send datagrams in the stack's preferred way; return how many it accepted."""

    def end(self) -> Awaitable[None] | None:
        """Begin to close; waiting for the result is not measured."""


Connect = Callable[[], Awaitable[Connection]]


class Counts:
    """What a server has received on all connections."""

    def __init__(self) -> None:
        self.bytes = 0
        self.datagrams = 0
        self.handshakes = 0

    def snapshot(self) -> bytes:
        """The counts with the time and CPU time used."""
        seen = {
            "time_ns": time.monotonic_ns(),
            "bytes": self.bytes,
            "datagrams": self.datagrams,
            "handshakes": self.handshakes,
            "cpu_ns": time.process_time_ns(),
            "rss": rss(),
        }
        return json.dumps(seen).encode()


def rss() -> int:
    """Resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Tally:
    """State shared by a client's tasks."""

    def __init__(self) -> None:
        self.is_over = False
        self.sent = 0
        self.latencies_ns: list[int] = []
        self.closing: set[asyncio.Future[None]] = set()


async def client(
    workload: str, size: int, warmup: float, seconds: float, connect: Connect
) -> dict[str, Any]:
    """Run one workload and return the result."""
    # The control requests have a connection of their own: they must not queue behind the data.
    control, connection = await connect(), await connect()
    if workload == "idle":
        return await idle(control, size, connect)
    tally = Tally()
    if workload == "handshake":
        tasks = [asyncio.ensure_future(handshakes(connect, tally)) for _ in range(size)]
    else:
        count = CHURN_TASKS if workload == "churn" else 1
        task = {
            "stream": stream,
            "pingpong": pingpong,
            "request": requests,
            "churn": requests,
            "datagram": datagrams,
        }[workload]
        tasks = [asyncio.ensure_future(task(connection, size, tally)) for _ in range(count)]
    running = asyncio.gather(*tasks)
    result = await measure(control, tally, running, warmup, seconds)
    tally.is_over = True
    # A write blocked by back-pressure may take long.
    await asyncio.wait(tasks, timeout=2)
    for task in tasks:
        task.cancel()
    await asyncio.sleep(SETTLE_SECONDS)
    result["sent_total"] = tally.sent
    result["end"] = await ask(control)
    return result


async def measure(
    control: Connection, tally: Tally, running: asyncio.Future[Any], warmup: float, seconds: float
) -> dict[str, Any]:
    """Take both reports and what lies between."""
    await pass_time(running, warmup)
    first = await ask(control)
    sent, cpu_ns = tally.sent, time.process_time_ns()
    tally.latencies_ns.clear()
    began = time.monotonic()
    await pass_time(running, seconds)
    took = time.monotonic() - began
    cpu_ns = time.process_time_ns() - cpu_ns
    sent = tally.sent - sent
    times = sorted(tally.latencies_ns)
    last = await ask(control)
    return {
        "first": first,
        "last": last,
        "seconds": took,
        "cpu_ns": cpu_ns,
        "sent": sent,
        "done": len(times),
        "p50_us": percentile_us(times, 500),
        "p99_us": percentile_us(times, 990),
        "rss": rss(),
    }


async def pass_time(running: asyncio.Future[Any], seconds: float) -> None:
    """Wait; a failure of the workload meanwhile fails the run."""
    try:
        await asyncio.wait_for(asyncio.shield(running), seconds)
    except TimeoutError:
        return
    raise RuntimeError("a workload ended early")


def percentile_us(times: list[int], thousandths: int) -> float:
    """Percentile of sorted nanoseconds."""
    return times[min(len(times) - 1, len(times) * thousandths // 1000)] / 1000 if times else 0.0


async def ask(control: Connection) -> dict[str, Any]:
    """Ask the server for its counts."""
    opened = await control.open()
    await opened.finish(b"i")
    answer: dict[str, Any] = json.loads(await opened.read_all())
    return answer


async def stream(connection: Connection, size: int, tally: Tally) -> None:
    """One stream, as many writes as it accepts."""
    opened = await connection.open()
    await opened.write(b"s")
    data = bytes(size)
    write = opened.write
    while not tally.is_over:
        for _ in range(16):
            await write(data)
    await opened.finish(b"")


async def requests(connection: Connection, size: int, tally: Tally) -> None:
    """Consecutive requests, each on its own stream."""
    data = bytes(range(256)) * (size // 256 + 1)
    data = data[:size]
    request = b"e" + data
    while not tally.is_over:
        start = time.monotonic_ns()
        opened = await connection.open()
        await opened.finish(request)
        if await opened.read_all() != data:
            raise RuntimeError("another answer")
        tally.latencies_ns.append(time.monotonic_ns() - start)


async def pingpong(connection: Connection, size: int, tally: Tally) -> None:
    """Consecutive messages on one stream."""
    opened = await connection.open()
    await opened.write(b"e")
    data = bytes(size)
    while not tally.is_over:
        start = time.monotonic_ns()
        await opened.write(data)
        if await opened.read(size) != data:
            raise RuntimeError("another answer")
        tally.latencies_ns.append(time.monotonic_ns() - start)
    await opened.finish(b"")


async def handshakes(connect: Connect, tally: Tally) -> None:
    """Connect and close; what a stack does after closing overlaps the next handshake."""
    while not tally.is_over:
        start = time.monotonic_ns()
        made = await connect()
        tally.latencies_ns.append(time.monotonic_ns() - start)
        closing = made.end()
        if closing is not None:
            task = asyncio.ensure_future(closing)
            tally.closing.add(task)
            task.add_done_callback(tally.closing.discard)


async def datagrams(connection: Connection, size: int, tally: Tally) -> None:
    """Send as many datagrams as possible."""
    data = bytes(size)
    while not tally.is_over:
        tally.sent += await connection.send_datagrams(data, 64)


async def idle(control: Connection, count: int, connect: Connect) -> dict[str, Any]:
    """Open `count` connections, and keep them."""
    first, own = await ask(control), rss()
    held = [await connect() for _ in range(count)]
    last = await ask(control)
    result = {"first": first, "last": last, "client_rss": rss() - own, "held": len(held)}
    print(json.dumps(result), flush=True)
    # Closing a thousand connections is not measured.
    sys.stdout.flush()
    os._exit(0)
