"""What disturbs runs: the host of a virtual machine, and other work on it.

Owns: when a run is made again, and what is said of it; the lock between those who time. Called by:
the suites' `running` and reports. Never: looks at what a run came to.
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

# A run during which the host took more than this share of the processors is made again, so many times.
STOLEN_MAX = 0.015
TRIES_MAX = 4
# The kernel counts in hundredths of a second.
PROBE_SECONDS = 1
PAUSE_SECONDS = 5
WAIT_SECONDS_MAX = 300
BUSY = [sys.executable, "-S", "-c", "while True: pass"]


class Patience:
    """What a comparison may spend, all in all, on waiting for the host and on making runs again."""

    def __init__(self, seconds: float = math.inf, stolen_max: float = STOLEN_MAX) -> None:
        self.left = seconds
        self.stolen_max = stolen_max

    @property
    def is_over(self) -> bool:
        """Whether runs are made once from now on."""
        return self.left <= 0

    def spend(self, what: Callable[[], Any]) -> Any:
        """Do something at its cost."""
        began = time.monotonic()
        try:
            return what()
        finally:
            self.left -= time.monotonic() - began

    def wait(self) -> None:
        """Return when the host leaves the processors to us, or has not for long."""
        until = time.monotonic() + WAIT_SECONDS_MAX
        while not self.is_over and time.monotonic() < until:
            if self.spend(stolen_now) <= self.stolen_max:
                return
            self.spend(lambda: time.sleep(PAUSE_SECONDS))


@contextlib.contextmanager
def held(lock: Path | None) -> Iterator[None]:
    """Wait for a lock on a file and keep it; flock(2)."""
    if lock is None:
        yield
        return
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def stolen_now() -> float:
    """What the host takes: all processors are kept busy, as time is stolen only from who wants it."""
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
    """Run again where the host of a virtual machine took time; return the run with the least of that.

    It is decided by what the kernel counts as stolen, never by what a run came to.
    """
    tries = [counted(once)]
    while tries[-1]["stolen"] > patience.stolen_max and len(tries) < TRIES_MAX:
        if patience.is_over:
            break
        patience.wait()
        tries.append(patience.spend(lambda: counted(once)))
    return {**min(tries, key=lambda one: one["stolen"]), "tries": len(tries)}


def counted(once: Callable[[], dict]) -> dict:
    """One run, with the share that was stolen meanwhile."""
    before = machine.ticks()
    figures = once()
    return {**figures, "stolen": machine.ticks().stolen_since(before)}


def disturbed(
    entries: Iterable[Mapping[str, Any]], stolen_max: float = STOLEN_MAX
) -> Iterator[str]:
    """Say how many runs the host of a virtual machine disturbed."""
    details = [detail for entry in entries for detail in entry["details"]]
    again = sum(detail["tries"] - 1 for detail in details)
    kept = sum(detail["stolen"] > stolen_max for detail in details)
    if again or kept:
        most = max(detail["stolen"] for detail in details)
        yield (
            f"- disturbed: {again} runs were made again because the machine's host took more than "
            f"{stolen_max:.1%} of its processors meanwhile; {kept} of {len(details)} are such still, "
            f"the worst with {most:.0%}"
        )
