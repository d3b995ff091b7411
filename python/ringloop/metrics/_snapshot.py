"""`Loop.metrics()`: the numbers of a loop at one moment.

The native counters (`event_loop/meters.rs`) are written by the loop's thread without locks and read here
from any thread: each number is correct, two of them may be a callback apart.
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from ringloop import _loops, _native

if TYPE_CHECKING:
    from ringloop._loop import Loop
    from ringloop._slow import SlowCallback

# The order of `LoopCore._metrics`.
COUNTERS = (
    "turns",
    "sleeps",
    "callbacks",
    "waited_ns",
    "operations_submitted",
    "operations_completed",
    "received_bytes",
    "sent_bytes",
    "accepted",
)
GAUGES = ("ready", "timers", "inbox", "transports", "watchers", "handlers")
# The upper bounds of a histogram's buckets in seconds, without the last one's.
BOUNDS = tuple((1 << shift) / 1e9 for shift in range(10, 35))


@dataclass(frozen=True)
class Histogram:
    """Durations in buckets: up to 1.024 µs, up to twice as much each, the last without a bound.

    `counts` has one more number than `bounds`; `bounds`, `sum` and `max` are in seconds.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float
    max: float

    @property
    def count(self) -> int:
        """How many durations there are."""
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """Their mean in seconds; 0 without any."""
        return self.sum / self.count if self.count else 0.0

    def quantile(self, part: float) -> float:
        """Return the duration that this share (0 to 1) of them does not exceed, in seconds.

        It is the bound of a bucket, so up to twice the true value, and at most `max`.
        """
        if not 0 <= part <= 1:
            raise ValueError(f"part must be between 0 and 1, not {part!r}")
        wanted = part * self.count
        reached = 0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            reached += count
            if reached >= wanted:
                return min(bound, self.max) if self.count else 0.0
        return self.max

    def since(self, earlier: Histogram) -> Histogram:
        """Return what was added since an earlier snapshot; its `max` is an upper bound."""
        counts = tuple(
            now - before for now, before in zip(self.counts, earlier.counts, strict=True)
        )
        if self.max > earlier.max:
            largest = self.max
        else:
            filled = [bound for bound, count in zip(self.bounds, counts, strict=False) if count]
            largest = min(self.max, max(filled, default=0.0)) if not counts[-1] else self.max
        return Histogram(self.bounds, counts, self.sum - earlier.sum, largest)


@dataclass(frozen=True)
class LoopMetrics:
    """A loop at one moment: totals since its creation, and current values.

    Seconds are floats of the monotonic clock, sizes are bytes. A number of a loop that runs in another
    thread may be a callback older than its neighbour.
    """

    loop: int
    """The number of the loop in its process: 1 for the first."""
    driver: Literal["uring", "epoll"]
    """"uring" or "epoll"."""
    driver_reason: str
    """Why this driver is in use."""
    fallbacks: tuple[str, ...]
    """Features that the loop lacks, each with its reason; empty for none."""
    ring_features: tuple[str, ...]
    """Optional features of the ring that this kernel has; empty on epoll."""
    thread: str | None
    """The name of the thread that runs the loop; None while none does."""
    at: float
    """When the snapshot was taken, as `time.monotonic()`."""
    turns: int
    """Turns: polls of the kernel."""
    sleeps: int
    """Of these, the ones that waited because nothing was ready."""
    callbacks: int
    """Callbacks, steps of tasks and handlers of completions that have run."""
    busy_seconds: float
    """Time between polls: the loop worked."""
    waited_seconds: float
    """Time asleep in the kernel."""
    lag: Histogram
    """Time from one poll to the next: how long an event may have waited for the loop."""
    timer_delay: Histogram
    """How late timers were taken up."""
    queue_delay: Histogram
    """From a poll to the start of the last callback that was ready by then, in turns with several."""
    ready: int
    """Callbacks in the ready queue."""
    timers: int
    """Timers that wait, without cancelled ones."""
    inbox: int
    """Calls of other threads that the loop has not taken yet."""
    transports: int
    """Open transports of sockets: connections and datagram endpoints."""
    listeners: int
    """Listening sockets."""
    watchers: int
    """Descriptors of `add_reader` and `add_writer`."""
    accepted: int
    """Connections that servers have accepted."""
    received_bytes: int
    """Bytes that transports have received; of TLS, what is on the wire."""
    sent_bytes: int
    """Bytes that transports have given to the kernel, without `sendfile`."""
    operations_submitted: int
    """Operations and polls given to the driver."""
    operations_completed: int
    """Completions dispatched; a multishot operation has many."""
    slow_callbacks_total: int
    """Callbacks that a watchdog or a slow-callback hook has found."""
    slow_callbacks: tuple[SlowCallback, ...]
    """The last of these, sixteen at most."""

    @property
    def utilisation(self) -> float:
        """The share of time, 0 to 1, in which the loop was not asleep."""
        total = self.busy_seconds + self.waited_seconds
        return self.busy_seconds / total if total else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return {**asdict(self), "utilisation": self.utilisation}


