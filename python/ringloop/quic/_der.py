"""Elements of DER (X.690 §8.1), the encoding of certificates.

Owns: tags and lengths. Called by: `ringloop.webtransport._x509`, `ringloop.serve._dev`. Never does:
interpret an element.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Element", "elements"]

_LONG_LENGTH = 0x80


class Element(NamedTuple):
    """One element."""

    tag: int
    content: bytes
    whole: bytes
    """The content with its tag and length."""


def elements(data: bytes) -> list[Element]:
    """Return the consecutive elements; ValueError if the last is cut off."""
    found = []
    while data:
        if len(data) < 2:  # noqa: PLR2004  # tag and length
            raise ValueError("an element is cut off")
        length, begin = data[1], 2
        if length >= _LONG_LENGTH:
            begin += length - _LONG_LENGTH
            length = int.from_bytes(data[2:begin])
        end = begin + length
        if end > len(data):
            raise ValueError("an element is cut off")
        found.append(Element(data[0], data[begin:end], data[:end]))
        data = data[end:]
    return found
