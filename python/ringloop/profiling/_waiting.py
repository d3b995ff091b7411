"""Samples what the tasks wait for: the await chains of all suspended tasks.

The chains are read in each loop's own thread, between two callbacks, when all its tasks are
suspended: another thread could read running coroutines, which free-threaded builds do not allow.
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

# Walks take at most about this fraction of a loop's time; with many tasks they are rarer.
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
        # When each loop was last walked, and may be walked again; None while a walk is scheduled.
        self._due: dict[int, float | None] = {}
        self._walked: dict[int, float] = {}
        self._adding = threading.Lock()

    def run(self) -> None:
        """Schedule walks of every loop, until the end."""
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
        """Record the await chain of every task, in the loop's thread."""
        if self._ends.is_set():
            return  # scheduled by a profile that has ended
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
        # At random: else samples may always hit a periodic loop at the same point.
        pause = random.expovariate(SHARE_MAX / max(ended - began, 1e-6))
        self._due[id(loop)] = ended + pause
