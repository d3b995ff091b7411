"""The timed part of a workload that runs in one process.

Owns: warm-up, garbage collection, the clock, the JSON line. Called by: the scheduling workloads.
Does no work of the workload itself: what a round needs is created inside the timed part.

A workload gives `measure` one function, a round: it runs the loop for a fixed amount of work and
returns the number of operations. Rounds are repeated until the time is over; the first one is not
counted.
"""

import argparse
import asyncio
import contextlib
import gc
import json
import resource
import sys
import time
from collections.abc import Callable

from support.loops import FACTORIES, new_loop, pin_to_cpu

Round = Callable[[asyncio.AbstractEventLoop], int]
Surroundings = Callable[[asyncio.AbstractEventLoop], contextlib.AbstractContextManager[object]]


def measure(one_round: Round, surroundings: Surroundings = contextlib.nullcontext) -> None:
    """Run a workload as the command line asks and print its JSON line.

    `surroundings` is entered before the timed part and left after it, for things that must exist
    but are not measured, such as idle connections.
    """
    options = parse_arguments()
    pin_to_cpu(options.cpu)
    loop = new_loop(options.loop)
    with contextlib.closing(loop), surroundings(loop):
        one_round(loop)
        gc.collect()
        if options.gc == "off":
            gc.disable()
        cpu_began = cpu_seconds()
        operations, seconds = timed(one_round, loop, options)
        cpu = cpu_seconds() - cpu_began
        gc.enable()
    result = {
        "loop": options.loop,
        "ops": operations,
        "seconds": seconds,
        "cpu_us": cpu / operations * 1e6,
        "gc": options.gc,
    }
    sys.stdout.write(json.dumps(result) + "\n")


def timed(
    one_round: Round, loop: asyncio.AbstractEventLoop, options: argparse.Namespace
) -> tuple[int, float]:
    """Repeat rounds for the time or the number asked for; return operations and seconds."""
    operations = rounds = 0
    start = time.perf_counter()
    while True:
        operations += one_round(loop)
        rounds += 1
        elapsed = time.perf_counter() - start
        if elapsed >= options.seconds if options.rounds is None else rounds >= options.rounds:
            return operations, elapsed


def cpu_seconds() -> float:
    """CPU time of this process and of the children it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def parse_arguments() -> argparse.Namespace:
    """Parse the arguments that all scheduling workloads share."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("loop", choices=FACTORIES)
    parser.add_argument("--seconds", type=float, default=1.0, help="time at least [%(default)s]")
    parser.add_argument("--rounds", type=int, help="a number of rounds in place of a time")
    parser.add_argument("--cpu", type=int, help="run on this CPU only")
    parser.add_argument("--gc", choices=["on", "off"], default="off", help="[%(default)s]")
    return parser.parse_args()
