"""What `python -m ringloop bench` measures: `python -m ringloop._bench.workloads LOOP ROW SCALE`.

Owns: the rows, and one run of one of them on one loop, which prints a line of JSON. Called by: `runs`,
in one process per run. A tenth of the work runs first as a warm-up.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_MESSAGE = b"x" * 1024
_CONNECTIONS = 16
_TASKS_AT_ONCE = 1000


@dataclass(frozen=True)
class Row:
    """One row of the table, in operations per second."""

    name: str
    what: str
    # Runs so many operations on a loop.
    work: Callable[[asyncio.AbstractEventLoop, int], None]
    count: int


def _callbacks(loop: asyncio.AbstractEventLoop, count: int) -> None:
    for _ in range(count):
        loop.call_soon(int)
    loop.call_soon(loop.stop)
    loop.run_forever()


def _chain(loop: asyncio.AbstractEventLoop, count: int) -> None:
    left = count

    def again() -> None:
        nonlocal left
        left -= 1
        if left:
            loop.call_soon(again)
        else:
            loop.stop()

    loop.call_soon(again)
    loop.run_forever()


def _tasks(loop: asyncio.AbstractEventLoop, count: int) -> None:
    async def main() -> None:
        for _ in range(count // _TASKS_AT_ONCE):
            await asyncio.gather(*(asyncio.sleep(0) for _ in range(_TASKS_AT_ONCE)))

    loop.run_until_complete(main())


def _timers(loop: asyncio.AbstractEventLoop, count: int) -> None:
    now = loop.time()
    for number in range(count):
        handle = loop.call_at(now + number * 1e-7, int)
        if number % 2:
            handle.cancel()
    loop.call_at(now + count * 1e-7, loop.stop)
    loop.run_forever()


class _Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.write: Any = transport.write  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.write(data)


class _Client(asyncio.Protocol):
    def __init__(self, count: int, done: asyncio.Future[None]) -> None:
        self.left = count
        self.bytes = 0
        self.done = done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport
        self.transport.write(_MESSAGE)

    def data_received(self, data: bytes) -> None:
        self.bytes += len(data)
        if self.bytes < len(_MESSAGE):
            return
        self.bytes = 0
        self.left -= 1
        if self.left:
            self.transport.write(_MESSAGE)
        else:
            self.transport.close()
            self.done.set_result(None)


def _echo_by_protocols(loop: asyncio.AbstractEventLoop, count: int) -> None:
    async def main() -> None:
        server = await loop.create_server(_Echo, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        ends = [loop.create_future() for _ in range(_CONNECTIONS)]
        each = count // _CONNECTIONS
        for end in ends:
            await loop.create_connection(lambda end=end: _Client(each, end), *address)  # type: ignore[misc]
        await asyncio.gather(*ends)
        server.close()
        await server.wait_closed()

    loop.run_until_complete(main())


def _echo_by_streams(loop: asyncio.AbstractEventLoop, count: int) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def ask(address: tuple[str, int]) -> None:
        reader, writer = await asyncio.open_connection(*address)
        for _ in range(count // _CONNECTIONS):
            writer.write(_MESSAGE)
            await reader.readexactly(len(_MESSAGE))
        writer.close()
        await writer.wait_closed()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        await asyncio.gather(*(ask(address) for _ in range(_CONNECTIONS)))
        server.close()
        await server.wait_closed()

    loop.run_until_complete(main())


ROWS = {
    row.name: row
    for row in (
        Row("callbacks", "call_soon, all queued before the loop runs", _callbacks, 200_000),
        Row("chain", "call_soon, each by the callback before", _chain, 200_000),
        Row("tasks", "gather() of 1,000 sleep(0)", _tasks, 40_000),
        Row("timers", "call_at; half of them are cancelled", _timers, 100_000),
        Row("echo protocol", "round trips of 1 KiB, 16 connections", _echo_by_protocols, 32_000),
        Row(
            "echo streams", "the same with StreamReader and StreamWriter", _echo_by_streams, 16_000
        ),
    )
}


def new_loop(name: str) -> asyncio.AbstractEventLoop:
    """Make the loop of a column of the table."""
    if name == "asyncio":
        return asyncio.SelectorEventLoop()
    if name == "uvloop":
        # A peer, where it is installed.
        uvloop = importlib.import_module("uvloop")
        made: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        return made
    import ringloop  # noqa: PLC0415

    driver: Any = name.removeprefix("ringloop-")
    return ringloop.new_event_loop(driver=driver)


def measure(loop_name: str, row: Row, scale: float) -> dict[str, Any]:
    """Run a row once; return what it took."""
    count = max(_TASKS_AT_ONCE, round(row.count * scale))
    loop = new_loop(loop_name)
    try:
        row.work(loop, max(_TASKS_AT_ONCE, count // 10))
        start = time.perf_counter()
        cpu = time.process_time()
        row.work(loop, count)
        seconds = time.perf_counter() - start
        cpu = time.process_time() - cpu
    finally:
        loop.close()
    return {"count": count, "seconds": seconds, "cpu_seconds": cpu, "loop": type(loop).__module__}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(sys.argv[1], ROWS[sys.argv[2]], float(sys.argv[3]))))
