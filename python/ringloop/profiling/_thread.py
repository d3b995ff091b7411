"""The thread of a sampler: starts, stops, and reports its CPU time."""

from __future__ import annotations

import contextvars
import os
import random
import threading
import time
from typing import TYPE_CHECKING

from ringloop.profiling._profile import Profile, Track

if TYPE_CHECKING:
    import asyncio


class SamplerThread:
    """Takes samples between `start()` and `stop()`; subclasses implement it."""

    mode: str
    default_rate: float

    def __init__(self, rate: float | None) -> None:
        self.profile = Profile(self.mode, rate or self.default_rate)
        self._interval = 1 / self.profile.rate
        self._ends = threading.Event()
        self._thread = threading.Thread(
            target=self._main, name=f"ringloop profile ({self.mode})", daemon=True
        )
        self._tracks: dict[int, tuple[asyncio.AbstractEventLoop, Track]] = {}
        self._process = os.getpid()
        # Jitter, so that samples do not coincide with periodic work of the program.
        self._random = random.Random(0)  # noqa: S311 - jitter

    def start(self) -> None:
        """Begin."""
        self.profile.began = time.time()
        self._began = time.monotonic()
        # Threads inherit contexts on free-threaded builds: this does not keep the program's alive.
        contextvars.Context().run(self._thread.start)

    def stop(self) -> None:
        """Stop; returns once the last sample is taken."""
        self._ends.set()
        self._thread.join()
        self.profile.seconds = time.monotonic() - self._began

    def is_alive(self) -> bool:
        """Whether it samples this process, not its parent."""
        return self._process == os.getpid() and self._thread.is_alive()

    def next_interval(self) -> float:
        """Return how long to sleep: the interval with random jitter."""
        return self._interval * self._random.uniform(0.5, 1.5)

    def now(self) -> float:
        """Return the seconds since the profile began."""
        return time.monotonic() - self._began

    def track(self, loop: asyncio.AbstractEventLoop, thread: int | None) -> Track:
        """Return the samples of a loop, which stays alive until the profile ends."""
        known = self._tracks.get(id(loop))
        if known is None:
            names = {running.ident: running.name for running in threading.enumerate()}
            name = f"loop {len(self._tracks) + 1} ({names.get(thread, 'a thread')})"
            known = self._tracks[id(loop)] = loop, Track(name)
            self.profile.tracks.append(known[1])
        return known[1]

    def _main(self) -> None:
        try:
            self.run()
        finally:
            self.profile.sampler_seconds = time.thread_time()
            self._tracks.clear()

    def run(self) -> None:
        """Sample until `self._ends` is set."""
        raise NotImplementedError
