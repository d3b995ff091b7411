"""Runs the workloads in turn, each run in its own process, and keeps their times.

Called by: `python -m ringloop bench`. Each round runs every row on every loop, starting with a
different loop each time, so that a machine that slows down affects all of them.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import _ringloop_install
import ringloop
from ringloop._bench.workloads import ROWS
from ringloop._diagnosis import describe_python

if TYPE_CHECKING:
    from collections.abc import Callable

# The driver that "auto" prefers comes first.
OURS = ("ringloop-uring", "ringloop-epoll")
_RUN_SECONDS_MAX = 300


class RunError(Exception):
    """A run failed; the text says which, and what it printed."""


@dataclass
class Result:
    """The runs of one row on one loop, in operations per second."""

    rates: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The figure in the table."""
        return statistics.median(self.rates)

    @property
    def spread(self) -> float:
        """Half the distance between the best and the worst run, as a share of the median."""
        return (max(self.rates) - min(self.rates)) / 2 / self.median


@dataclass
class Report:
    """All results, and the machine they were measured on."""

    machine: dict[str, Any]
    rounds: int
    # By row, by loop.
    results: dict[str, dict[str, Result]]

    def ratio(self, row: str) -> float | None:
        """Return ours (with the driver that "auto" chooses) as a share of the best other, or None."""
        results = self.results[row]
        ours = [results[name].median for name in OURS if name in results]
        others = [result.median for name, result in results.items() if name not in OURS]
        return ours[0] / max(others) if ours and others else None

    def behind(self) -> list[str]:
        """Name the rows in which another loop is faster."""
        return [row for row in self.results if (self.ratio(row) or 1.0) < 1.0]


def loops_here() -> list[str]:
    """Name the loops that can be measured: asyncio's, uvloop if it is installed, ours."""
    found = ["asyncio"]
    try:
        importlib.metadata.version("uvloop")
    except importlib.metadata.PackageNotFoundError:
        pass
    else:
        found.append("uvloop")
    try:
        ringloop.Loop(driver="uring").close()
    except OSError:
        return [*found, OURS[1]]
    return [*found, *OURS]


def measure(
    loops: list[str], rows: list[str], rounds: int, scale: float, tell: Callable[[str], None]
) -> Report:
    """Run all rounds; `tell` is called with a line of progress before each run.

    RunError: a run failed.
    """
    results = {row: {loop: Result() for loop in loops} for row in rows}
    total = rounds * len(rows) * len(loops)
    done = 0
    for number in range(rounds):
        turn = loops[number % len(loops) :] + loops[: number % len(loops)]
        for row in rows:
            for loop in turn:
                done += 1
                tell(f"{done}/{total} {row} on {loop}")
                results[row][loop].rates.append(_rate(loop, row, scale))
    return Report(describe_machine(loops), rounds, results)


def _rate(loop: str, row: str, scale: float) -> float:
    command = [sys.executable, "-m", "ringloop._bench.workloads", loop, row, str(scale)]
    # What runs is named: the variable would put our loop in place of uvloop's.
    environment = {**os.environ, _ringloop_install.VARIABLE: "0"}
    try:
        done = subprocess.run(  # noqa: S603 - this interpreter, with names of our own
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_RUN_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RunError(f"{row} on {loop} did not end within {_RUN_SECONDS_MAX} s") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RunError(f"{row} on {loop} ended with status {done.returncode}: {last}")
    taken = json.loads(done.stdout)
    rate: float = taken["count"] / taken["seconds"]
    return rate


def describe_machine(loops: list[str]) -> dict[str, Any]:
    """Describe the machine and the versions."""
    versions = {"ringloop": ringloop.__version__}
    if "uvloop" in loops:
        versions["uvloop"] = importlib.metadata.version("uvloop")
    return {
        "cpu": _cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "kernel": f"{os.uname().sysname} {os.uname().release} {os.uname().machine}",
        "python": describe_python(),
        "versions": versions,
        "load": round(os.getloadavg()[0], 1),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or "an unknown processor")


def row_text(row: str) -> str:
    """Say what a row measures."""
    return ROWS[row].what
