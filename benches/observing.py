"""The cost of observing a loop: the same work with and without a profile, a watchdog, a hook.

    python benches/observing.py --rounds 11
    python benches/observing.py --only service --tools profile,waiting

Runs alternate, one process each, with the interpreter that runs this. The figures are ratios of the CPU
time of the whole process, including the tool's threads, with the tool to without: median and quartiles
of the rounds. A profile samples by wall-clock time: a process that gets only a part of a CPU is sampled
more often per second of its CPU time. So the cost of one sample is given as well.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import time
from typing import Any

import ringloop

SLEEPERS = 1000


def tool(name: str) -> Any:
    """Make a tool that observes the loops of this process."""
    if name == "profile":
        return ringloop.profile()
    if name == "waiting":
        return ringloop.profile(mode="waiting")
    if name == "watchdog":
        return ringloop.watchdog(0.1, hook=lambda _: None)
    return contextlib.nullcontext()


async def callbacks(scale: int) -> None:
    """Run short callbacks, one after the other."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    left = 400_000 * scale

    def again() -> None:
        nonlocal left
        left -= 1
        if left:
            loop.call_soon(again)
        else:
            ended.set_result(None)

    loop.call_soon(again)
    await ended


async def service(scale: int) -> None:
    """Answer the lines of four clients; the loop also waits in the kernel."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(str(sum(range(200))).encode() + line)
        writer.close()

    async def ask(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(5000 * scale):
            writer.write(b"line\n")
            await reader.readline()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, asyncio.TaskGroup() as clients:
        for _ in range(4):
            clients.create_task(ask(server.sockets[0].getsockname()[1]))


async def sleepers(scale: int) -> None:
    """Compute briefly while a thousand tasks wait."""
    tasks = [asyncio.create_task(asyncio.sleep(3600)) for _ in range(SLEEPERS)]
    for _ in range(20_000 * scale):
        sum(range(500))
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


ROWS = {"callbacks": callbacks, "service": service, "sleepers": sleepers}
TOOLS = ("profile", "waiting", "watchdog", "hook")
SAMPLING = {"profile", "waiting"}


def child(row: str, name: str, scale: int) -> None:
    """Do the work; print the CPU seconds that the process took for it."""

    async def main() -> None:
        if name == "hook":
            loop: Any = asyncio.get_running_loop()
            loop.set_slow_callback_hook(1000, print)
        await ROWS[row](scale)

    with tool(name) as made:
        began = time.process_time()
        ringloop.run(main())
        seconds = time.process_time() - began
    print(seconds, made.samples if name in SAMPLING else 0)


def measured(row: str, name: str, scale: int) -> tuple[float, int]:
    """Run a child; return its CPU seconds and the samples of its profile."""
    command = [sys.executable, __file__, "--child", row, name, str(scale)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    seconds, samples = done.stdout.split()
    return float(seconds), int(samples)


def main() -> None:
    """Run the comparison that the command line requests."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--scale", type=int, default=2, help="amount of work per run")
    parser.add_argument("--only", default=",".join(ROWS))
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(asked.child[0], asked.child[1], int(asked.child[2]))
        return
    print("| work | tool | CPU time, with to without | quartiles | µs per sample |")
    print("|---|---|--:|--:|--:|")
    for row in asked.only.split(","):
        for name in asked.tools.split(","):
            ratios, each = [], []
            for round_ in range(asked.rounds):
                order = [name, ""] if round_ % 2 else ["", name]
                found = {which: measured(row, which, asked.scale) for which in order}
                (seconds, samples), (without, _) = found[name], found[""]
                ratios.append(seconds / without)
                each += [(seconds - without) / samples * 1e6] if samples else []
            low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
            sample = f"{statistics.median(each):.0f}" if each else ""
            quartiles = f"{low:.3f} to {high:.3f}"
            print(f"| {row} | {name} | {middle:.3f} | {quartiles} | {sample} |", flush=True)


if __name__ == "__main__":
    main()
