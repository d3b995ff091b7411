"""Compare what a request costs one worker of `ringloop.run_workers`, two threads, and two processes.

    .venv-3.14t/bin/python benches/workers.py --rounds 20 --seconds 0.5

The three take turns, so that the figures of a round are close in time. On two CPUs the load generator
needs one of them, so the rate cannot show what two workers can do; the CPU time of a request can: twice
that of one worker over that of two is the number of workers, less what they share. Two processes share
nothing of ours: a difference from them is what threads cost. Free-threaded CPython only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ringloop

sys.path.insert(0, str(Path(__file__).parent / "workloads"))

from tcp_protocol import Echo
from uvicorn_plaintext import app

from comparison.results import interval

if TYPE_CHECKING:
    from collections.abc import Iterator

WAYS = {"one": (1, "thread"), "two threads": (2, "thread"), "two processes": (2, "process")}
MODES = {"protocol": "echo", "streams": "echo", "uvicorn": "http"}
START_SECONDS_MAX = 20.0


async def protocol(worker: ringloop.Worker) -> None:
    """Echo by a protocol."""
    server = await asyncio.get_running_loop().create_server(Echo, sock=worker.sockets[0])
    async with server:
        await worker.stopping()


async def streams(worker: ringloop.Worker) -> None:
    """Echo by asyncio's streams."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The load generator resets what it has open at the end.
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(echo, sock=worker.sockets[0]):
        await worker.stopping()


async def uvicorn(worker: ringloop.Worker) -> None:
    """Serve plain text; by h11, as httptools turns the GIL on."""
    from uvicorn import Config, Server

    config = Config(app, http="h11", ws="none", lifespan="off", access_log=False, log_level="error")
    server = Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=list(worker.sockets)))
    await worker.stopping()
    server.should_exit = True
    await serving


def main() -> None:
    """Run what the command line asks for."""
    options = parse_arguments()
    if options.serve:
        count, kind = WAYS[options.way]
        address = f"127.0.0.1:{options.serve}"
        sys.exit(
            ringloop.run_workers(
                globals()[options.workload],
                count,
                kind=kind,
                listen=[address],
                driver=options.driver,
            )
        )
    if getattr(sys, "_is_gil_enabled", lambda: True)():
        sys.exit("workers.py: needs a free-threaded CPython with the GIL off, such as 3.14t")
    for workload in options.only or MODES:
        measure(workload, options)


def measure(workload: str, options: argparse.Namespace) -> None:
    """Run the ways in turns; print the medians of the ratios within a round."""
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for number in range(options.rounds):
        print(f"\r{workload}: round {number + 1} of {options.rounds}", end="", file=sys.stderr)
        for way in WAYS:
            runs[way].append(run_once(workload, way, options))
    print(file=sys.stderr)
    costs = {way: [one["server_cpu_us"] for one in done] for way, done in runs.items()}
    rates = {way: [one["rate"] for one in done] for way, done in runs.items()}
    for way in WAYS:
        cost, rate = statistics.median(costs[way]), statistics.median(rates[way])
        print(f"{workload}, {options.driver}, {way}: {cost:.2f} us of CPU a request, {rate:,.0f}/s")
    for few, many, factor in (
        ("one", "two threads", 2),
        ("one", "two processes", 2),
        ("two processes", "two threads", 1),
    ):
        pairs = zip(costs[few], costs[many], strict=True)
        ratios = [factor * fewer / more for fewer, more in pairs]
        low, high = interval(ratios)
        middle = statistics.median(ratios)
        print(
            f"{workload}, {options.driver}: CPU a request, {factor} x {few} / {many}: "
            f"{middle:.3f} ({low:.3f} to {high:.3f})"
        )


def run_once(workload: str, way: str, options: argparse.Namespace) -> dict[str, Any]:
    """Load new workers once; return what was counted, with their CPU time of a request."""
    with started(workload, way, options) as (port, pids):
        command = [
            options.loadgen,
            *("--addr", f"127.0.0.1:{port}", "--mode", MODES[workload]),
            *("--connections", str(options.connections), "--size", "1024"),
            *("--seconds", str(options.seconds), "--warmup", "0.4"),
        ]
        for pid in pids:
            command += ["--server-pid", str(pid)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    counted: dict[str, Any] = json.loads(done.stdout)
    if counted["errors"] or not counted["requests"]:
        sys.exit(f"workers.py: {workload}, {way}: {counted}")
    busy = counted["server_busy"] * counted["seconds"]
    counted["server_cpu_us"] = busy / counted["requests"] * 1e6
    counted["rate"] = counted["requests"] / counted["seconds"]
    return counted


@contextmanager
def started(
    workload: str, way: str, options: argparse.Namespace
) -> Iterator[tuple[int, list[int]]]:
    """Start workers in a process of its own; yield their port and their processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, __file__, "--driver", options.driver, "--only", workload]
    with subprocess.Popen([*command, "--serve", str(port), "--way", way]) as server:
        try:
            answering(port, server)
            children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text()
            yield port, [server.pid, *map(int, children.split())]
        finally:
            server.terminate()


def answering(port: int, server: subprocess.Popen[bytes]) -> None:
    """Wait for the workers; the listening socket is there before them."""
    until = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < until and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.02)
        else:
            # For the second worker.
            time.sleep(0.3)
            return
    sys.exit("workers.py: the workers did not start; what they wrote is above")


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--driver", choices=["uring", "epoll"], default="uring")
    parser.add_argument("--only", action="append", choices=MODES, metavar="WORKLOAD")
    parser.add_argument("--rounds", type=int, default=20, help="[%(default)s]")
    parser.add_argument("--seconds", type=float, default=0.5, help="a run's [%(default)s]")
    parser.add_argument("--connections", type=int, default=64, help="[%(default)s]")
    parser.add_argument("--loadgen", default="target/release/loadgen", help="[%(default)s]")
    parser.add_argument("--serve", type=int, metavar="PORT", help=argparse.SUPPRESS)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        (options.workload,) = options.only
    if not options.serve and not os.access(options.loadgen, os.X_OK):
        parser.error(
            f"{options.loadgen}: no load generator; --loadgen PATH, or `make bench-workers`"
        )
    return options


if __name__ == "__main__":
    main()
