"""Compare two builds of ringloop: the same work on each, interleaved, one process per run.

    python3 benches/builds.py OLD NEW --only tls_handshakes --rounds 9
    python3 benches/builds.py OLD NEW --instructions --only ready_chain

OLD and NEW are Python interpreters of the same version, each with a release build of ringloop:

    git worktree add ../old COMMIT && cd ../old && tools/make-venv .venv-3.14 python3.14
    tools/develop .venv-3.14 --release          # the interpreter is ../old/.venv-3.14/bin/python

Both run the workloads of this checkout. A table of ratios goes to standard output: the CPU time per
operation, new to old, as the median and the quartiles of the rounds. `--instructions` counts the
instructions per operation with valgrind, unaffected by other load; only for rows without a load
generator.

Code layout alone moves a row by up to 10 %, and every source change alters it. With `--layouts N` each
round uses another of N random function orders of both builds, made by `benches/relink`:

    benches/relink ../old .venv-3.14 8         # also for ../new: target/layouts/1 to 8
    python3 benches/builds.py ../old/target/layouts/{}/python ../new/target/layouts/{}/python --layouts 8
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from comparison import machine, paths
from comparison.environment import build_native
from comparison.measuring import Contestant, Runs, Settings, in_turns, run_once, run_variables
from comparison.rows import Row, all_rows, selected
from comparison.telling import say

DRIVERS = ("uring", "epoll")
# Two round counts: their difference leaves out process start and exit.
COUNTED_ROUNDS = (1, 5)


@dataclass(frozen=True)
class Build:
    """A build of ringloop on one driver."""

    age: str
    driver: str
    python: Path

    @property
    def name(self) -> str:
        """The name that progress output shows."""
        return f"{self.age} {self.driver}"


def main() -> None:
    """Run what the command line asks for."""
    options = parse_arguments()
    if options.layouts and not all("{}" in str(one) for one in (options.old, options.new)):
        sys.exit("--layouts requires {} in OLD and NEW for the layout's number")
    rows = selected(all_rows((options.size,), (options.connections,)), options.only)
    if not rows:
        sys.exit("--only matches no row; compare.py --list shows their names")
    builds = [
        Build(age, driver, python)
        for driver in options.drivers
        for age, python in (("old", options.old), ("new", options.new))
    ]
    print("; ".join(f"{name} {value}" for name, value in machine.describe().items()) + "\n")
    if options.instructions:
        counted = [row for row in rows if not row.is_served]
        tell("instructions", [(row, count(row, builds)) for row in counted], options.drivers)
        return
    build_native(say)
    measured = paired(rows, builds, options)
    tell("CPU time", [(row, measured[row.name]) for row in rows], options.drivers)


Figures = dict[str, list[float]]


def paired(
    rows: Sequence[Row], builds: Sequence[Build], options: argparse.Namespace
) -> dict[str, Figures]:
    """CPU time per operation by row and build, one figure per round."""
    server_cpu, load_cpu = machine.choose_cpus(None, None)

    def once(row: Row, build: Build, runs: Runs) -> None:
        python = of_layout(build.python, 1 + len(runs.details) % (options.layouts or 1))
        settings = Settings(python, 0, options.seconds, server_cpu, load_cpu, None)
        run_once(row, Contestant(f"ringloop-{build.driver}"), settings, runs)

    measured = in_turns([(row, builds) for row in rows], options.rounds, once, say)
    return {
        name: {build: [cpu_of(detail) for detail in runs.details] for build, runs in all_.items()}
        for name, all_ in measured.items()
    }


def of_layout(python: Path, layout: int) -> Path:
    """The interpreter of a layout: `{}` in the path is its number."""
    return Path(str(python).replace("{}", str(layout)))


def cpu_of(detail: dict[str, object]) -> float:
    """Microseconds per operation, of the server if there is one."""
    return float(str(detail.get("server_cpu_us") or detail["cpu_us"]))


def count(row: Row, builds: Sequence[Build]) -> Figures:
    """Instructions per operation by build."""
    figures = {}
    for build in builds:
        say(f"{row.name}, {build.name}")
        few, many = (callgrind(row, build, rounds) for rounds in COUNTED_ROUNDS)
        figures[build.name] = [(many[0] - few[0]) / (many[1] - few[1])]
    return figures


def callgrind(row: Row, build: Build, rounds: int) -> tuple[int, int]:
    """Instructions and operations of a process that runs `rounds` rounds."""
    words = [
        *("valgrind", "--tool=callgrind", f"--callgrind-out-file={os.devnull}"),
        *(str(build.python), str(paths.WORKLOADS / f"{row.workload}.py")),
        *(f"ringloop-{build.driver}", *row.arguments, "--rounds", str(rounds)),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=run_variables())
    total = re.search(r"refs:\s+([\d,]+)", done.stderr)
    if total is None:
        sys.exit(f"valgrind printed no count:\n{done.stderr}")
    return int(total[1].replace(",", "")), json.loads(done.stdout.splitlines()[-1])["ops"]


def tell(what: str, rows: Sequence[tuple[Row, Figures]], drivers: Sequence[str]) -> None:
    """Print the table of ratios, new to old, of the metric `what`."""
    print(f"| {what} per operation, new ÷ old | " + " | ".join(drivers) + " |")
    print("|---|" + "--:|" * len(drivers))
    for row, figures in rows:
        cells = [cell(figures[f"old {driver}"], figures[f"new {driver}"]) for driver in drivers]
        print(f"| {row.name} | " + " | ".join(cells) + " |")


def cell(old: Sequence[float], new: Sequence[float]) -> str:
    """Format a ratio for the table."""
    ratios = [later / earlier for earlier, later in zip(old, new, strict=False)]
    if len(ratios) < 2:
        return f"{ratios[0]:.3f}" if ratios else "fails"
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path, help="interpreter with the older build")
    parser.add_argument("new", type=Path, help="interpreter with the newer build")
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help="rows")
    parser.add_argument("--rounds", type=int, default=7, help="[%(default)s]")
    parser.add_argument(
        "--layouts", type=int, metavar="N", help="number of function orders, in turn"
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="of a run [%(default)s]")
    parser.add_argument("--size", type=int, default=1024, help="echo message bytes [%(default)s]")
    parser.add_argument("--connections", type=int, default=32, help="[%(default)s]")
    parser.add_argument("--drivers", nargs="+", default=DRIVERS, choices=DRIVERS)
    parser.add_argument(
        "--instructions", action="store_true", help="count instructions with valgrind"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
