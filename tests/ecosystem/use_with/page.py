"""What docs/use-with.md shows: its programs, its commands and its versions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "use-with.md"


@dataclass
class Section:
    """One heading with its programs, by the names of their files, and its commands."""

    programs: dict[str, str] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)


def text() -> str:
    """Return the page."""
    return PAGE.read_text()


def sections() -> dict[str, Section]:
    """Read the page; the sections by their headings."""
    found: dict[str, Section] = {}
    for part in re.split(r"^## ", text(), flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        section = found[heading] = Section()
        for kind, block in re.findall(r"^```(\w+)\n(.*?)^```$", body, re.MULTILINE | re.DOTALL):
            if kind == "python":
                section.programs[block.partition("\n")[0].removeprefix("# ")] = block
            elif kind == "sh":
                section.commands += block.splitlines()
    return found


def versions() -> dict[str, str]:
    """Return the versions that the page says ran."""
    rows = re.findall(r"^\| ([a-z-]+) \| ([0-9.]+) \|", text(), re.MULTILINE)
    return dict(rows)
