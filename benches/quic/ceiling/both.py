"""Both ends of `ringloop.quic` in one process, for a fixed number of operations.

    python benches/quic/ceiling/both.py WORKLOAD SIZE COUNT [--tasks 100] [--loop asyncio] [--batches 7]

The programs are those of `benches/quic/peers`; workloads are `stream`, `request`, `pingpong` and
`handshake`, and `request` with 100 tasks is `churn`. Prints the CPU time of an operation. What
callgrind counts is divided likewise: the difference of two runs of different COUNT, one batch each.
`perf both` of `crates/ringloop-quic/examples/perf.rs` is the same without Python.

Owns: the exchanges. Needs `cryptography` for its certificate.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "peers"), str(HERE.parent)]

from native import Stack  # noqa: E402
from peer import loop_factory  # noqa: E402
from workload import Counts  # noqa: E402


async def pingpong(connection: Any, size: int, count: int) -> None:
    """Echo on one stream."""
    stream, data = await connection.open(), bytes(size)
    await stream.write(b"e")
    for _ in range(count):
        await stream.write(data)
        check(await stream.read(size), data)
    await stream.finish(b"")


async def request(connection: Any, size: int, count: int) -> None:
    """Echo, each on a stream of its own."""
    data = bytes(size)
    for _ in range(count):
        stream = await connection.open()
        await stream.finish(b"e" + data)
        check(await stream.read_all(), data)


async def stream(connection: Any, size: int, count: int) -> None:
    """Write, and wait until all was received."""
    opened, data = await connection.open(), bytes(size)
    await opened.write(b"s")
    for _ in range(count):
        await opened.write(data)
    await opened.finish(b"")
    await opened.read_all()


def check(answer: bytes, data: bytes) -> None:
    """Check that it is what was sent."""
    if answer != data:
        raise RuntimeError("another answer")


async def run(options: argparse.Namespace, folder: str) -> None:
    """Play the batches, and print the least and the median."""
    server, client = Stack(""), Stack("")
    await server.serve(options.port, f"{folder}/cert.pem", f"{folder}/key.pem", Counts())

    async def handshake(_connection: Any, _size: int, count: int) -> None:
        for _ in range(count):
            closing = (await client.connect(options.port, f"{folder}/ca.pem")).end()
            await closing

    workloads = {"stream": stream, "request": request, "pingpong": pingpong, "handshake": handshake}
    play = workloads[options.workload]
    connection = await client.connect(options.port, f"{folder}/ca.pem")
    each, took = options.count // options.tasks, []
    for _ in range(options.batches):
        began = time.process_time()
        plays = (play(connection, options.size, each) for _ in range(options.tasks))
        await asyncio.gather(*plays)
        took.append((time.process_time() - began) / (each * options.tasks) * 1e6)
    took.sort()
    least, median = took[0], took[len(took) // 2]
    print(f"us of CPU, both ends: least {least:.2f}, median {median:.2f}", flush=True)
    # Closing the server is not measured.
    os._exit(0)


def main() -> None:
    """Create certificates, and run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=("stream", "request", "pingpong", "handshake"))
    parser.add_argument("size", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--tasks", type=int, default=1)
    parser.add_argument("--batches", type=int, default=1)
    parser.add_argument("--port", type=int, default=45433)
    parser.add_argument("--loop", default="ringloop", choices=("asyncio", "uvloop", "ringloop"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, str(HERE.parent / "certificates.py"), folder], check=True)
        with asyncio.Runner(loop_factory=loop_factory(options.loop)) as runner:
            runner.run(run(options, folder))


if __name__ == "__main__":
    main()
