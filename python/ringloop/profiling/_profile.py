"""The samples: functions, their stacks, and the time of each.

Called by: the samplers, which write, and the formats, which read.
"""

from __future__ import annotations

import contextlib
import sys
import sysconfig
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import os

# Samples stored with their time, for the formats that have a time axis: eleven hours at 100 a second.
# Later ones count in the sums only.
TIMED_SAMPLES_MAX = 4_000_000
# Distinct stacks; further ones are summed up under their phase.
STACKS_MAX = 200_000

RUNNING = "running"
LOOP = "the loop itself"
MISSED = "callbacks too short to sample"
IDLE = "idle"
WAITING = "waiting"


class Function(NamedTuple):
    """A function, or another entry of a stack: a phase of the loop, a task.

    `file` is "" and `line` 0 for the latter. `line` is the function's first line.
    """

    name: str
    file: str = ""
    line: int = 0

    @property
    def is_code(self) -> bool:
        """Whether it is a function, not a phase or a task."""
        return bool(self.file)

    @property
    def is_own(self) -> bool:
        """Whether it belongs to the application, not to the standard library or a package."""
        return self.is_code and not _is_foreign(self.file)

    def __str__(self) -> str:
        if not self.is_code:
            return self.name
        return f"{self.name} ({short(self.file)}:{self.line})"


class Share(NamedTuple):
    """A function's share of a profile, in seconds: its own lines, and including its callees."""

    function: Function
    own: float
    total: float


@dataclass
class Track:
    """The samples of one loop, in order."""

    name: str
    # Seconds since the profile began; the index of the stack; the seconds that the sample stands for.
    times: array[float] = field(default_factory=lambda: array("d"))
    stacks: array[int] = field(default_factory=lambda: array("L"))
    weights: array[float] = field(default_factory=lambda: array("d"))
    dropped: int = 0


class Profile:
    """The samples of a profile; complete once it has ended.

    `seconds` is its duration, `samples` the number of samples, `began` its start (seconds since the
    epoch), `mode` and `rate` are those requested, `sampler_seconds` is the CPU time of the sampling
    thread. A stack is a tuple of `Function`, outermost first: the phase of the loop, the task or
    "callback", then the functions.
    """

    def __init__(self, mode: str, rate: float) -> None:
        self.mode = mode
        self.rate = rate
        self.began = 0.0
        self.seconds = 0.0
        self.samples = 0
        self.sampler_seconds = 0.0
        self.tracks: list[Track] = []
        self._stacks: dict[tuple[Function, ...], int] = {}
        self._seconds: list[float] = []

    def add(self, track: Track, time: float, stack: tuple[Function, ...], seconds: float) -> None:
        """Count a sample."""
        if stack not in self._stacks and len(self._stacks) >= STACKS_MAX:
            stack = stack[:1]
        index = self._stacks.setdefault(stack, len(self._stacks))
        if index == len(self._seconds):
            self._seconds.append(0.0)
        self._seconds[index] += seconds
        self.samples += 1
        if len(track.times) >= TIMED_SAMPLES_MAX:
            track.dropped += 1
            return
        track.times.append(time)
        track.stacks.append(index)
        track.weights.append(seconds)

    @property
    def stacks(self) -> dict[tuple[Function, ...], float]:
        """The seconds of each stack."""
        # The sampler may be adding: copy first; the newest stack may have no seconds yet.
        return dict(zip(list(self._stacks), list(self._seconds), strict=False))

    @property
    def phases(self) -> dict[str, float]:
        """The seconds of each phase of the loops."""
        found: dict[str, float] = {}
        for stack, seconds in self.stacks.items():
            found[stack[0].name] = found.get(stack[0].name, 0.0) + seconds
        return found

    def shares(self) -> list[Share]:
        """Return every function's share, the largest total first."""
        own: dict[Function, float] = {}
        total: dict[Function, float] = {}
        for stack, seconds in self.stacks.items():
            for function in set(stack):
                total[function] = total.get(function, 0.0) + seconds
            own[stack[-1]] = own.get(stack[-1], 0.0) + seconds
        shares = [
            Share(function, own.get(function, 0.0), seconds)
            for function, seconds in total.items()
            if function.is_code
        ]
        # A caller comes before its only callee.
        return sorted(shares, key=lambda share: (-share.total, share.own, share.function))

    def save(self, path: str | os.PathLike[str], format: str | None = None) -> None:  # noqa: A002
        """Write the profile to a file, in `format` or that of the file's extension."""
        from ringloop.profiling import _formats  # noqa: PLC0415 - the formats need this module

        _formats.save(self, Path(path), _formats.of(path, format))

    def __repr__(self) -> str:
        return (
            f"<ringloop.profiling.Profile {self.mode} samples={self.samples} "
            f"seconds={self.seconds:.3f}>"
        )


# Directories of the standard library and packages; an environment shares its base's standard library.
_LIBRARIES = tuple(
    {
        str(Path(contextlib.__file__).parent),
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    }
)


def short(file: str) -> str:
    """Return a file's name relative to the directory that it is imported from."""
    folders = [str(Path.cwd()), *sys.path, *_LIBRARIES]
    inside = [folder for folder in folders if folder and file.startswith(folder.rstrip("/") + "/")]
    if not inside:
        return file
    return file[len(max(inside, key=len).rstrip("/")) + 1 :]


def _is_foreign(file: str) -> bool:
    return file.startswith(("<", str(Path(__file__).parents[1]) + "/")) or any(
        file.startswith(folder + "/") for folder in _LIBRARIES
    )
