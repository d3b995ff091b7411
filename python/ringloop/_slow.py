"""Slow callbacks: the hook that reports them without debug mode, and the latest ones of each loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from ringloop._loop import Loop

SlowHook: TypeAlias = Callable[
    [asyncio.Task[Any] | asyncio.Handle | asyncio.BaseTransport, float], object
]

LAST = 16
# Of a task's or a handle's repr.
NAME_LEN_MAX = 300


@dataclass(frozen=True)
class SlowCallback:
    """A slow callback: what it was, for how many seconds, and its end (`time.time()`)."""

    what: str
    seconds: float
    ended: float


class SlowLog:
    """The slow callbacks of a loop: their count, and the latest ones."""

    def __init__(self) -> None:
        # Re-entrant: a signal handler may ask for the metrics at any point.
        self._lock = threading.RLock()
        self._last: deque[SlowCallback] = deque(maxlen=LAST)
        self.count = 0

    def add(self, what: str, seconds: float) -> None:
        """Record one, from any thread."""
        slow = SlowCallback(what[:NAME_LEN_MAX], seconds, time.time())
        with self._lock:
            self.count += 1
            self._last.append(slow)

    def last(self) -> tuple[SlowCallback, ...]:
        """Return the latest ones, oldest first."""
        with self._lock:
            return tuple(self._last)


def note(loop: Loop, what: str, seconds: float) -> None:
    """Record a slow callback of a loop."""
    log = loop._slow_log
    if log is None:
        # A watchdog's thread and the loop's may both be the first.
        log = loop.__dict__.setdefault("_slow_log", SlowLog())
    log.add(what, seconds)


def set_hook(loop: Loop, threshold: float, hook: SlowHook | None) -> None:
    """Call `hook(what, seconds)` after each callback that took at least `threshold` seconds."""
    if hook is None:
        loop._set_slow_hook(0.0, None)
        return
    if not callable(hook):
        raise TypeError(f"hook must be callable or None, not {hook!r}")
    told = hook

    def tell(what: Any, seconds: float) -> None:
        slow = _of_task(what)
        note(loop, repr(slow), seconds)
        told(slow, seconds)

    loop._set_slow_hook(threshold, tell)


def _of_task(what: Any) -> Any:
    """Return the task whose step this is, or a handle of one's; else what was given."""
    step = what._callback if isinstance(what, asyncio.Handle) else what
    task = getattr(step, "__self__", None)
    return task if isinstance(task, asyncio.Task) else what
