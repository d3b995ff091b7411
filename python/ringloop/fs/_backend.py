"""Operations on descriptors and names: the loop's own on ringloop, a bounded pool elsewhere.

The pool is for other loops, and for Windows. Owns: the choice between the two, which have the same
methods, results and errors, and the pool. Called by every module of the package. A position of -1 is
the descriptor's own, -2 stands for a polled descriptor (pipes, sockets, terminals).
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import errno
import functools
import io
import os
import select
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from ringloop import _system
from ringloop._native import LoopCore
from ringloop.fs._ring import Ring

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

OWN_POSITION: Final = -1
POLLED: Final = -2

# Of `Pool.read_cached`: larger reads go to the pool, where the copy stops no loop.
CACHED_BYTES: Final = 1 << 20
# And the loop runs its callbacks after as many: they take a millisecond at most.
CACHED_READS: Final = 8

# statx(2): the empty path is the descriptor itself.
AT_EMPTY_PATH: Final = 0x1000
AT_SYMLINK_NOFOLLOW: Final = 0x100
AT_REMOVEDIR: Final = 0x200
AT_FDCWD: Final = -100


class Backend(Protocol):
    """The operations behind files. Names are those of `os.fsencode`; errors have no file name yet."""

    # Descriptor, type and size.
    async def open(self, path: bytes, flags: int, mode: int) -> tuple[int, int, int]: ...
    async def close(self, fd: int) -> None: ...
    async def read(self, fd: int, size: int, position: int) -> bytes: ...
    # Up to an error, which the next call meets if something was written; the count.
    async def write(self, fd: int, data: Any, position: int) -> int: ...
    async def sync(self, fd: int, datasync: bool) -> None: ...
    # Not synchronised where the count is less than all.
    async def write_sync(self, fd: int, data: Any, position: int, datasync: bool) -> int: ...
    async def truncate(self, fd: int, size: int) -> None: ...
    async def stat(self, dir_fd: int, path: bytes, flags: int) -> os.stat_result: ...
    async def mkdir(self, path: bytes, mode: int) -> None: ...
    async def unlink(self, path: bytes, flags: int) -> None: ...
    async def rename(self, source: bytes, destination: bytes) -> None: ...
    async def link(self, source: bytes, destination: bytes, flags: int) -> None: ...
    async def symlink(self, target: bytes, path: bytes) -> None: ...
    async def read_file(self, path: bytes) -> bytes: ...
    async def write_file(
        self, path: bytes, data: Any, flags: int, mode: int, sync: bool
    ) -> None: ...


async def call(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call a function that may block, in the caller's context, on the pool of the running loop."""
    loop = asyncio.get_running_loop()
    context = contextvars.copy_context()
    bound = functools.partial(context.run, function, *args, **kwargs)
    return await loop.run_in_executor(None, bound)


async def call_to_the_end(function: Callable[..., T], *args: Any, lost: Callable[[T], Any]) -> T:
    """Call what makes something; where the caller is cancelled meanwhile, `lost` gets the result."""
    loop = asyncio.get_running_loop()
    context = contextvars.copy_context()
    future = loop.run_in_executor(None, functools.partial(context.run, function, *args))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:

        def drop(done: asyncio.Future[T]) -> None:
            if not done.cancelled() and done.exception() is None:
                lost(done.result())

        future.add_done_callback(drop)
        raise


class Pool:
    """The same with the standard library, on the running loop's default executor.

    A call that has begun cannot be stopped; its result is dropped if the caller was cancelled.
    """

    def __init__(self) -> None:
        self._cached_count = 0

    async def open(self, path: bytes, flags: int, mode: int) -> tuple[int, int, int]:
        return await call_to_the_end(
            _open_file, path, flags, mode, lost=lambda found: os.close(found[0])
        )

    async def close(self, fd: int) -> None:
        await call(os.close, fd)

    async def read(self, fd: int, size: int, position: int) -> bytes:
        if position >= 0 and 0 < size <= CACHED_BYTES:
            self._cached_count += 1
            if self._cached_count % CACHED_READS == 0:
                # A task that reads only what is cached would never suspend.
                await asyncio.sleep(0)
            cached = read_cached(fd, size, position)
            if cached is not None:
                return cached
        if position == POLLED:
            if not _system.IS_WINDOWS and not os.get_blocking(fd):
                # At once: a FIFO that had no writer is at its end, but not readable.
                with contextlib.suppress(BlockingIOError):
                    return os.read(fd, size)
            if await _is_readable(fd):
                return os.read(fd, size)
        return await call(_read, fd, size, position)

    async def write(self, fd: int, data: Any, position: int) -> int:
        return await call(_write, fd, data, position)

    async def sync(self, fd: int, datasync: bool) -> None:
        await call(_system.fdatasync if datasync else os.fsync, fd)

    async def write_sync(self, fd: int, data: Any, position: int, datasync: bool) -> int:
        return await call(_write_sync, fd, data, position, datasync)

    async def truncate(self, fd: int, size: int) -> None:
        await call(os.ftruncate, fd, size)

    async def stat(self, dir_fd: int, path: bytes, flags: int) -> os.stat_result:
        if not path:
            return await call(os.fstat, dir_fd)
        return await call(os.stat, path, follow_symlinks=not flags & AT_SYMLINK_NOFOLLOW)

    async def mkdir(self, path: bytes, mode: int) -> None:
        await call(os.mkdir, path, mode)

    async def unlink(self, path: bytes, flags: int) -> None:
        await call(os.rmdir if flags & AT_REMOVEDIR else os.unlink, path)

    async def rename(self, source: bytes, destination: bytes) -> None:
        await call(os.rename, source, destination)

    async def link(self, source: bytes, destination: bytes, flags: int) -> None:
        if os.link in os.supports_follow_symlinks:
            return await call(os.link, source, destination, follow_symlinks=bool(flags))
        return await call(os.link, source, destination)

    async def symlink(self, target: bytes, path: bytes) -> None:
        await call(os.symlink, target, path)

    async def read_file(self, path: bytes) -> bytes:
        return await call(_read_file, path)

    async def write_file(self, path: bytes, data: Any, flags: int, mode: int, sync: bool) -> None:
        await call(_write_file, path, data, flags, mode, sync)


