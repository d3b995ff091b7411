"""Functions of `os`, `os.path` and `shutil` as coroutines.

On the ring, functions with a matching operation use it; the rest runs in the pool. Arguments, results
and errors are those of the function of that name. A call with `dir_fd` always runs in the pool.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shutil
import stat as stat_
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar

from ringloop._system import IS_WINDOWS
from ringloop.fs._backend import (
    AT_EMPTY_PATH,
    AT_FDCWD,
    AT_REMOVEDIR,
    AT_SYMLINK_NOFOLLOW,
    backend,
    call,
)
from ringloop.fs._names import encoded, named

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

P = ParamSpec("P")
T = TypeVar("T")

Name = str | bytes | os.PathLike[Any]

# Entries of a directory that one call of a pool thread reads.
ENTRIES_A_CALL: Final = 256


def in_pool(function: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Make a coroutine function that calls `function` in the pool."""

    @functools.wraps(function)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return await call(function, *args, **kwargs)

    run.__doc__ = f"As `{getattr(function, '__module__', 'os')}.{function.__name__}`, in the pool."
    return run


def lacking(name: str) -> Any:
    """Make a coroutine function in place of one that this system lacks."""

    async def refuse(*_args: Any, **_kwargs: Any) -> None:
        raise NotImplementedError(f"this system has no os.{name}")

    refuse.__name__ = refuse.__qualname__ = name
    return refuse


access = in_pool(os.access)
chmod = in_pool(os.chmod)
copy = in_pool(shutil.copy)
copy2 = in_pool(shutil.copy2)
copyfile = in_pool(shutil.copyfile)
copytree = in_pool(shutil.copytree)
disk_usage = in_pool(shutil.disk_usage)
getcwd = in_pool(os.getcwd)
listdir = in_pool(os.listdir)
makedirs = in_pool(os.makedirs)
move = in_pool(shutil.move)
readlink = in_pool(os.readlink)
realpath = in_pool(os.path.realpath)
removedirs = in_pool(os.removedirs)
renames = in_pool(os.renames)
rmtree = in_pool(shutil.rmtree)
truncate = in_pool(os.truncate)
utime = in_pool(os.utime)
if not IS_WINDOWS:
    chown = in_pool(os.chown)
    mkfifo = in_pool(os.mkfifo)
    statvfs = in_pool(os.statvfs)
else:
    chown, mkfifo, statvfs = lacking("chown"), lacking("mkfifo"), lacking("statvfs")


