"""The minimum cost of a request with Python on both ends: CPU time of both ends in one process.

    python benches/quic/ceiling/floor.py [--loop asyncio] [--only floor|bare] [--tasks 100 --bytes 1024]

`api` is `ringloop.quic` as applications use it: a coroutine per stream at the server, three awaits at
the client. `floor` is the same exchange with the native classes only: one callback per request at the
server, which creates the stream, reads, writes and finishes; one task at the client with the same
calls and one wait. The difference is the cost of the package; the difference between `floor` and
`perf both` of `crates/ringloop-quic/examples/perf.rs` is the cost of the interpreter and the loop.
`bare` has the coroutines of `api` without an engine: a stream is a deque, nothing is sent, nothing
waits. That is the minimum for a program of that shape. `--tasks 100` runs that many requests
concurrently.

Owns: both exchanges, in turns. Needs `cryptography` for its certificate.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "peers"), str(HERE.parent)]

from peer import loop_factory  # noqa: E402
from workload import ALPN  # noqa: E402

from ringloop import quic  # noqa: E402
from ringloop._native import quic as native  # noqa: E402
from ringloop.quic._driver import Driver, bind  # noqa: E402

READ_BYTES = 1 << 18
Exchange = Callable[[int], Awaitable[None]]


async def api(folder: Path, request: bytes) -> Exchange:
    """Serve and connect with the package."""

    async def answer(stream: quic.Stream) -> None:
        while data := await stream.read(READ_BYTES):
            await stream.send(data)

    server = await quic.serve(
        host="127.0.0.1",
        port=0,
        stream_handler=answer,
        certificate=str(folder / "cert.pem"),
        private_key=str(folder / "key.pem"),
        alpn=[ALPN],
    )
    connection = await connect(folder, server.address)

    async def exchange(count: int) -> None:
        for _ in range(count):
            stream = await connection.open_stream()
            stream.write(request)
            stream.finish()
            check(await stream.read_to_end(), request)

    return exchange


def answer(stream: Any, torn: set[asyncio.Task[None]]) -> None:
    """Send back what was received, immediately if it is complete."""
    while data := stream._take(READ_BYTES):
        stream.write(data)
    if data is None:
        task = asyncio.ensure_future(wait_and_answer(stream, torn))
        torn.add(task)
        task.add_done_callback(torn.discard)
    else:
        stream.finish()


async def wait_and_answer(stream: Any, torn: set[asyncio.Task[None]]) -> None:
    """Continue when there is more."""
    await stream._read_waiter()
    answer(stream, torn)


async def floor(folder: Path, request: bytes) -> Exchange:
    """Serve and exchange with native calls only."""
    config = native.ServerConfig(
        certificate=str(folder / "cert.pem"), private_key=str(folder / "key.pem"), alpn=[ALPN]
    )
    connections: dict[int, native.Connection] = {}
    # Requests that arrived in more than one packet.
    torn: set[asyncio.Task[None]] = set()

    def on_events(accepted: list[int], eventful: list[int], _gone: list[int]) -> None:
        for key in accepted:
            connections[key] = native.Connection(server, key)
            connections[key]._announce_streams()
        for key in eventful:
            connection = connections[key]
            for stream_id in connection._accept_streams():
                answer(native.Stream(connection, stream_id), torn)

    sock = bind("127.0.0.1")
    server = native.Endpoint(server=config, fd=sock.fileno())
    driver = Driver(asyncio.get_running_loop(), sock, server, on_events)
    connection = await connect(folder, driver.address)

    async def exchange(count: int) -> None:
        for _ in range(count):
            while (stream_id := connection._open_stream()) is None:
                await connection._waiter("open", False)
            stream = native.Stream(connection, stream_id)
            stream.write(request)
            stream.finish()
            got = await read_to_end(stream)
            check(got, request)

    return exchange


class Bare(deque[bytes]):
    """A stream without an engine: reads return what was written."""

    __slots__ = ()

    async def read(self, _n: int) -> bytes:
        """Take a piece; b"" is EOF."""
        return self.popleft()

    async def read_to_end(self) -> bytes:
        """Take what was echoed."""
        return self.popleft()


async def bare(_folder: Path, request: bytes) -> Exchange:
    """Exchange with coroutines that never wait."""
    loop = asyncio.get_running_loop()
    sent = loop.create_future()
    sent.set_result(None)

    async def open_stream() -> Bare:
        return Bare()

    async def answer(stream: Bare) -> None:
        while data := await stream.read(READ_BYTES):
            stream.append(data)
            await sent

    async def exchange(count: int) -> None:
        for _ in range(count):
            stream = await open_stream()
            stream.append(request)
            stream.append(b"")
            asyncio.Task(answer(stream), loop=loop, eager_start=True)
            check(await stream.read_to_end(), request)

    return exchange


async def read_to_end(stream: Any) -> bytes:
    """Read with native calls."""
    got = b""
    while (data := stream._take(READ_BYTES)) != b"":
        if data is None:
            await stream._read_waiter()
        else:
            got = got + data if got else data
    return got


async def connect(folder: Path, address: Any) -> quic.Connection:
    """Connect to either server."""
    return await quic.open_connection(
        address[0], address[1], server_name="localhost", ca_file=str(folder / "ca.pem"), alpn=[ALPN]
    )


def check(answer: bytes, request: bytes) -> None:
    """Check that it is what was sent."""
    if answer != request:
        raise RuntimeError("another answer")


async def run(options: argparse.Namespace, folder: Path) -> None:
    """Take turns, and print the minimum."""
    made = {"api": api, "floor": floor, "bare": bare}
    names = [options.only] if options.only else list(made)
    request = bytes(options.bytes)
    exchanges = {name: await made[name](folder, request) for name in names}
    each = options.requests // options.tasks
    least = dict.fromkeys(names, float("inf"))
    for _ in range(options.batches):
        for name, exchange in exchanges.items():
            began = time.process_time()
            await asyncio.gather(*(exchange(each) for _ in range(options.tasks)))
            took = (time.process_time() - began) / (each * options.tasks) * 1e6
            least[name] = min(least[name], took)
    for name, took in least.items():
        print(f"{name}: {took:.1f} us of CPU a request, both ends, least of {options.batches}")


def main() -> None:
    """Create certificates, and run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--loop", default="ringloop", choices=("asyncio", "uvloop", "ringloop"))
    parser.add_argument("--only", choices=("api", "floor", "bare"))
    parser.add_argument("--tasks", type=int, default=1)
    parser.add_argument("--bytes", type=int, default=64)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--batches", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, str(HERE.parent / "certificates.py"), folder], check=True)
        with asyncio.Runner(loop_factory=loop_factory(options.loop)) as runner:
            runner.run(run(options, Path(folder)))


if __name__ == "__main__":
    main()
