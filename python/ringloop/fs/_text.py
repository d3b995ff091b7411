"""`TextFile`: a file of text, the standard library's decoder on top of a `BinaryFile`.

Owns: an `io.TextIOWrapper` over the binary file's memory. So decoding, encoding, newlines and the
cookies of `tell` are those of `open`, and none of its calls blocks: before one reads, the bytes that
it will need are read ahead; after one writes, its output is written. Only if an encoding needs more
bytes than could be foreseen (one with escape sequences) does a call read a piece itself. A file
without positions is read by `_characters` instead.
"""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any, Final, Self

from ringloop._arguments import check_bools
from ringloop.fs._binary import BinaryFile, count_of, index_of
from ringloop.fs._characters import Characters

if TYPE_CHECKING:
    from collections.abc import Iterable

# What `io.TextIOWrapper` asks its buffer for at a time.
CHUNK_BYTES: Final = 8192

# Characters that one call reads, and the bytes that they need at most: "\r\n" in UTF-32 is eight.
PIECE_CHARACTERS: Final = 16384
BYTES_A_CHARACTER: Final = 8

# Of the cookies of `tell`: the low bits are a position, higher ones how many bytes to read there.
_COOKIE_POSITION: Final = (1 << 64) - 1
_COOKIE_FEED_SHIFT: Final = 96
_COOKIE_FEED: Final = (1 << 32) - 1


class _Window(io.BufferedIOBase):
    """What `io.TextIOWrapper` sees of a binary file: its memory."""

    # It asks for this before each line; `TextFile` has looked at the file before.
    closed = False

    def __init__(self, file: BinaryFile) -> None:
        self._file = file
        # Ends of lines in what `read1` has returned last.
        self.line_end = b"\n"
        self.line_count = 0

    @property
    def name(self) -> Any:
        return self._file.name

    @property
    def mode(self) -> str:
        return self._file.mode

    def close(self) -> None:
        """Leave the end to the binary file."""

    def flush(self) -> None:
        self._file._flush_wanted = True

    def readable(self) -> bool:
        return self._file._mode.reads

    def writable(self) -> bool:
        return self._file._mode.writes

    def seekable(self) -> bool:
        return self._file._is_seekable()

    def fileno(self) -> int:
        return self._file.fileno()

    def isatty(self) -> bool:
        return os.isatty(self._file._fd)

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            return self._file._take(self._file._ahead())
        while self._file._ahead() < size and not self._file._ended:
            self._file._fill_blocking(size - self._file._ahead())
        return self._file._take(size)

    def read1(self, size: int = -1, /) -> bytes:
        file = self._file
        if not file._ahead() and not file._ended:
            file._fill_blocking(max(size, CHUNK_BYTES))
        data = file._take(size if size >= 0 else file._ahead())
        self.line_count = data.count(self.line_end)
        return data

    def write(self, data: Any, /) -> int:
        data = bytes(data)
        self._file._put(data)
        return len(data)

    def tell(self) -> int:
        self._file._check_positions()
        return self._file._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        return self._file._move(offset, whence)


