"""A profile for https://www.speedscope.app: its "sampled" file format, one profile a loop."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringloop.profiling._profile import Function, Profile

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def render(profile: Profile) -> bytes:
    """Return the file's bytes."""
    frames: dict[Function, int] = {}
    stacks = [
        [frames.setdefault(function, len(frames)) for function in stack] for stack in profile.stacks
    ]
    profiles = [
        {
            "type": "sampled",
            "name": track.name,
            "unit": "seconds",
            "startValue": 0,
            "endValue": sum(track.weights),
            "samples": [stacks[index] for index in track.stacks],
            "weights": list(track.weights),
        }
        for track in profile.tracks
    ]
    content = {
        "$schema": SCHEMA,
        "exporter": "ringloop",
        "name": f"ringloop {profile.mode}",
        "activeProfileIndex": 0,
        "shared": {"frames": [_frame(function) for function in frames]},
        "profiles": profiles,
    }
    return json.dumps(content).encode()


def _frame(function: Function) -> dict[str, Any]:
    if not function.is_code:
        return {"name": function.name}
    return {"name": function.name, "file": function.file, "line": function.line}
