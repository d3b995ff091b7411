"""Compare Rust clients awaited from Python: ringloop-pyo3, and pyo3-async-runtimes with tokio.

    make bench-extension                                everything
    make bench-extension ARGS="--rounds 3"              a first look

Each client asks one C echo server on loopback; a run is a process of its own, and the contestants take
turns within a round. Rates are round trips a second; CPU time is that of the client's process, user and
system, all threads. The figures are medians of the rounds, ratios medians of the ratios within a round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BYTES = 64
# What docs/deployment.md advises; on request only.
BUSY_SECONDS = 0.00005

# What the machine allows one thread: each client in turn sends, then each waits for its bytes.
FLOOR = "blocking sockets in Python, no loop"
# Name: module, loop, threads of tokio.
CONTESTANTS = {
    "ringloop-pyo3, ring": ("ringloop_echo", "uring", 0),
    "ringloop-pyo3, epoll": ("ringloop_echo", "epoll", 0),
    "ringloop-pyo3, ring, busy polling": ("ringloop_echo", "busy", 0),
    "tokio, asyncio": ("tokio_echo", "asyncio", 0),
    "tokio, uvloop": ("tokio_echo", "uvloop", 0),
    "tokio of one thread, uvloop": ("tokio_echo", "uvloop", 1),
    "tokio of one thread, ringloop": ("tokio_echo", "uring", 1),
    FLOOR: ("", "", 0),
}
REFERENCE = "ringloop-pyo3, ring"
# Name: clients, round trips of each in one await, awaits of each.
WORKLOADS = {
    "one client, each round trip awaited": (1, 1, 10_000),
    "16 clients, each round trip awaited": (16, 1, 1500),
    "one client, 100 round trips an await": (1, 100, 200),
}


def loop_factory(name: str) -> Any:
    """Make a loop of that kind."""
    if name == "asyncio":
        return asyncio.new_event_loop
    if name == "uvloop":
        import uvloop

        return uvloop.new_event_loop
    from ringloop import Loop

    if name == "busy":
        return lambda: Loop(driver="uring", busy_polling=BUSY_SECONDS)
    return lambda: Loop(driver=name)


def play(contestant: str, workload: str, address: str) -> None:
    """One run, in this process: prints seconds, CPU seconds and round trips."""
    module, loop, threads = CONTESTANTS[contestant]
    clients, times, awaits = WORKLOADS[workload]
    if contestant == FLOOR:
        report(*without_loop(clients, times * awaits, address), clients * times * awaits)
        return
    echo = __import__(module)
    if threads:
        echo.use_threads(threads)
    data = bytes(range(BYTES))

    async def ask(client: Any, count: int) -> None:
        for _ in range(count):
            reply = await (client.echo(data) if times == 1 else client.echo_often(data, times))
            assert reply == data

    async def main() -> tuple[float, float]:
        connected = [await echo.connect(address) for _ in range(clients)]
        await asyncio.gather(*(ask(client, max(awaits // 10, 1)) for client in connected))
        began, cpu = time.perf_counter(), cpu_seconds()
        await asyncio.gather(*(ask(client, awaits) for client in connected))
        return time.perf_counter() - began, cpu_seconds() - cpu

    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        report(*runner.run(main()), clients * times * awaits)


def without_loop(clients: int, times: int, address: str) -> tuple[float, float]:
    """The same round trips by blocking sockets; seconds, and CPU seconds."""
    host, port = address.rsplit(":", 1)
    connected = [socket.create_connection((host, int(port))) for _ in range(clients)]
    data = bytes(range(BYTES))

    def ask(count: int) -> None:
        for _ in range(count):
            for client in connected:
                client.sendall(data)
            for client in connected:
                assert client.recv(BYTES, socket.MSG_WAITALL) == data

    ask(max(times // 10, 1))
    began, cpu = time.perf_counter(), cpu_seconds()
    ask(times)
    return time.perf_counter() - began, cpu_seconds() - cpu


def report(seconds: float, cpu: float, trips: int) -> None:
    """Print what a run measured."""
    print(json.dumps({"seconds": seconds, "cpu": cpu, "trips": trips}))


def cpu_seconds() -> float:
    """CPU time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def run(contestant: str, workload: str, address: str, folders: list[Path]) -> dict[str, float]:
    """One run, in a process of its own."""
    paths = os.pathsep.join(map(str, folders))
    done = subprocess.run(
        [sys.executable, __file__, "--play", contestant, workload, address],
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    )
    found = json.loads(done.stdout)
    return {
        "rate": found["trips"] / found["seconds"],
        "cpu": found["cpu"] / found["trips"] * 1e6,
    }


def tables(figures: dict[str, dict[str, list[dict[str, float]]]]) -> str:
    """The figures, as Markdown."""
    lines = []
    for workload, by_contestant in figures.items():
        lines += [
            f"\n{workload}:\n",
            f"| | round trips a second | {REFERENCE} has | CPU time each, µs | {REFERENCE} has |",
            "|---|--:|--:|--:|--:|",
        ]
        reference = by_contestant[REFERENCE]
        for name, runs in by_contestant.items():
            rate = statistics.median(run["rate"] for run in runs)
            cpu = statistics.median(run["cpu"] for run in runs)
            pairs = list(zip(reference, runs, strict=True))
            rates = statistics.median(ours["rate"] / theirs["rate"] for ours, theirs in pairs)
            cpus = statistics.median(ours["cpu"] / theirs["cpu"] for ours, theirs in pairs)
            lines.append(f"| {name} | {rate:,.0f} | {rates:.2f} × | {cpu:.1f} | {cpus:.2f} × |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--folders", type=Path, nargs="+", help="where the modules are")
    parser.add_argument("--server", type=Path, help="the compiled benches/floor/epoll_echo.c")
    parser.add_argument("--play", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.play:
        play(*arguments.play)
        return
    folders = [ROOT / "python", *(folder.resolve() for folder in arguments.folders)]
    figures: dict[str, dict[str, list[dict[str, float]]]] = {
        workload: {name: [] for name in CONTESTANTS} for workload in WORKLOADS
    }
    with subprocess.Popen([arguments.server], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        address = f"127.0.0.1:{int(server.stdout.readline())}"
        try:
            for number in range(arguments.rounds):
                for workload, by_contestant in figures.items():
                    for name, runs in by_contestant.items():
                        runs.append(run(name, workload, address, folders))
                print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
        finally:
            server.kill()
    print(
        f"CPython {platform.python_version()}, Linux {platform.release()}, {BYTES} bytes, ", end=""
    )
    print(f"{arguments.rounds} rounds, {os.cpu_count()} CPUs")
    print(tables(figures))


if __name__ == "__main__":
    main()