async def stat(
    path: Name | int, *, dir_fd: int | None = None, follow_symlinks: bool = True
) -> os.stat_result:
    """Return the metadata of a file, by its name or descriptor. On the ring: statx(2)."""
    if dir_fd is not None:
        return await call(os.stat, path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
    with named(path):
        if isinstance(path, int):
            return await backend().stat(path, b"", AT_EMPTY_PATH)
        flags = 0 if follow_symlinks else AT_SYMLINK_NOFOLLOW
        return await backend().stat(AT_FDCWD, encoded(path) or _empty(path), flags)


def _empty(path: Any) -> bytes:
    """Refuse an empty name: `stat` must not take it for the descriptor."""
    raise FileNotFoundError(2, os.strerror(2), path)


async def lstat(path: Name, *, dir_fd: int | None = None) -> os.stat_result:
    """Return the metadata of a file, without following a symbolic link."""
    return await stat(path, dir_fd=dir_fd, follow_symlinks=False)


async def mkdir(path: Name, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
    """Make a directory."""
    if dir_fd is not None:
        return await call(os.mkdir, path, mode, dir_fd=dir_fd)
    with named(path):
        return await backend().mkdir(encoded(path), mode)


async def rmdir(path: Name, *, dir_fd: int | None = None) -> None:
    """Remove an empty directory."""
    if dir_fd is not None:
        return await call(os.rmdir, path, dir_fd=dir_fd)
    with named(path):
        return await backend().unlink(encoded(path), AT_REMOVEDIR)


async def unlink(path: Name, *, dir_fd: int | None = None) -> None:
    """Remove a file's name."""
    if dir_fd is not None:
        return await call(os.unlink, path, dir_fd=dir_fd)
    with named(path):
        return await backend().unlink(encoded(path), 0)


remove = unlink


async def rename(
    src: Name, dst: Name, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
) -> None:
    """Rename a file; replaces a file of the new name, except on Windows."""
    if src_dir_fd is not None or dst_dir_fd is not None:
        return await call(os.rename, src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
    with named(src, dst):
        return await backend().rename(encoded(src), encoded(dst))


replace = in_pool(os.replace) if IS_WINDOWS else rename


async def link(
    src: Name,
    dst: Name,
    *,
    src_dir_fd: int | None = None,
    dst_dir_fd: int | None = None,
    follow_symlinks: bool = True,
) -> None:
    """Make a hard link `dst` to `src`."""
    if src_dir_fd is not None or dst_dir_fd is not None:
        return await call(
            os.link,
            src,
            dst,
            src_dir_fd=src_dir_fd,
            dst_dir_fd=dst_dir_fd,
            follow_symlinks=follow_symlinks,
        )
    # link(2), which `os.link` calls by default, follows no symbolic link on Linux.
    with named(src, dst):
        return await backend().link(encoded(src), encoded(dst), 0)


async def symlink(
    src: Name, dst: Name, target_is_directory: bool = False, *, dir_fd: int | None = None
) -> None:
    """Make a symbolic link `dst` to `src`."""
    # Only Windows looks at `target_is_directory`.
    if dir_fd is not None or IS_WINDOWS:
        return await call(os.symlink, src, dst, target_is_directory, dir_fd=dir_fd)
    with named(src, dst):
        return await backend().symlink(encoded(src), encoded(dst))


async def mode_of(path: Name | int, *, follow_symlinks: bool = True) -> int:
    """Give the type and permissions; 0 where there is no such file."""
    try:
        return (await stat(path, follow_symlinks=follow_symlinks)).st_mode
    except (OSError, ValueError):
        return 0


async def exists(path: Name | int) -> bool:
    """Return whether the file exists; False for a dangling symbolic link."""
    return await mode_of(path) != 0


async def lexists(path: Name) -> bool:
    """Return whether the name exists."""
    return await mode_of(path, follow_symlinks=False) != 0


async def isfile(path: Name | int) -> bool:
    """Return whether it is a regular file."""
    return stat_.S_ISREG(await mode_of(path))


async def isdir(path: Name | int) -> bool:
    """Return whether it is a directory."""
    return stat_.S_ISDIR(await mode_of(path))


async def islink(path: Name) -> bool:
    """Return whether it is a symbolic link."""
    return stat_.S_ISLNK(await mode_of(path, follow_symlinks=False))


async def getsize(path: Name | int) -> int:
    """Return a file's size in bytes."""
    return (await stat(path)).st_size


class scandir:  # noqa: N801 - the name of what it stands in for
    """Iterate over the entries of a directory: with `async for`, or in an `async with`.

    The entries are those of `os.scandir`, read a few hundred at a time in the pool. Their `stat` may
    block on a disk: see `fs.stat`.
    """

    def __init__(self, path: Name | int = ".") -> None:
        self._path = path
        self._entries: Iterator[os.DirEntry[Any]] | None = None
        self._batch: list[os.DirEntry[Any]] = []
        # A thread of the pool reads a batch; it ends also where the caller is cancelled.
        self._reading: asyncio.Future[list[os.DirEntry[Any]]] | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.aclose()

    async def _open(self) -> None:
        if self._entries is None and not self._closed:
            self._entries = await call(os.scandir, self._path)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> os.DirEntry[Any]:
        while not self._batch:
            await self._open()
            if self._entries is None:
                raise StopAsyncIteration
            await self._read_batch(self._entries)
        return self._batch.pop()

    async def _read_batch(self, entries: Iterator[os.DirEntry[Any]]) -> None:
        """Read entries, or wait for what is reading them, and close the directory at its end."""
        if self._reading is None:
            loop = asyncio.get_running_loop()
            self._reading = loop.run_in_executor(None, _some, entries)
        reading = self._reading
        await asyncio.wait((reading,))
        if self._reading is not reading:
            # Another task has them.
            return
        self._reading = None
        self._batch = reading.result()
        if not self._batch:
            await self.aclose()
        # Taken from the end.
        self._batch.reverse()

    async def aclose(self) -> None:
        """Close the directory."""
        self._closed = True
        entries, self._entries = self._entries, None
        if entries is None:
            return
        if self._reading is not None:
            # Two threads must not use one directory stream.
            await asyncio.wait((self._reading,))
        await call(entries.close)  # type: ignore[attr-defined]

    def __del__(self) -> None:
        entries = getattr(self, "_entries", None)
        reading = getattr(self, "_reading", None)
        if entries is not None and (reading is None or reading.done()):
            with contextlib.suppress(OSError):
                entries.close()


def _some(entries: Iterator[os.DirEntry[Any]]) -> list[os.DirEntry[Any]]:
    return [entry for _, entry in zip(range(ENTRIES_A_CALL), entries, strict=False)]


async def walk(
    top: Any, topdown: bool = True, onerror: Any = None, followlinks: bool = False
) -> AsyncIterator[tuple[Any, list[Any], list[Any]]]:
    """Iterate over a tree of directories, as `os.walk` does, with one call in the pool per directory."""
    steps = os.walk(top, topdown, onerror, followlinks)
    while (step := await call(next, steps, None)) is not None:
        yield step
