"""A profile for https://profiler.firefox.com: the Gecko profile format, one thread a loop.

The Firefox Profiler describes the format in docs-developer/gecko-profile-format.md; `perf script
report gecko` also writes version 24.
"""

from __future__ import annotations

import json
import os
import platform
from typing import TYPE_CHECKING, Any

from ringloop.profiling._profile import IDLE, WAITING

if TYPE_CHECKING:
    from ringloop.profiling._profile import Function, Profile, Track

VERSION = 24
# Indices of CATEGORIES.
IN_LOOP, OWN, LIBRARY, ASLEEP = range(4)
CATEGORIES = [
    {"name": "Event loop", "color": "grey", "subcategories": ["Other"]},
    {"name": "Application", "color": "orange", "subcategories": ["Other"]},
    {"name": "Libraries", "color": "blue", "subcategories": ["Other"]},
    {"name": "Idle", "color": "transparent", "subcategories": ["Other"]},
]
FRAME = (
    "location",
    "relevantForJS",
    "innerWindowID",
    "implementation",
    "line",
    "column",
    "category",
    "subcategory",
)


def render(profile: Profile) -> bytes:
    """Return the file's bytes."""
    stacks = list(profile.stacks)
    content = {
        "meta": {
            "version": VERSION,
            "interval": 1000 / profile.rate,
            "startTime": profile.began * 1000,
            "shutdownTime": None,
            "processType": 0,
            "product": f"ringloop {profile.mode}",
            "stackwalk": 1,
            "debug": 0,
            "gcpoison": 0,
            "asyncstack": 1,
            "presymbolicated": True,
            "abi": f"CPython {platform.python_version()}",
            "oscpu": f"{platform.system()} {platform.machine()}",
            "platform": platform.system(),
            "misc": "",
            "toolkit": "",
            "categories": CATEGORIES,
            "markerSchema": [],
        },
        "libs": [],
        "threads": [_thread(number, track, stacks) for number, track in enumerate(profile.tracks)],
        "processes": [],
        "pausedRanges": [],
    }
    return json.dumps(content).encode()


def _thread(number: int, track: Track, stacks: list[tuple[Function, ...]]) -> dict[str, Any]:
    strings: dict[str, int] = {}
    frames: dict[Function, int] = {}
    links: dict[tuple[int | None, int], int] = {}
    samples = []
    for time, index in zip(track.times, track.stacks, strict=True):
        link: int | None = None
        for function in stacks[index]:
            frame = frames.setdefault(function, len(frames))
            link = links.setdefault((link, frame), len(links))
        samples.append([link, time * 1000, 0])
    for function in frames:
        strings.setdefault(_location(function), len(strings))
    return {
        "name": track.name,
        "processType": "default",
        "processName": "python",
        "pid": os.getpid(),
        "tid": number,
        "registerTime": 0,
        "unregisterTime": None,
        "markers": {
            "schema": _schema(("name", "startTime", "endTime", "phase", "category", "data")),
            "data": [],
        },
        "samples": {"schema": _schema(("stack", "time", "responsiveness")), "data": samples},
        "frameTable": {
            "schema": _schema(FRAME),
            "data": [_frame(function, strings) for function in frames],
        },
        "stackTable": {
            "schema": _schema(("prefix", "frame")),
            "data": [list(link) for link in links],
        },
        "stringTable": list(strings),
    }


def _schema(names: tuple[str, ...]) -> dict[str, int]:
    return {name: index for index, name in enumerate(names)}


def _location(function: Function) -> str:
    """Return a label that the Firefox Profiler splits into function, file and line."""
    if not function.is_code:
        return function.name
    return f"{function.name} ({function.file}:{function.line})"


def _frame(function: Function, strings: dict[str, int]) -> list[Any]:
    category = IN_LOOP
    if function.is_code:
        category = OWN if function.is_own else LIBRARY
    elif function.name in {IDLE, WAITING}:
        category = ASLEEP
    line = function.line if function.is_code else None
    return [strings[_location(function)], False, 0, None, line, None, category, 0]
