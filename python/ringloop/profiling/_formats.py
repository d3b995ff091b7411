"""The formats of a profile, by name and by extension."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ringloop.profiling import _flame, _gecko, _pstats, _speedscope

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from ringloop.profiling._profile import Profile

WRITERS: dict[str, Callable[[Profile], bytes]] = {
    "svg": _flame.render,
    "speedscope": _speedscope.render,
    "gecko": _gecko.render,
    "pstats": _pstats.render,
}
EXTENSIONS = {
    ".svg": "svg",
    ".speedscope.json": "speedscope",
    ".gecko.json": "gecko",
    ".pstats": "pstats",
    ".prof": "pstats",
}


def of(path: str | os.PathLike[str], name: str | None) -> str:
    """Return the format `name`, or that of the path's extension; ValueError for any other."""
    if name is not None:
        if name not in WRITERS:
            raise ValueError(f"format must be one of {', '.join(WRITERS)}, not {name!r}")
        return name
    file = Path(path).name
    for extension, found in EXTENSIONS.items():
        if file.endswith(extension):
            return found
    raise ValueError(
        f"the extension of {file!r} names no format: use one of {', '.join(EXTENSIONS)}, or give format="
    )


def save(profile: Profile, path: Path, name: str) -> None:
    """Write a profile to a file."""
    path.write_bytes(WRITERS[name](profile))
