"""What a process holds, and whether that stays flat over a run.

`Counters.now` is called between parts, when nothing is under way, after a garbage collection.
"""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tests import support
from tests.memory.test_memory import native_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Counters:
    """One sample; bytes where the name ends in `_bytes`."""

    seconds: float
    cpu_seconds: float
    descriptors: int
    threads: int
    children: int
    tasks: int
    transports: int
    handles: int
    objects: int
    blocks: int
    heap_bytes: int
    resident_bytes: int

    @classmethod
    def now(cls, loop: asyncio.AbstractEventLoop, began: float) -> Counters:
        for _ in range(3):
            gc.collect()
        times = os.times()
        objects = gc.get_objects()
        return cls(
            seconds=round(time.monotonic() - began, 1),
            cpu_seconds=round(sum(times[:4]), 1),
            descriptors=len(support.open_descriptors()),
            # Without the kernel's own workers, which come and go.
            threads=len(support.native_threads()),
            children=len(support.children()),
            tasks=len(asyncio.all_tasks(loop)),
            transports=_count(objects, asyncio.BaseTransport),
            handles=_count(objects, asyncio.Handle),
            objects=len(objects),
            blocks=sys.getallocatedblocks(),
            heap_bytes=native_bytes(),
            resident_bytes=support.resident_bytes(),
        )

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def _count(objects: list[object], kind: type) -> int:
    return sum(issubclass(type(each), kind) for each in objects)


@dataclass(frozen=True)
class Limit:
    """How much the last third's median may be above the first third's."""

    absolute: float
    relative: float = 0.0

    def of(self, first: float) -> float:
        return max(self.absolute, self.relative * first)


# Connections that stay open are opened again after a fault: two ends, each with its descriptor.
LIMITS = {
    "descriptors": Limit(2),
    # The pools of threads: the interpreter has 6 on two processors, the engine a few.
    "threads": Limit(6),
    "children": Limit(0),
    "tasks": Limit(2),
    "transports": Limit(2),
    # Cancelled timers stay until they are more than the others.
    "handles": Limit(200),
    "objects": Limit(500, 0.01),
    "blocks": Limit(3000, 0.01),
    "heap_bytes": Limit(512 * 1024, 0.03),
    "resident_bytes": Limit(2 << 20, 0.03),
}
# Allocators and the interpreter's tables grow for some minutes, up to what a burst needs.
MEMORY = ("objects", "blocks", "heap_bytes", "resident_bytes")
MEMORY_SECONDS_MIN = 300.0
WARM_UP_SHARE = 0.2
# Of fewer samples a median says nothing.
SAMPLES_MIN = 9


@dataclass(frozen=True)
class Flatness:
    """One counter over a run."""

    name: str
    first: float
    last: float
    limit: float

    @property
    def is_flat(self) -> bool:
        return self.last - self.first <= self.limit

    def __str__(self) -> str:
        return f"{self.name}: {self.first:g} -> {self.last:g} (at most {self.limit:g} more)"


def judge(samples: Sequence[dict[str, float]], seconds: float) -> list[Flatness]:
    """Compare the last third with the first, after the warm-up; empty for too few samples."""
    after = samples[round(len(samples) * WARM_UP_SHARE) :]
    if len(samples) < SAMPLES_MIN:
        return []
    third = len(after) // 3
    results = []
    for name, limit in LIMITS.items():
        if name in MEMORY and seconds < MEMORY_SECONDS_MIN:
            continue
        values = [sample[name] for sample in after]
        first, last = statistics.median(values[:third]), statistics.median(values[-third:])
        results.append(Flatness(name, first, last, limit.of(first)))
    return results
