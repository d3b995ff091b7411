"""Samples of what the tasks wait for: the await chains of all tasks that do not run.

The chains are read in each loop's own thread, between two callbacks, where all tasks but none are
suspended: another thread would read coroutines that run, which free-threaded builds do not allow.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import threading
import time
from asyncio import events
from typing import TYPE_CHECKING

from ringloop import _loops
from ringloop.profiling import _tasks
from ringloop.profiling._profile import WAITING, Function
from ringloop.profiling._thread import SamplerThread

if TYPE_CHECKING:
    from collections.abc import Collection

# Of the loops' time, at most about this part goes to the walks; with many tasks they are rarer.
SHARE_MAX = 0.02


class Sampler(SamplerThread):
    """Samples the await chains of waiting tasks."""

    mode = "waiting"
    default_rate = 10.0

    def __init__(
        self, rate: float | None, loops: Collection[asyncio.AbstractEventLoop] | None
    ) -> None:
        super().__init__(rate)
        self._loops = None if loops is None else list(loops)
        here = events._get_running_loop()
        self._here = [] if here is None else [here]
        # When each loop was walked last, and may be again; None while one is scheduled.
        self._due: dict[int, float | None] = {}
        self._walked: dict[int, float] = {}
        self._adding = threading.Lock()

    def run(self) -> None:
        """Ask every loop for a walk, until the end."""
        while not self._ends.wait(self.next_interval()):
            for loop in self._chosen():
                self._ask(loop)

    def _chosen(self) -> list[asyncio.AbstractEventLoop]:
        if self._loops is not None:
            return self._loops
        ours: list[asyncio.AbstractEventLoop] = [*_loops.running()]
        return ours + [loop for loop in self._here if loop not in ours]

    def _ask(self, loop: asyncio.AbstractEventLoop) -> None:
        due = self._due.setdefault(id(loop), 0.0)
        if due is None or due > time.monotonic() or not loop.is_running():
            return
        self._due[id(loop)] = None
        # The loop may be closed meanwhile.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(functools.partial(self._walk, loop))
            return
        self._due[id(loop)] = 0.0

    def _walk(self, loop: asyncio.AbstractEventLoop) -> None:
        """In the loop's thread: note the chain of every task."""
        if self._ends.is_set():
            return  # asked for by a profile that has ended
        began = time.monotonic()
        last = self._walked.get(id(loop), began - self._interval)
        chains = [
            (Function(WAITING), Function(_tasks.label(task)), *_tasks.await_chain(task))
            for task in asyncio.all_tasks(loop)
        ]
        # Other loops have threads of their own.
        with self._adding:
            track = self.track(loop, getattr(loop, "_thread_id", None))
            for chain in chains:
                self.profile.add(track, began - self._began, chain, began - last)
        ended = time.monotonic()
        self._walked[id(loop)] = began
        # At random: else each sample may meet a loop that repeats itself at the same point.
        pause = random.expovariate(SHARE_MAX / max(ended - began, 1e-6))
        self._due[id(loop)] = ended + pause
