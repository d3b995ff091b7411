"""`BinaryFile`: a file of bytes, with the methods of `io.BufferedRandom` as coroutines.

Owns: what users call. Called by `_open`, `_text` (a text file is one of `io`'s on top of these
bytes) and `_temporary`. `_buffer` moves the bytes.
"""

from __future__ import annotations

import errno
import io
import operator
import os
import sys
from typing import TYPE_CHECKING, Any, Self

from ringloop._arguments import check_bools
from ringloop.fs import _sendfile
from ringloop.fs._backend import backend
from ringloop.fs._buffer import BUFFER_BYTES, BufferedFile

if TYPE_CHECKING:
    from collections.abc import Iterable


class BinaryFile(BufferedFile):
    """A file opened by `ringloop.fs.open` in binary mode; an asynchronous iterator of its lines.

    Tasks may share it: operations take turns.
    """

    # What needs no waiting.

    def fileno(self) -> int:
        """Return the descriptor, moved to this file's position."""
        self._check()
        if not self._stream and not self._mode.appends:
            os.lseek(self._fd, self._position, os.SEEK_SET)
        return self._fd

    def readable(self) -> bool:
        """Return whether it can be read."""
        self._check()
        return self._mode.reads

    def detach(self) -> io.FileIO:
        """Hand the descriptor to an unbuffered file of `io`; this one becomes unusable.

        Call `flush()` first: raises `ValueError` if bytes wait to be written.
        """
        fd = self._give_away()
        return io.FileIO(fd, self._mode.plain, closefd=self._closefd)

    @property
    def _file(self) -> Self:
        # aiofiles' files have the file of `io` there, and its users look at it.
        return self

    async def isatty(self) -> bool:
        """Return whether it is a terminal."""
        self._check()
        return os.isatty(self._fd)

    async def seekable(self) -> bool:
        """Return whether it is seekable."""
        self._check()
        return self._is_seekable()

    async def writable(self) -> bool:
        """Return whether it can be written."""
        self._check()
        return self._mode.writes

    async def tell(self) -> int:
        """Return the position."""
        self._check()
        self._check_positions()
        return self._position

    # Reading.

    async def read(self, size: int | None = -1, /) -> bytes:
        """Read `size` bytes, fewer at the end of the file; the rest if it is negative or None."""
        if type(size) is not int or not -1 <= size <= sys.maxsize:
            size = count_of(size)
        self._check_reads()
        if size < -1 and self._size:
            raise ValueError("read length must be non-negative or -1")
        if not self._held and not self._out:
            if 0 <= size <= len(self._window) - self._at:
                return self._take(size)
            self._held = True
            self._ended = False
        else:
            await self._wait_turn_to_read()
        try:
            if size < 0:
                return await self._read_rest()
            return await self._read_count(size)
        finally:
            self._end_turn()

    async def _read_count(self, size: int) -> bytes:
        ahead = self._ahead()
        if size <= ahead:
            return self._take(size)
        if not self._size:
            # Only a line's end is ever read ahead.
            if ahead and self._stream:
                return self._take(size)
            self._drop()
            data = await backend().read(self._fd, size, self._next_read())
            self._position += len(data)
            return data
        if size - ahead < self._size:
            while self._ahead() < size and await self._fill(max(self._size, size - self._ahead())):
                pass
            return self._take(size)
        # Right into the caller's bytes.
        parts = []
        left = size - ahead
        first, place = self._window[self._at :], self._next_read()
        while left > 0:
            part = await backend().read(self._fd, left, place)
            if not part:
                break
            parts.append(part)
            left -= len(part)
            place = self._stream or place + len(part)
        self._drop()
        self._position += size - left
        if not first and len(parts) == 1:
            return parts[0]
        return b"".join((first, *parts))

    async def _read_rest(self) -> bytes:
        ahead = self._window[self._at :]
        parts: list[bytes] = []
        place = self._next_read()
        while True:
            # First by the length at its opening: more, or less, is found out by the read.
            left = self._length - place if not parts and not self._stream else 0
            size = (left if left > 0 else self._left_from(place)) + 1
            part = await backend().read(self._fd, size, place)
            if part:
                parts.append(part)
                place = self._stream or place + len(part)
            if not part or (not self._stream and 1 < size != len(part)):
                break
        data = parts[0] if not ahead and len(parts) == 1 else b"".join((ahead, *parts))
        self._drop()
        self._position += len(data)
        return data

    async def read1(self, size: int = -1, /) -> bytes:
        """Read up to `size` bytes with at most one operation."""
        size = index_of(size)
        self._check_reads()
        await self._wait_turn_to_read()
        try:
            if size < 0:
                size = self._size or BUFFER_BYTES
            if size and not self._ahead():
                await self._fill(size)
            return self._take(size)
        finally:
            self._end_turn()

    async def peek(self, size: int = 0, /) -> bytes:
        """Return bytes that the next read returns, without moving; at least one unless the file ends."""
        index_of(size)
        self._check_reads()
        await self._wait_turn_to_read()
        try:
            if not self._ahead():
                await self._fill(self._size or BUFFER_BYTES)
            return self._window[self._at :]
        finally:
            self._end_turn()

    async def readinto(self, buffer: Any, /) -> int:
        """Read into a writable buffer until it is full or the file ends; return the count."""
        with _writable(buffer) as whole, whole.cast("B") as view:
            data = await self.read(len(view))
            view[: len(data)] = data
            return len(data)

    async def readinto1(self, buffer: Any, /) -> int:
        """Read into a writable buffer with at most one operation; return the count."""
        with _writable(buffer) as whole, whole.cast("B") as view:
            data = await self.read1(len(view))
            view[: len(data)] = data
            return len(data)

    async def readall(self) -> bytes:
        """Read to the end of the file."""
        return await self.read()

    async def readline(self, size: int | None = -1, /) -> bytes:
        """Read a line with its end, or up to `size` bytes of it."""
        self._check_reads()
        limit = max(-1, count_of(size))
        if line := self._line_ahead(limit):
            return line
        await self._wait_turn_to_read()
        try:
            await self._fill_line(limit)
            end = self._window.find(b"\n", self._at)
            count = self._ahead() if end < 0 else end + 1 - self._at
            return self._take(count if limit < 0 else min(count, limit))
        finally:
            self._end_turn()

    async def readlines(self, hint: int | None = -1, /) -> list[bytes]:
        """Read lines: all, or until they total `hint` bytes."""
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

    async def __anext__(self) -> bytes:
        if line := self._line_ahead(-1) or await self.readline():
            return line
        raise StopAsyncIteration

    def _line_ahead(self, limit: int) -> bytes:
        """Take a line that was read ahead, or `limit` bytes of it; empty: it has to be looked for."""
        if self._held or self._out or (end := self._window.find(b"\n", self._at)) < 0:
            return b""
        count = end + 1 - self._at
        return self._take(count if limit < 0 else min(count, limit))

    async def pread(self, size: int, offset: int, /) -> bytes:
        """Read up to `size` bytes at `offset`; the position stays the same; many may run at once."""
        size, offset = operator.index(size), operator.index(offset)
        self._check_reads()
        if self._out:
            await self.flush()
        if offset < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        if self._stream:
            raise OSError(errno.ESPIPE, os.strerror(errno.ESPIPE))
        return await backend().read(self._fd, size, offset)

    # Writing.

    async def write(self, data: Any, /) -> int:
        """Buffer all of a bytes-like object, written when the buffer is full; return its size."""
        self._check_writes()
        if type(data) is not bytes:
            if isinstance(data, str):
                raise TypeError("a bytes-like object is required, not 'str'")
            with memoryview(data) as view:
                if not view.c_contiguous:
                    raise BufferError("memoryview: underlying buffer is not C-contiguous")
                data = view.tobytes()
        if self._held:
            await self._put_in_turn(lambda: self._put_checked(data))
        else:
            self._put(data)
        if self._flush_wanted:
            await self._drain()
        return len(data)

    def _put_checked(self, data: bytes) -> None:
        self._check_writes()
        self._put(data)

    async def writelines(self, lines: Iterable[Any], /) -> None:
        """Write each of some bytes-like objects."""
        self._check()
        for line in lines:
            await self.write(line)

    async def flush(self) -> None:
        """Write buffered data to the kernel: see also `fsync`."""
        self._check()
        self._raise_late()
        if self._out or self._held:
            await self._drain()

    async def fsync(self, *, datasync: bool = False) -> None:
        """Write buffered data, and return when the file is on disk."""
        check_bools(datasync=datasync)
        self._check()
        self._raise_late()
        await self._to_the_end(self._locked_sync(datasync))

    async def _locked_sync(self, datasync: bool) -> None:
        await self._wait_turn()
        try:
            self._check()
            if self._out:
                await self._write_out(sync=True, datasync=datasync)
            else:
                self._flush_wanted = False
                await backend().sync(self._fd, datasync)
        finally:
            self._end_turn()

    async def pwrite(self, data: Any, offset: int, /) -> int:
        """Write all of a bytes-like object at `offset`; the position does not change.

        In a file opened to append it is written to the end: pwrite(2) on Linux.
        """
        offset = operator.index(offset)
        self._check_writes()
        if offset < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        if self._stream:
            raise OSError(errno.ESPIPE, os.strerror(errno.ESPIPE))
        with memoryview(data) as view:
            copy = view.tobytes()
        return await self._to_the_end(self._locked_pwrite(copy, offset))

    async def _locked_pwrite(self, data: bytes, offset: int) -> int:
        await self._wait_turn()
        try:
            self._check()
            if self._out:
                await self._write_out()
            self._drop()
            done = 0
            while done < len(data):
                rest = data[done:] if done else data
                done += await backend().write(self._fd, rest, offset + done)
            return done
        finally:
            self._end_turn()

    async def truncate(self, size: int | None = None, /) -> int:
        """Truncate or extend the file to `size` bytes, by default to the position; return the size."""
        self._check()
        if not self._mode.writes:
            raise io.UnsupportedOperation("truncate")
        if size is not None:
            size = index_of(size)
        return await self._to_the_end(self._locked_truncate(size))

    async def _locked_truncate(self, size: int | None) -> int:
        await self._wait_turn()
        try:
            self._check()
            await self._write_out()
            if size is None:
                self._check_positions()
                size = self._position
            if size < 0:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            self._drop()
            await backend().truncate(self._fd, size)
            return size
        finally:
            self._end_turn()

    # The position.

    async def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to `offset` from the start, the position (1) or the end (2); return the new position."""
        self._check()
        if not self._out and not self._held:
            return self._move(offset, whence)
        await self._wait_turn_to_read()
        try:
            return self._move(offset, whence)
        finally:
            self._end_turn()

    # The end.

    async def close(self) -> None:
        """Write buffered data, and close. The file is closed even if that fails or is cancelled."""
        if self._detached:
            self._check()
        if self._fd < 0:
            return
        if not self._out and not self._held and not self._mode.writes:
            # Nothing was written through it, so there is nothing to wait for.
            self._close_now()
            return
        await self._to_the_end(self._locked_close())

    async def _locked_close(self) -> None:
        await self._wait_turn()
        try:
            if self._fd < 0:
                return
            try:
                await self._write_out()
                self._raise_late()
            finally:
                fd, self._fd = self._fd, -1
                self._out = []
                self._drop()
                if self._closefd:
                    await backend().close(fd)
                elif not self._stream:
                    os.lseek(fd, self._position, os.SEEK_SET)
        finally:
            self._end_turn()

    async def __aenter__(self) -> Self:
        self._check()
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    # To a socket.

    async def sendfile(
        self, target: Any, offset: int | None = None, count: int | None = None
    ) -> int:
        """Send the file from `offset`, by default the position, to a transport, writer or socket.

        Returns the count of bytes; the position is after them. See `ringloop.fs.sendfile`.
        """
        self._check_reads()
        await self.flush()
        start = self._position if offset is None else offset
        with io.FileIO(os.dup(self._fd), "rb") as raw:
            sent = await _sendfile.send(raw, target, start, count)
        self._move(start + sent, os.SEEK_SET)
        return sent


def count_of(size: Any) -> int:
    """Return a size, of any kind of integer; -1 for None: all."""
    return -1 if size is None else index_of(size)


def index_of(size: Any) -> int:
    """Return a size, of any kind of integer that the standard library takes for one."""
    count = operator.index(size)
    if not -sys.maxsize - 1 <= count <= sys.maxsize:
        raise OverflowError("cannot fit 'int' into an index-sized integer")
    return count


def _writable(buffer: Any) -> memoryview:
    """View a buffer; what is read would be lost where it cannot be written."""
    view = memoryview(buffer)
    if view.readonly:
        kind = type(buffer).__name__
        raise TypeError(f"a read-write bytes-like object is required, not {kind!r}")
    return view
