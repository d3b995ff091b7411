"""Memory of an idle loop that has run once, by loop.

    .venv-bench/3.14/bin/python benches/loop_memory.py [--loops uvloop,ringloop-uring] [--count 200]

Each kind of loop has its own process, which makes five loops, so that all code is loaded, and then
`--count` more. Two figures are printed per loop, both from `/proc/self/smaps`: the resident memory
of the process, and the memory that the kernel has allocated for the rings, touched or not. The kernel's
other memory is the same for all: an epoll set, an eventfd, a pair of sockets.
"""

import argparse
import asyncio
import gc
import resource
import subprocess
import sys
from pathlib import Path

from workloads.support.loops import FACTORIES, new_loop

LOOPS = "asyncio,uvloop,rloop,zloop,zuvloop,blazio,ringloop-uring,ringloop-epoll"
FIRST = 5
DESCRIPTORS = 4096


def main() -> None:
    """Print one line per loop."""
    options = parse_arguments()
    if options.measure:
        print(*measure(options.measure, options.count))
        return
    for name in options.loops.split(","):
        command = [sys.executable, __file__, "--measure", name, "--count", str(options.count)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(f"{name:16} fails: {done.stderr.strip().splitlines()[-1]}")
            continue
        resident, rings = map(float, done.stdout.split())
        print(f"{name:16} {resident:7.1f} KiB resident, {rings:6.1f} KiB of rings", flush=True)


def measure(name: str, count: int) -> tuple[float, float]:
    """Make the loops; return both figures in KiB for one of them."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(DESCRIPTORS, hard), hard))
    made = [loop_that_ran(name) for _ in range(FIRST)]
    before = mapped_kib()
    made += [loop_that_ran(name) for _ in range(count)]
    after = mapped_kib()
    for loop in made:
        loop.close()
    return (after[0] - before[0]) / count, (after[1] - before[1]) / count


def loop_that_ran(name: str) -> asyncio.AbstractEventLoop:
    """Make a loop and run it for a moment."""
    loop = new_loop(name)
    loop.run_until_complete(asyncio.sleep(0))
    return loop


def mapped_kib() -> tuple[int, int]:
    """Resident memory outside of rings, and the size of the rings."""
    gc.collect()
    resident = rings = 0
    of_a_ring = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if not first.endswith(":"):
            of_a_ring = "[io_uring]" in line
        elif first == "Rss:" and not of_a_ring:
            resident += int(rest[0])
        elif first == "Size:" and of_a_ring:
            rings += int(rest[0])
    return resident, rings


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--loops", default=LOOPS, help="[%(default)s]")
    parser.add_argument("--count", type=int, default=200, help="[%(default)s]")
    parser.add_argument("--measure", choices=FACTORIES, help="be one process (used internally)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
