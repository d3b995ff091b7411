"""The operations of a running ringloop: the kernel's on io_uring, a pool of the engine's on epoll.

Called only by `_backend`. A method of the loop returns its result at once if the operation has ended,
else a future of the loop; cancelling that cancels the operation.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any


class Ring:
    """`_backend.Backend` on one loop."""

    def __init__(self, loop: Any) -> None:
        self._loop = loop

    async def open(self, path: bytes, flags: int, mode: int) -> tuple[int, int, int]:
        begun = self._loop._fs_open(path, flags, mode)
        if type(begun) is tuple:
            return begun
        try:
            opened: tuple[int, int, int] = await begun
        except asyncio.CancelledError:
            # Cancelled after it was opened, and before this task went on.
            if begun.done() and not begun.cancelled() and begun.exception() is None:
                os.close(begun.result()[0])
            raise
        return opened

    async def close(self, fd: int) -> None:
        begun = self._loop._fs_close(fd)
        if begun is not None:
            await begun

    async def read(self, fd: int, size: int, position: int) -> bytes:
        begun = self._loop._fs_read(fd, size, position)
        return begun if type(begun) is bytes else await begun

    async def write(self, fd: int, data: Any, position: int) -> int:
        begun = self._loop._fs_write(fd, data, position)
        return begun if type(begun) is int else await begun

    async def sync(self, fd: int, datasync: bool) -> None:
        begun = self._loop._fs_sync(fd, datasync)
        if begun is not None:
            await begun

    async def write_sync(self, fd: int, data: Any, position: int, datasync: bool) -> int:
        begun = self._loop._fs_write_sync(fd, data, position, datasync)
        return begun if type(begun) is int else await begun

    async def truncate(self, fd: int, size: int) -> None:
        begun = self._loop._fs_truncate(fd, size)
        if begun is not None:
            await begun

    async def stat(self, dir_fd: int, path: bytes, flags: int) -> os.stat_result:
        begun = self._loop._fs_stat(dir_fd, path, flags)
        return _stat_result(begun if type(begun) is tuple else await begun)

    async def mkdir(self, path: bytes, mode: int) -> None:
        begun = self._loop._fs_mkdir(path, mode)
        if begun is not None:
            await begun

    async def unlink(self, path: bytes, flags: int) -> None:
        begun = self._loop._fs_unlink(path, flags)
        if begun is not None:
            await begun

    async def rename(self, source: bytes, destination: bytes) -> None:
        begun = self._loop._fs_rename(source, destination)
        if begun is not None:
            await begun

    async def link(self, source: bytes, destination: bytes, flags: int) -> None:
        begun = self._loop._fs_link(source, destination, flags)
        if begun is not None:
            await begun

    async def symlink(self, target: bytes, path: bytes) -> None:
        begun = self._loop._fs_symlink(target, path)
        if begun is not None:
            await begun

    async def read_file(self, path: bytes) -> bytes:
        begun = self._loop._fs_read_file(path)
        return begun if type(begun) is bytes else await begun

    async def write_file(self, path: bytes, data: Any, flags: int, mode: int, sync: bool) -> None:
        begun = self._loop._fs_write_file(path, data, flags, mode, sync)
        if begun is not None:
            await begun


def _stat_result(parts: tuple[int, ...]) -> os.stat_result:
    mode, ino, major, minor, nlink, uid, gid, size = parts[:8]
    seconds, nanoseconds = parts[8:14:2], parts[9:14:2]
    blksize, blocks, rmajor, rminor = parts[14:]
    rest: dict[str, Any] = {
        "st_blksize": blksize,
        "st_blocks": blocks,
        "st_rdev": os.makedev(rmajor, rminor),
    }
    for name, second, nanosecond in zip(
        ("atime", "mtime", "ctime"), seconds, nanoseconds, strict=True
    ):
        rest[f"st_{name}"] = second + 1e-9 * nanosecond
        rest[f"st_{name}_ns"] = second * 1_000_000_000 + nanosecond
    first = (mode, ino, os.makedev(major, minor), nlink, uid, gid, size, *seconds)
    return os.stat_result(first, rest)
