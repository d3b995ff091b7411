"""Disturbance of runs by the host of a virtual machine and by other work on it.

Owns: when a run is repeated and how that is reported; the lock between concurrent benchmarks. Called
by: the suites' `running` and reports. Decides without looking at a run's result.
"""

import contextlib
import fcntl
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from comparison import machine

# A run is repeated, up to this many times, if the host stole more than this share of the CPU time.
STOLEN_MAX = 0.015
TRIES_MAX = 4
# The kernel counts in hundredths of a second.
PROBE_SECONDS = 1
PAUSE_SECONDS = 5
WAIT_SECONDS_MAX = 300
BUSY = [sys.executable, "-S", "-c", "while True: pass"]


class Patience:
    """The budget of a comparison for waiting for the host and for repeating runs."""

    def __init__(self, seconds: float = math.inf, stolen_max: float = STOLEN_MAX) -> None:
        self.left = seconds
        self.stolen_max = stolen_max

    @property
    def is_over(self) -> bool:
        """Whether the budget is spent: runs are made once from now on."""
        return self.left <= 0

    def spend(self, what: Callable[[], Any]) -> Any:
        """Do something and charge its time to the budget."""
        began = time.monotonic()
        try:
            return what()
        finally:
            self.left -= time.monotonic() - began

    def wait(self) -> None:
        """Wait until the host leaves the processors to us, for a limited time."""
        until = time.monotonic() + WAIT_SECONDS_MAX
        while not self.is_over and time.monotonic() < until:
            if self.spend(stolen_now) <= self.stolen_max:
                return
            self.spend(lambda: time.sleep(PAUSE_SECONDS))


@contextlib.contextmanager
def held(lock: Path | None) -> Iterator[None]:
    """Hold a lock on a file (flock(2)), waiting for it if needed."""
    if lock is None:
        yield
        return
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def stolen_now() -> float:
    """Measure the stolen share with all processors busy: only a busy CPU has its time stolen."""
    before = machine.ticks()
    until = time.monotonic() + PROBE_SECONDS
    children = [
        os.posix_spawn(sys.executable, BUSY, os.environ) for _ in range(os.cpu_count() or 1)
    ]
    time.sleep(max(0.0, until - time.monotonic()))
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return machine.ticks().stolen_since(before)


def undisturbed(once: Callable[[], dict], patience: Patience) -> dict:
    """Repeat a run while the host of a virtual machine steals time; return the least disturbed run.

    Decided by the stolen time that the kernel counts, never by a run's result.
    """
    tries = [counted(once)]
    while tries[-1]["stolen"] > patience.stolen_max and len(tries) < TRIES_MAX:
        if patience.is_over:
            break
        patience.wait()
        tries.append(patience.spend(lambda: counted(once)))
    return {**min(tries, key=lambda one: one["stolen"]), "tries": len(tries)}


def counted(once: Callable[[], dict]) -> dict:
    """One run, with the share of CPU time stolen during it."""
    before = machine.ticks()
    figures = once()
    return {**figures, "stolen": machine.ticks().stolen_since(before)}


def disturbed(
    entries: Iterable[Mapping[str, Any]], stolen_max: float = STOLEN_MAX
) -> Iterator[str]:
    """Report how many runs the host of a virtual machine disturbed."""
    details = [detail for entry in entries for detail in entry["details"]]
    again = sum(detail["tries"] - 1 for detail in details)
    kept = sum(detail["stolen"] > stolen_max for detail in details)
    if again or kept:
        most = max(detail["stolen"] for detail in details)
        yield (
            f"- disturbed: {again} runs were repeated because the machine's host took more than "
            f"{stolen_max:.1%} of its processors meanwhile; {kept} of {len(details)} remain so, "
            f"the worst with {most:.0%}"
        )
