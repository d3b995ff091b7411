"""In-memory state of a file of `ringloop.fs`: its position, its read-ahead, and bytes to be written.

Owns: the descriptor, the turns of tasks that share the file, and moving bytes between its memory and
the kernel. `_binary` adds the methods that users call, and `_text` reads and writes through it.

The position belongs to the file object, not the descriptor: every operation passes its offset. So a
cancelled read has not moved it. Whatever changes the file (a flush, `truncate`, `close` …) is a separate
task that completes even if its caller is cancelled; the next operation waits for it, and so does
`asyncio.run`, which cancels every task at its end.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import errno
import io
import os
import stat
import warnings
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ringloop import _system
from ringloop.fs._backend import OWN_POSITION, POLLED, backend, read_cached

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ringloop.fs._mode import Mode

T = TypeVar("T")

# Of an operation that waits for its turn; a write is carried out then, also where its caller is gone.
_Waiter = tuple["asyncio.Future[Any]", "Callable[[], Any] | None"]

# Read-ahead of a file whose `buffering` is not given, and bytes to be written to a pipe. A piece of this
# size is copied in about 10 µs, and costs one operation.
BUFFER_BYTES: Final = 64 * 1024

# Pieces of a buffer's size and more are collected up to this for a file with positions, as each write
# goes to another thread. Smaller ones are not: their program would keep, and may lose, more of them.
COLLECTED_BYTES: Final = 512 * 1024

# Read by one operation from a file that does not tell its size.
PIECE_BYTES: Final = 256 * 1024


class _Change(asyncio.Task[T]):
    """A task that changes a file: what cancels all tasks of a loop waits for its end instead.

    Only a pipe, socket or terminal may keep it waiting for ever, so writing to one can be cancelled.
    """

    def __init__(
        self,
        work: Coroutine[Any, Any, T],
        loop: asyncio.AbstractEventLoop,
        *,
        can_be_cancelled: bool,
    ) -> None:
        super().__init__(work, loop=loop)
        self._can_be_cancelled = can_be_cancelled

    def cancel(self, msg: Any | None = None) -> bool:
        return self._can_be_cancelled and super().cancel(msg)


class BufferedFile:
    """The internal part of a file."""

    # Until it is made, and after it was closed.
    _fd = -1
    # Read, and not taken yet: from `_at` on, it stands at the position.
    _window = b""
    _at = 0
    # To be written: it ends at the position.
    _out: list[bytes] = []  # noqa: RUF012 - empty, and never changed: a file that writes has its own
    _out_len = 0
    _flush_wanted = False
    # The last read of this operation has found the end.
    _ended = False
    _detached = False
    # Of an operation whose caller was cancelled.
    _error: BaseException | None = None
    # An operation has its turn; others wait.
    _held = False
    _waiters: collections.deque[_Waiter] | None = None
    # 0: the file has positions. Else what stands for one.
    _stream = 0

    def __init__(
        self,
        fd: int,
        name: Any,
        mode: Mode,
        *,
        buffer_size: int | None = None,
        closefd: bool = True,
        found: tuple[int, int] | None = None,
    ) -> None:
        """Make the file of a descriptor.

        `found` is the type and the size of a file just opened by name.
        """
        self._closefd = closefd
        self._name = name
        self._mode = mode
        self._size = BUFFER_BYTES if buffer_size is None else buffer_size
        if found is not None and stat.S_ISREG(found[0]) and not mode.appends:
            self._position = 0
            self._length = found[1]
        else:
            status = os.fstat(fd)
            self._length = status.st_size
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
            self._position = self._first_position(fd, status.st_mode)
        is_collected = buffer_size is None and not self._stream
        self._collected_max = COLLECTED_BYTES if is_collected else self._size
        self._fd = fd

    def _first_position(self, fd: int, kind: int) -> int:
        """Find out whether the file has positions, and where it stands."""
        if stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind):
            # Not by lseek(2), which succeeds on a pipe of Windows.
            self._stream = POLLED
            return 0
        try:
            start = os.lseek(fd, 0, os.SEEK_END if self._mode.appends else os.SEEK_CUR)
        except OSError:
            self._stream = POLLED if stat.S_ISCHR(kind) else OWN_POSITION
            return 0
        if stat.S_ISCHR(kind):
            self._stream = OWN_POSITION
        return start

    # Turns: one operation at a time, in the order of the calls.

    async def _wait_turn(self) -> None:
        """Wait until no other operation has its turn, and take it."""
        if not self._held:
            self._held = True
            return
        waiter = self._queue(None)
        try:
            await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():
                self._end_turn()
            else:
                waiter.cancel()
            raise

    async def _put_in_turn(self, put: Callable[[], T]) -> T:
        """Call what puts bytes at their turn; a cancel of the caller does not take that back."""
        waiter: asyncio.Future[T] = self._queue(put)
        return await waiter

    def _queue(self, put: Callable[[], Any] | None) -> asyncio.Future[Any]:
        if self._waiters is None:
            self._waiters = collections.deque()
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append((waiter, put))
        return waiter

    async def _wait_turn_to_read(self) -> None:
        """Take the turn with nothing to be written that the reader has to see."""
        while True:
            if self._out:
                await self._drain()
            await self._wait_turn()
            if not self._out:
                break
            self._end_turn()
        try:
            self._check()
        except ValueError:
            self._end_turn()
            raise
        self._ended = False

    def _end_turn(self) -> None:
        """Give the turn to the next operation that waits for it."""
        while self._waiters:
            waiter, put = self._waiters.popleft()
            if put is not None:
                self._put_now(waiter, put)
            elif not waiter.done():
                waiter.set_result(None)
                return
        self._held = False

    def _put_now(self, waiter: asyncio.Future[Any], put: Callable[[], Any]) -> None:
        try:
            result = put()
        except Exception as error:  # noqa: BLE001 - it is the caller's
            if waiter.done():
                self._error = error
            else:
                waiter.set_exception(error)
        else:
            if not waiter.done():
                waiter.set_result(result)

    # What it is, and what it allows.

    @property
    def name(self) -> Any:
        """The path or descriptor that the file was opened with."""
        return self._name

    @property
    def mode(self) -> str:
        """The mode, as the standard library's files report it."""
        return self._mode.told

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._fd < 0

    def _give_away(self) -> int:
        """Give up the descriptor, which stands at the position."""
        self._check()
        if self._out:
            raise ValueError("flush() the file before detach()")
        if not self._stream:
            os.lseek(self._fd, self._position, os.SEEK_SET)
        self._detached = True
        self._drop()
        return self._fd

    def _check(self) -> None:
        if self._detached:
            raise ValueError("raw stream has been detached")
        if self._fd < 0:
            raise ValueError("I/O operation on closed file.")

    def _check_reads(self) -> None:
        self._check()
        if not self._mode.reads:
            raise io.UnsupportedOperation("not readable")

    def _check_writes(self) -> None:
        self._check()
        if not self._mode.writes:
            raise io.UnsupportedOperation("not writable")

    def __repr__(self) -> str:
        state = "closed " if self.closed else ""
        return f"<{state}{type(self).__name__} name={self._name!r} mode={self.mode!r}>"

    def _is_seekable(self) -> bool:
        return self._stream == 0 or (self._stream == OWN_POSITION and _can_seek(self._fd))

    def _check_positions(self) -> None:
        if not self._is_seekable():
            raise io.UnsupportedOperation("underlying stream is not seekable")

    # The window: what was read ahead.

    def _ahead(self) -> int:
        return len(self._window) - self._at

    def _take(self, count: int) -> bytes:
        """Take up to `count` bytes that were read ahead."""
        window, start = self._window, self._at
        end = start + count
        if end < len(window):
            self._at = end
            self._position += count
            return window[start:end]
        self._drop()
        self._position += len(window) - start
        return window[start:] if start else window

    def _drop(self) -> None:
        self._window, self._at = b"", 0

    def _next_read(self) -> int:
        return self._stream or self._position + self._ahead()

    async def _fill(self, size: int) -> int:
        """Read ahead once, up to `size` bytes; the count. With the lock."""
        data = await backend().read(self._fd, size, self._next_read())
        self._append(data)
        return len(data)

    def _fill_blocking(self, size: int) -> None:
        """Read ahead by a call that may block: where a text file could not know that it needs more."""
        if self._stream:
            data = os.read(self._fd, size)
        else:
            place = self._next_read()
            cached = read_cached(self._fd, size, place)
            data = _system.pread(self._fd, size, place) if cached is None else cached
        self._append(data)

    def _append(self, data: bytes) -> None:
        self._window = self._window[self._at :] + data if self._ahead() else data
        self._at = 0
        self._ended = not data

    def _left_from(self, place: int) -> int:
        """How many bytes the file says to have behind `place`."""
        if self._stream:
            return PIECE_BYTES
        return max(os.fstat(self._fd).st_size - place, 0) or PIECE_BYTES

    async def _fill_line(self, limit: int) -> None:
        """Read ahead to the end of a line, or `limit` bytes."""
        searched = 0
        while self._window.find(b"\n", self._at + searched) < 0:
            searched = self._ahead()
            if 0 <= limit <= searched:
                return
            # A long line is not copied once for each piece of it.
            if not await self._fill(max(self._size, BUFFER_BYTES, searched)):
                return

    # What waits to be written.

    def _put(self, data: bytes) -> None:
        self._drop()
        if data:
            if not self._out:
                self._out = []
            self._out.append(data)
            self._out_len += len(data)
            self._position += len(data)
            most = self._size if len(data) < BUFFER_BYTES else self._collected_max
            self._flush_wanted |= self._out_len >= most

    async def _drain(self) -> None:
        await self._to_the_end(self._locked_drain())

    async def _locked_drain(self) -> None:
        await self._wait_turn()
        try:
            self._check()
            await self._write_out()
        finally:
            self._end_turn()

    async def _write_out(self, *, sync: bool = False, datasync: bool = False) -> None:
        """Write what waits, and synchronise that if asked. With the lock."""
        self._flush_wanted = False
        count, length = len(self._out), self._out_len
        data = self._out[0] if count == 1 else b"".join(self._out)
        if not data:
            return
        appends = self._mode.appends and not self._stream
        own = OWN_POSITION if appends else self._stream
        done = stood = 0
        try:
            while done < length:
                place = own or self._position - length + done
                rest = data[done:] if done else data
                if sync and own != POLLED:
                    stood = os.lseek(self._fd, 0, os.SEEK_CUR) if appends else 0
                    done += await backend().write_sync(self._fd, rest, place, datasync)
                else:
                    done += await backend().write(self._fd, rest, place)
        except OSError:
            if sync and appends and os.lseek(self._fd, 0, os.SEEK_CUR) != stood:
                # All was written, and could not be synchronised.
                done = length
            # A buffer keeps what was not written for the next flush; without one the caller has it.
            if not self._size:
                self._out = []
                self._out_len, self._position = 0, self._position - length
            elif own and done:
                self._forget(count, done, data[done:])
            raise
        except asyncio.CancelledError:
            self._forget_after_cancel(count, length)
            raise
        self._forget(count, length, b"")
        if appends:
            self._position = os.lseek(self._fd, 0, os.SEEK_CUR) + self._out_len

    def _forget(self, count: int, length: int, rest: bytes) -> None:
        """Leave `rest` of the first `count` pieces, of which `length` bytes are written."""
        self._out = self._out[count:]
        if rest:
            self._out.insert(0, rest)
        self._out_len -= length

    def _forget_after_cancel(self, count: int, length: int) -> None:
        # How much a pipe has taken is unknown: what is written once more would corrupt it.
        if self._stream == POLLED:
            self._forget(count, length, b"")

    # Moving on to its end what a cancel must not tear.

    async def _to_the_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` as a task that a cancel of the caller leaves alone; the next one waits for it."""
        loop = asyncio.get_running_loop()
        task = _Change(work, loop, can_be_cancelled=self._stream == POLLED)
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            task.add_done_callback(self._keep_error)
            raise
        return task.result()

    def _keep_error(self, task: asyncio.Task[Any]) -> None:
        """Keep an error whose caller was cancelled for the next `flush`, `fsync` or `close`."""
        if not task.cancelled():
            self._error = task.exception() or self._error

    def _raise_late(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    # The position and the end.

    def _move(self, offset: int, whence: int) -> int:
        """Move, with nothing to be written. lseek(2) does not wait."""
        self._check()
        if self._size and whence not in _WHENCES:
            raise ValueError(f"whence value {whence} unsupported")
        self._check_positions()
        if whence == os.SEEK_CUR:
            offset, whence = self._position + offset, os.SEEK_SET
        try:
            place = os.lseek(self._fd, offset, whence)
        except OverflowError as error:
            if not self._size:
                raise
            raise ValueError("cannot fit 'int' into an offset-sized integer") from error
        step = place - self._position
        if 0 <= self._at + step <= len(self._window):
            self._at += step
        else:
            self._drop()
        self._position = place
        return place

    def _close_now(self) -> None:
        fd, self._fd = self._fd, -1
        self._drop()
        if self._closefd:
            os.close(fd)
        elif not self._stream:
            os.lseek(fd, self._position, os.SEEK_SET)

    def __del__(self) -> None:
        if self._fd < 0 or self._detached:
            return
        if self._closefd:
            warnings.warn(f"unclosed file {self!r}", ResourceWarning, source=self, stacklevel=2)
        with contextlib.suppress(OSError):
            data = b"".join(self._out)
            if data and (self._stream or self._mode.appends):
                os.write(self._fd, data)
            elif data:
                _system.pwrite(self._fd, data, self._position - len(data))
        with contextlib.suppress(OSError):
            self._close_now()


_WHENCES: Final = frozenset(
    value
    for value in (
        getattr(os, f"SEEK_{name}", None) for name in ("SET", "CUR", "END", "DATA", "HOLE")
    )
    if value is not None
)


def _can_seek(fd: int) -> bool:
    try:
        os.lseek(fd, 0, os.SEEK_CUR)
    except OSError:
        return False
    return True
