"""A profile for the standard library's `pstats`, and for tools that read its files.

Call counts are sample counts: a sampler does not see calls.
"""

from __future__ import annotations

import marshal
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from ringloop.profiling._profile import Function, Profile

Key: TypeAlias = tuple[str, int, str]
# Samples, samples, own seconds, total seconds.
Sums: TypeAlias = tuple[int, int, float, float]


def render(profile: Profile) -> bytes:
    """Return the file's bytes: what `cProfile.Profile.dump_stats` writes."""
    sums: dict[Key, Sums] = {}
    callers: dict[Key, dict[Key, Sums]] = {}
    for stack, (count, seconds) in _counted(profile).items():
        keys = [_key(function) for function in stack]
        last = len(keys) - 1
        for index, key in enumerate(keys):
            own = seconds if index == last else 0.0
            # A recursive function's time counts at its outermost call.
            again = key in keys[:index]
            seen, total = (0, 0.0) if again else (count, seconds)
            sums[key] = _plus(sums.get(key), seen, own, total)
            of = callers.setdefault(key, {})
            if index:
                of[keys[index - 1]] = _plus(of.get(keys[index - 1]), seen, own, total)
    return marshal.dumps({key: (*found, callers[key]) for key, found in sums.items()})


def _counted(profile: Profile) -> dict[tuple[Function, ...], tuple[int, float]]:
    counts = [0] * len(profile.stacks)
    for track in profile.tracks:
        for index in track.stacks:
            counts[index] += 1
    return {
        stack: (count, seconds)
        for (stack, seconds), count in zip(profile.stacks.items(), counts, strict=True)
    }


def _plus(sums: Sums | None, count: int, own: float, total: float) -> Sums:
    primitive, calls, own_before, total_before = sums or (0, 0, 0.0, 0.0)
    return primitive + count, calls + count, own_before + own, total_before + total


def _key(function: Function) -> Key:
    # As cProfile names anything but Python functions.
    return (function.file or "~", function.line, function.name)