def snapshot(loop: Loop) -> LoopMetrics:
    """Take the metrics of a loop, from any thread."""
    driver = loop.driver
    if driver is None:
        raise RuntimeError("the loop has no driver: its __init__ was not called")
    numbers, gauges, histograms = loop._metrics()
    counted = dict(zip(COUNTERS, numbers, strict=True))
    now = dict(zip(GAUGES, gauges, strict=True))
    lag, timer_delay, queue_delay = map(_histogram, histograms)
    fell_back, features = loop._driver_features()
    ident = loop._thread_id
    slow = loop._slow_log
    return LoopMetrics(
        loop=_loops.number(loop),
        driver=driver,
        driver_reason=loop.driver_reason or "",
        fallbacks=tuple(_fallbacks(loop, fell_back, features)),
        ring_features=tuple(name for name, is_there in features if is_there),
        thread=None if ident is None else _thread_name(ident),
        at=time.monotonic(),
        turns=counted["turns"],
        sleeps=counted["sleeps"],
        callbacks=counted["callbacks"],
        busy_seconds=lag.sum,
        waited_seconds=counted["waited_ns"] / 1e9,
        lag=lag,
        timer_delay=timer_delay,
        queue_delay=queue_delay,
        ready=now["ready"],
        timers=now["timers"],
        inbox=now["inbox"],
        transports=now["transports"],
        listeners=len(loop._listeners),
        watchers=now["watchers"],
        accepted=counted["accepted"],
        received_bytes=counted["received_bytes"],
        sent_bytes=counted["sent_bytes"],
        operations_submitted=counted["operations_submitted"],
        operations_completed=counted["operations_completed"],
        slow_callbacks_total=0 if slow is None else slow.count,
        slow_callbacks=() if slow is None else slow.last(),
    )


def snapshots() -> list[LoopMetrics]:
    """Take the metrics of all open loops of this process, in order of creation."""
    found = []
    for loop in _loops.opened():
        try:
            found.append(snapshot(loop))
        except RuntimeError:
            if not loop.is_closed():
                raise
    return found


def _histogram(numbers: list[int]) -> Histogram:
    total_ns, max_ns, *counts = numbers
    return Histogram(BOUNDS, tuple(counts), total_ns / 1e9, max_ns / 1e9)


def _thread_name(ident: int) -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return names.get(ident, f"thread {ident}")


def _fallbacks(loop: Loop, fell_back: bool, features: list[tuple[str, bool]]) -> list[str]:
    found = []
    if fell_back:
        found.append(f"epoll instead of io_uring: {loop.driver_reason}")
    missing = [name for name, is_there in features if not is_there]
    if missing:
        found.append(f"this kernel's ring lacks: {', '.join(missing)}")
    # Where no TLS is used, `_ssl` is not imported for this.
    if "_ssl" in sys.modules:
        engine, reason = _native.tls_engine()
        if reason is not None:
            found.append(f"TLS through {engine}: {reason}")
    return found
