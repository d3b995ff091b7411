"""docs/interop.md, whose parts are written by different runs.

Owns: the page, and what its tables share. Called by: `matrix`, `http3.table`, both `__main__`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.interop.installing import CHECKOUT

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE = CHECKOUT / "docs" / "interop.md"
PARTS = QUIC, HTTP3, WEBTRANSPORT = "QUIC", "HTTP/3", "WebTransport"
MARKS = {"pass": "yes", "fail": "**no**", "cannot": "–"}


def row(cells: Sequence[str]) -> str:
    """A line of a table."""
    return "| " + " | ".join(cells) + " |"


def write(name: str, text: str) -> None:
    """Replace a part of the page: what is below one heading of the second level."""
    parts = dict(part.split("\n\n", 1) for part in PAGE.read_text().split("\n## ")[1:])
    parts[name] = text
    made = [f"## {title}\n\n{parts[title].strip()}\n" for title in PARTS if title in parts]
    PAGE.write_text("\n".join(["# Interoperability\n", *made]))
