"""The text of a file without positions: a pipe, a socket, a terminal.

Owns: the decoder, and the characters that were decoded and not taken yet. Called by `_text`, which
reads files that have positions by `io.TextIOWrapper`: that one may ask for more bytes than a call needs,
and what writes to a pipe may wait for an answer before it sends them.
"""

from __future__ import annotations

import codecs
import io
import re
from typing import Any, Final

_ANY_END: Final = re.compile("\r\n|\n|\r")


class Characters:
    """Decodes bytes as `open(…, encoding=…, errors=…, newline=…)` does."""

    def __init__(self, encoding: str, errors: str | None, newline: str | None) -> None:
        decoder: Any = codecs.getincrementaldecoder(encoding)(errors or "strict")
        if not newline:
            # It keeps a "\r" back until it knows what follows.
            decoder = io.IncrementalNewlineDecoder(decoder, translate=newline is None)
        self._decoder = decoder
        self._newline = "\n" if newline is None else newline
        self._text = ""
        # What was taken of it, and how far no line's end was found in it.
        self._at = 0
        self._searched = 0

    def __len__(self) -> int:
        return len(self._text) - self._at

    @property
    def newlines(self) -> Any:
        """The kinds of line ends decoded so far, or None."""
        return getattr(self._decoder, "newlines", None)

    def add(self, data: bytes) -> None:
        """Decode what was read; empty at the end of the file.

        Raises `UnicodeDecodeError`.
        """
        decoded = self._decoder.decode(data, final=not data)
        self._text = self._text[self._at :] + decoded
        self._searched -= self._at
        self._at = 0

    def take(self, count: int) -> str:
        """Take up to `count` characters; all where it is negative."""
        end = len(self._text) if count < 0 else min(self._at + count, len(self._text))
        taken = self._text[self._at : end]
        if end == len(self._text):
            self._text, end = "", 0
        self._at = self._searched = end
        return taken

    def take_line(self, limit: int) -> str | None:
        """Take a line, or `limit` characters of it unless that is negative; None: more is needed."""
        end = self._line_end()
        if end < 0:
            return self.take(limit) if 0 <= limit <= len(self) else None
        count = end - self._at
        return self.take(count if limit < 0 else min(count, limit))

    def _line_end(self) -> int:
        """Where the first line ends; -1: not here."""
        start = max(self._at, self._searched)
        if self._newline:
            found = self._text.find(self._newline, start)
            end = found + len(self._newline) if found >= 0 else -1
        else:
            match = _ANY_END.search(self._text, start)
            end = match.end() if match else -1
        if end < 0:
            # The first half of "\r\n" may stand last.
            self._searched = max(self._at, len(self._text) - 1)
        return end