class TextFile:
    """A file opened by `ringloop.fs.open` in text mode; an asynchronous iterator of its lines.

    Tasks may share it: operations take turns.
    """

    def __init__(
        self,
        file: BinaryFile,
        mode: str,
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        line_buffering: bool = False,
    ) -> None:
        self._file = file
        self._mode = mode
        self._window = _Window(file)
        self._text = io.TextIOWrapper(
            self._window, encoding, errors, newline, line_buffering=line_buffering
        )
        self._ends = _line_ends(self._text.encoding, newline)
        self._window.line_end = self._ends[0]
        # At least so many whole lines are decoded and not taken yet.
        self._line_count = 0
        # A lone "\r" at the end of what was read may be half of "\r\n".
        self._looks_behind = newline is None or newline == ""
        self._has_written = False
        self._characters: Characters | None = None
        if file._mode.reads and not file._is_seekable():
            self._characters = Characters(self._text.encoding, self._text.errors, newline)

    # What needs no waiting.

    @property
    def name(self) -> Any:
        """The path or descriptor that the file was opened with."""
        return self._file.name

    @property
    def mode(self) -> str:
        """The mode that it was opened with."""
        return self._mode

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._file.closed

    @property
    def buffer(self) -> BinaryFile:
        """The underlying binary file."""
        return self._file

    @property
    def encoding(self) -> str:
        """The name of the encoding."""
        return self._text.encoding

    @property
    def errors(self) -> str | None:
        """How errors of decoding and encoding are handled."""
        return self._text.errors

    @property
    def newlines(self) -> Any:
        """The kinds of line ends read so far, or None."""
        return (self._text if self._characters is None else self._characters).newlines

    @property
    def line_buffering(self) -> bool:
        """Whether the end of a line flushes."""
        return self._text.line_buffering

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._file.fileno()

    def readable(self) -> bool:
        """Return whether it can be read."""
        return self._file.readable()

    def detach(self) -> Any:
        """Hand the descriptor to a binary file of `io`; this one becomes unusable.

        Call `flush()` first: raises `ValueError` if text waits to be written.
        """
        self._file._check()
        if self._has_written:
            raise ValueError("flush() the file before detach()")
        fd = self._file._give_away()
        return io.open(fd, self._file._mode.plain, closefd=self._file._closefd)  # noqa: UP020

    def __repr__(self) -> str:
        state = "closed " if self.closed else ""
        return (
            f"<{state}{type(self).__name__} name={self.name!r} mode={self._mode!r} "
            f"encoding={self.encoding!r}>"
        )

    async def isatty(self) -> bool:
        """Return whether it is a terminal."""
        return await self._file.isatty()

    async def seekable(self) -> bool:
        """Return whether it is seekable."""
        return await self._file.seekable()

    async def writable(self) -> bool:
        """Return whether it can be written."""
        return await self._file.writable()

    # Reading.

    async def read(self, size: int | None = -1, /) -> str:
        """Read `size` characters, fewer at the end; the rest if it is negative or None."""
        self._file._check_reads()
        size = count_of(size)
        await self._wait_turn_to_read()
        self._line_count = 0
        try:
            if self._characters is not None:
                return await self._read_characters(self._characters, size)
            if size < 0:
                while await self._file._fill(self._file._left_from(self._file._next_read()) + 1):
                    pass
                return self._text.read()
            parts = []
            while size > 0:
                count = min(size, PIECE_CHARACTERS)
                await self._ahead_by(count * BYTES_A_CHARACTER)
                parts.append(self._text.read(count))
                size -= count
                if len(parts[-1]) < count:
                    break
            return parts[0] if len(parts) == 1 else "".join(parts)
        finally:
            self._file._end_turn()

    async def _wait_turn_to_read(self) -> None:
        """Take the turn with nothing to be written, nor encoded, that the reader has to see."""
        while True:
            await self._hand_on()
            await self._file._wait_turn_to_read()
            if not self._has_written:
                return
            self._file._end_turn()

    async def _read_characters(self, characters: Characters, size: int) -> str:
        while size < 0 or len(characters) < size:
            if not await self._decode(characters):
                break
        return characters.take(size)

    async def _decode(self, characters: Characters) -> int:
        """Decode what comes next; the count of bytes, 0 at the end."""
        file = self._file
        if not file._ahead():
            await file._fill(max(file._size, CHUNK_BYTES))
        data = file._take(file._ahead())
        characters.add(data)
        return len(data)

    async def _ahead_by(self, count: int) -> None:
        """Read ahead until there are `count` bytes, or the file has ended."""
        file = self._file
        count = max(count, CHUNK_BYTES)
        while file._ahead() < count and await file._fill(max(file._size, count - file._ahead())):
            pass

    async def readline(self, size: int = -1, /) -> str:
        """Read a line with its end, or up to `size` characters of it."""
        file = self._file
        file._check_reads()
        if size == -1 and (decoded := self._decoded_line()):
            return decoded
        limit = index_of(size)
        characters = self._characters
        if not self._has_written and not file._held:
            if characters is not None:
                if (line := characters.take_line(limit)) is not None:
                    return line
            elif self._has_line(0):
                return self._take_line(limit)
        await self._wait_turn_to_read()
        try:
            if characters is not None:
                while (line := characters.take_line(limit)) is None:
                    if not await self._decode(characters):
                        return characters.take_line(limit) or characters.take(limit)
                return line
            await self._ahead_by_line(limit)
            return self._take_line(limit)
        finally:
            file._end_turn()

    def _decoded_line(self) -> str:
        """Take a line that is decoded already; empty: it has to be looked for."""
        file = self._file
        if not self._line_count or file._held or file._fd < 0 or file._detached:
            return ""
        self._line_count -= 1
        return self._text.readline()

    def _take_line(self, limit: int) -> str:
        """Take a line that was read ahead, and count the whole ones that are decoded with it."""
        window = self._window
        window.line_count, self._line_count = self._line_count, 0
        line = self._text.readline(limit)
        if limit < 0:
            # A lone "\r" may have ended it: then there is one more.
            self._line_count = max(0, window.line_count - 1)
        return line

    async def _ahead_by_line(self, limit: int) -> None:
        file = self._file
        searched = 0
        while not self._has_line(searched):
            searched = file._ahead()
            if 0 <= limit * BYTES_A_CHARACTER <= searched - CHUNK_BYTES:
                return
            # A long line is not copied once for each piece of it.
            if not await file._fill(max(file._size, CHUNK_BYTES, searched)):
                return
            searched = max(0, searched - BYTES_A_CHARACTER)

    def _has_line(self, searched: int) -> bool:
        """Whether a line ends within what was read ahead, behind the first `searched` bytes of it."""
        window = self._file._window
        start = self._file._at + searched
        for end in self._ends:
            found = window.find(end, start)
            if found >= 0 and (not self._looks_behind or found + 2 * len(end) <= len(window)):
                return True
        return False

    async def readlines(self, hint: int | None = -1, /) -> list[str]:
        """Read lines: all, or until they total `hint` characters."""
        hint = count_of(hint)
        lines = []
        total = 0
        while line := await self.readline():
            lines.append(line)
            total += len(line)
            if 0 < hint < total:
                break
        return lines

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        if line := self._decoded_line() or await self.readline():
            return line
        raise StopAsyncIteration

    # Writing.

    async def write(self, text: str, /) -> int:
        """Buffer all of a text, written when the buffer is full; return the count of characters."""
        file = self._file
        file._check_writes()
        if file._held:
            count = await file._put_in_turn(lambda: self._put_through(text))
        else:
            count = self._put(text)
        if file._flush_wanted:
            await file._drain()
        return count

    def _put(self, text: str) -> int:
        self._file._check_writes()
        count = self._text.write(text)
        self._has_written = True
        self._line_count = 0
        return count

    def _put_through(self, text: str) -> int:
        """Hand it on, too: the next operation may wait for its turn already."""
        count = self._put(text)
        self._text.flush()
        self._has_written = False
        return count

    async def writelines(self, lines: Iterable[str], /) -> None:
        """Write each of some texts."""
        self._file._check()
        for line in lines:
            await self.write(line)

    async def _hand_on(self) -> None:
        """Hand on what the encoder still has, and wait until the reader would see it."""
        if self._has_written:
            self._text.flush()
            self._has_written = False
            await self._file._drain()

    async def flush(self) -> None:
        """Write buffered data to the kernel: see also `fsync`."""
        self._file._check()
        if self._file._mode.writes:
            self._text.flush()
            self._has_written = False
        await self._file.flush()

    async def fsync(self, *, datasync: bool = False) -> None:
        """Write buffered data, and return when the file is on disk."""
        check_bools(datasync=datasync)
        self._file._check()
        if self._file._mode.writes:
            self._text.flush()
            self._has_written = False
        await self._file.fsync(datasync=datasync)

    async def truncate(self, size: int | None = None, /) -> int:
        """Truncate or extend the file to `size` bytes, by default to the position; return the size."""
        await self.flush()
        return await self._file.truncate(size)

    # The position.

    async def tell(self) -> int:
        """Return an opaque number for `seek`."""
        self._file._check()
        await self._wait_turn_to_read()
        try:
            return self._text.tell()
        finally:
            self._file._end_turn()

    async def seek(self, cookie: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to the position of `tell`'s `cookie`, to the start (0), or to the end (0, 2)."""
        file = self._file
        file._check()
        await self._wait_turn_to_read()
        self._line_count = 0
        try:
            feed = (cookie >> _COOKIE_FEED_SHIFT) & _COOKIE_FEED if cookie > 0 else 0
            if whence == os.SEEK_SET and feed and file._mode.reads:
                # It decodes from a place before.
                file._move(cookie & _COOKIE_POSITION, os.SEEK_SET)
                await self._ahead_by(feed)
            return self._text.seek(cookie, whence)
        finally:
            file._end_turn()

    # The end.

    async def close(self) -> None:
        """Write buffered data, and close. The file is closed even if that fails or is cancelled."""
        if self._file.closed:
            return
        try:
            if self._file._mode.writes:
                self._text.flush()
        finally:
            await self._file.close()

    async def __aenter__(self) -> Self:
        self._file._check()
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()


def _line_ends(encoding: str, newline: str | None) -> tuple[bytes, ...]:
    """Give the bytes of a line's end. Found where none is, `_Window.read1` makes up for it."""
    ends = ("\n", "\r") if newline is None or newline == "" else (newline,)
    mark = len("".encode(encoding))
    return tuple(end.encode(encoding)[mark:] for end in ends)