_POOL: Final = Pool()


def backend() -> Backend:
    """Return the backend of the running loop.

    Raises `RuntimeError` if none runs.
    """
    loop = asyncio.get_running_loop()
    return Ring(loop) if isinstance(loop, LoopCore) and not _system.IS_WINDOWS else _POOL


def read_cached(fd: int, size: int, position: int) -> bytes | None:
    """Read cached data, all of `size` or up to the file's end; None if that might wait."""
    if not hasattr(os, "RWF_NOWAIT"):
        return None
    buffer = bytearray(size)
    done = 0
    with memoryview(buffer) as view:
        while done < size:
            try:
                count = os.preadv(fd, [view[done:]], position + done, os.RWF_NOWAIT)
            except OSError as error:
                # Not cached; or a file system that cannot tell.
                if error.errno in {errno.EAGAIN, errno.EOPNOTSUPP, errno.ENOSYS}:
                    return None
                raise
            if count == 0:
                break
            done += count
    return bytes(buffer[:done])


async def _is_readable(fd: int) -> bool:
    """Wait until a read would not; False where the loop cannot watch the descriptor."""
    if _system.IS_WINDOWS:
        return False
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    if poll.poll(0):
        return True
    loop = asyncio.get_running_loop()
    # One of our own: the program may watch the file's.
    watched = os.dup(fd)
    try:
        ready = loop.create_future()
        try:
            loop.add_reader(watched, _set, ready)
        except (OSError, NotImplementedError):
            return False
        try:
            await ready
        finally:
            loop.remove_reader(watched)
    finally:
        os.close(watched)
    return True


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def _open(path: bytes, flags: int, mode: int) -> int:
    return os.open(path, flags | _system.OPEN_FLAGS, mode)


def _open_file(path: bytes, flags: int, mode: int) -> tuple[int, int, int]:
    fd = _open(path, flags, mode)
    found = os.fstat(fd)
    return fd, found.st_mode, found.st_size


def _read(fd: int, size: int, position: int) -> bytes:
    if position < 0:
        return os.read(fd, size)
    parts = []
    while size > 0:
        part = _system.pread(fd, size, position)
        if not part:
            break
        parts.append(part)
        size -= len(part)
        position += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _write(fd: int, data: Any, position: int) -> int:
    with memoryview(data) as whole, whole.cast("B") as view:
        done = 0
        while done < len(view):
            rest = view[done:]
            try:
                if position < 0:
                    done += os.write(fd, rest)
                else:
                    done += _system.pwrite(fd, rest, position + done)
            except OSError:
                if not done:
                    raise
                break
        return done


def _write_all(fd: int, data: Any, position: int) -> int:
    with memoryview(data) as whole, whole.cast("B") as view:
        done = 0
        while done < len(view):
            done += _write(fd, view[done:], position if position < 0 else position + done)
        return done


def _write_sync(fd: int, data: Any, position: int, datasync: bool) -> int:
    count = _write(fd, data, position)
    if count == len(data):
        (_system.fdatasync if datasync else os.fsync)(fd)
    return count


def _read_file(path: bytes) -> bytes:
    with io.FileIO(path) as file:
        return file.readall()


def _write_file(path: bytes, data: Any, flags: int, mode: int, sync: bool) -> None:
    fd = _open(path, flags, mode)
    try:
        _write_all(fd, data, OWN_POSITION)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
