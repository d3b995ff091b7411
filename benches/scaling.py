"""Loops in threads: the speed-up of two loops in two threads over one, on free-threaded CPython.

`python benches/scaling.py LOOP` runs each workload on one loop and then on `--threads` loops at once,
each in its own thread and on its own CPU, `--rounds` times in turn, and prints the medians and their
ratio. With the GIL the ratio is about 1; without it, it is the number of threads minus the cost of
what the loops share.

Two kinds of callbacks show different costs: `callbacks` are functions of each thread; `shared callback`
is one function for all threads, whose reference count every loop changes with every call.
"""

import argparse
import asyncio
import gc
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "workloads"))

from support.loops import FACTORIES, new_loop

Work = Callable[[asyncio.AbstractEventLoop], int]

BATCH = 20_000
TASKS = 2_000
MESSAGES = 1_000


def shared_callback() -> None:
    """Do nothing; shared by all threads."""


def callbacks_of(callback: Callable[[], None]) -> Work:
    """Schedule a batch, then run it."""

    def work(loop: asyncio.AbstractEventLoop) -> int:
        for _ in range(BATCH):
            loop.call_soon(callback)
        loop.call_soon(loop.stop)
        loop.run_forever()
        return BATCH

    return work


def own_callbacks() -> Work:
    """Create callbacks owned by this thread."""

    def callback() -> None:
        pass

    return callbacks_of(callback)


def shared_callbacks() -> Work:
    """Use the callback shared by all threads."""
    return callbacks_of(shared_callback)


def chain() -> Work:
    """Let each callback schedule the next."""

    def work(loop: asyncio.AbstractEventLoop) -> int:
        left = BATCH

        def link() -> None:
            nonlocal left
            left -= 1
            if left:
                loop.call_soon(link)
            else:
                loop.stop()

        loop.call_soon(link)
        loop.run_forever()
        return BATCH

    return work


def in_a_run(main: Callable[[], Coroutine[Any, Any, int]]) -> Work:
    """Run a coroutine per round."""
    return lambda loop: loop.run_until_complete(main())


def tasks() -> Work:
    """Gather tasks that are suspended once."""

    async def suspended_once() -> None:
        await asyncio.sleep(0)

    async def main() -> int:
        await asyncio.gather(*(suspended_once() for _ in range(TASKS)))
        return TASKS

    return in_a_run(main)


def streams() -> Work:
    """Send messages to an echo server on the same loop and read them back."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def main() -> int:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        for _ in range(MESSAGES):
            writer.write(b"x" * 1024)
            await reader.readexactly(1024)
        writer.close()
        await writer.wait_closed()
        server.close()
        return MESSAGES

    return in_a_run(main)


WORKLOADS: dict[str, Callable[[], Work]] = {
    "callbacks": own_callbacks,
    "shared callback": shared_callbacks,
    "chain": chain,
    "tasks": tasks,
    "streams": streams,
}


def rate(loop_name: str, make_work: Callable[[], Work], threads: int, seconds: float) -> float:
    """Return the operations per second of all threads together."""
    start = threading.Barrier(threads)
    rates: list[float] = []

    def body(cpu: int) -> None:
        os.sched_setaffinity(0, {cpu})
        loop, work = new_loop(loop_name), make_work()
        work(loop)
        start.wait()
        done, began = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - began) < seconds:
            done += work(loop)
        rates.append(done / elapsed)
        start.wait()  # no thread runs alone at the end of the measured time
        loop.close()

    cpus = sorted(os.sched_getaffinity(0))
    bodies = [threading.Thread(target=body, args=(cpus[n % len(cpus)],)) for n in range(threads)]
    for thread in bodies:
        thread.start()
    for thread in bodies:
        thread.join()
    return sum(rates)


def main() -> None:
    """Print one line per workload."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loop", choices=FACTORIES)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=WORKLOADS, action="append")
    options = parser.parse_args()
    gc.disable()
    for name in options.only or WORKLOADS:
        ones, manys = [], []
        for _ in range(options.rounds):
            ones.append(rate(options.loop, WORKLOADS[name], 1, options.seconds))
            manys.append(rate(options.loop, WORKLOADS[name], options.threads, options.seconds))
        one, many = statistics.median(ones), statistics.median(manys)
        print(
            f"{options.loop:15} {name:16} {one:12,.0f} {many:12,.0f} {many / one:6.2f}", flush=True
        )


if __name__ == "__main__":
    main()
