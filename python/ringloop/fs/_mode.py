"""The mode of a file, read as the built-in `open` reads it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Mode:
    """What a mode such as "r+b" means."""

    reads: bool
    writes: bool
    creates: bool
    truncates: bool
    exclusive: bool
    appends: bool
    text: bool

    @property
    def flags(self) -> int:
        """The flags of open(2)."""
        one_way = os.O_WRONLY if self.writes else os.O_RDONLY
        flags = os.O_RDWR if self.reads and self.writes else one_way
        flags |= os.O_CREAT if self.creates else 0
        flags |= os.O_TRUNC if self.truncates else 0
        flags |= os.O_EXCL if self.exclusive else 0
        return flags | (os.O_APPEND if self.appends else 0)

    @property
    def plain(self) -> str:
        """The mode of an `io` file for a descriptor opened like this."""
        one_way = "wb" if self.writes else "rb"
        both = "rb+" if self.reads and self.writes else one_way
        return both.replace("r", "a").replace("w", "a") if self.appends else both

    @property
    def told(self) -> str:
        """The corresponding `io.FileIO.mode`."""
        both = self.reads and self.writes
        if self.exclusive:
            return "xb+" if both else "xb"
        if self.appends:
            return "ab+" if both else "ab"
        if both:
            keeps = self.truncates and sys.version_info >= (3, 15)
            return "wb+" if keeps else "rb+"
        return "wb" if self.writes else "rb"


_MODES: dict[str, Mode] = {}


def parse(mode: str) -> Mode:
    """Read a mode.

    Raises the `TypeError` and `ValueError` of `open`.
    """
    known = _MODES.get(mode) if type(mode) is str else None
    if known is None:
        known = _parse(mode)
        _MODES[mode] = known
    return known


def _parse(mode: Any) -> Mode:
    if not isinstance(mode, str):
        raise TypeError(f"invalid mode: {mode!r}")
    letters = set(mode)
    if letters - set("axrwb+t") or len(mode) > len(letters):
        raise ValueError(f"invalid mode: {mode!r}")
    if {"t", "b"} <= letters:
        raise ValueError("can't have text and binary mode at once")
    if len(letters & set("axrw")) != 1:
        raise ValueError("must have exactly one of create/read/write/append mode")
    both = "+" in letters
    return Mode(
        reads="r" in letters or both,
        writes="r" not in letters or both,
        creates="r" not in letters,
        truncates="w" in letters,
        exclusive="x" in letters,
        appends="a" in letters,
        text="b" not in letters,
    )
