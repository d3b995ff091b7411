"""The loops' metrics as text for Prometheus (the exposition format 0.0.4)."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from ringloop.metrics._snapshot import snapshots

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringloop.metrics._snapshot import Histogram, LoopMetrics

# Name, attribute, type, help.
SIMPLE = (
    ("turns_total", "turns", "counter", "Turns of the loop: polls of the kernel."),
    ("sleeps_total", "sleeps", "counter", "Turns that waited because nothing was ready."),
    ("callbacks_total", "callbacks", "counter", "Callbacks that have run."),
    ("busy_seconds_total", "busy_seconds", "counter", "Time in which the loop was not asleep."),
    ("waited_seconds_total", "waited_seconds", "counter", "Time asleep in the kernel."),
    ("ready_callbacks", "ready", "gauge", "Callbacks in the ready queue."),
    ("timers", "timers", "gauge", "Timers that wait."),
    ("inbox_calls", "inbox", "gauge", "Calls of other threads that wait."),
    ("transports", "transports", "gauge", "Open transports of sockets."),
    ("listeners", "listeners", "gauge", "Listening sockets."),
    ("watchers", "watchers", "gauge", "Descriptors of add_reader and add_writer."),
    ("accepted_connections_total", "accepted", "counter", "Connections accepted by servers."),
    ("received_bytes_total", "received_bytes", "counter", "Bytes received by transports."),
    ("sent_bytes_total", "sent_bytes", "counter", "Bytes sent by transports."),
    ("operations_submitted_total", "operations_submitted", "counter", "Operations submitted."),
    ("operations_completed_total", "operations_completed", "counter", "Completions dispatched."),
    ("slow_callbacks_total", "slow_callbacks_total", "counter", "Slow callbacks that were found."),
)
HISTOGRAMS = (
    ("lag_seconds", "lag", "Time from one poll of the kernel to the next."),
    ("timer_delay_seconds", "timer_delay", "How late timers were taken up."),
    ("queue_delay_seconds", "queue_delay", "From a poll to the last callback ready by then."),
)


_PREFIX = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


def prometheus(prefix: str = "ringloop") -> str:
    """Return the metrics of all loops of this process, as text for Prometheus.

    Each sample has the label `loop`, the number of the loop in its process; `ringloop_loop_info` has
    its driver and thread. Names begin with `prefix` and an underscore; ValueError unless it consists of
    ASCII letters, digits, underscores and colons, and does not begin with a digit. The content type is
    `text/plain; version=0.0.4; charset=utf-8`.
    """
    if not _PREFIX.fullmatch(prefix):
        raise ValueError(f"prefix must be a name of Prometheus, as 'my_service', not {prefix!r}")
    return "".join(f"{line}\n" for line in _lines(prefix, snapshots()))


def _lines(prefix: str, loops: list[LoopMetrics]) -> Iterable[str]:
    yield from _head(prefix, "loop_info", "gauge", "An open loop, its driver and its thread.")
    for loop in loops:
        thread = "" if loop.thread is None else loop.thread
        labels = f'loop="{loop.loop}",driver="{loop.driver}",thread="{_escaped(thread)}"'
        yield f"{prefix}_loop_info{{{labels}}} 1"
    for name, attribute, kind, text in SIMPLE:
        yield from _head(prefix, name, kind, text)
        for loop in loops:
            yield f'{prefix}_{name}{{loop="{loop.loop}"}} {_number(getattr(loop, attribute))}'
    for name, attribute, text in HISTOGRAMS:
        yield from _head(prefix, name, "histogram", text)
        for loop in loops:
            yield from _histogram(f"{prefix}_{name}", loop.loop, getattr(loop, attribute))


def _head(prefix: str, name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP {prefix}_{name} {text}", f"# TYPE {prefix}_{name} {kind}"


def _histogram(name: str, loop: int, histogram: Histogram) -> Iterable[str]:
    reached = 0
    for bound, count in zip((*histogram.bounds, math.inf), histogram.counts, strict=True):
        reached += count
        text = "+Inf" if math.isinf(bound) else repr(bound)
        yield f'{name}_bucket{{loop="{loop}",le="{text}"}} {reached}'
    yield f'{name}_sum{{loop="{loop}"}} {_number(histogram.sum)}'
    yield f'{name}_count{{loop="{loop}"}} {reached}'


def _number(value: float) -> str:
    return repr(value)


def _escaped(text: str) -> str:
    # A name may have surrogates, which UTF-8 has not.
    whole = text.encode(errors="replace").decode()
    return whole.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
