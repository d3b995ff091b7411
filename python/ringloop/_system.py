"""Differences between systems: calls and flags of Linux, and their counterparts on macOS and Windows.

Where the standard library has the name on Linux, it is that very object. Imports nothing of this
package. What Windows lacks raises `NotImplementedError`, as on asyncio's loops there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import subprocess
import sys
import threading
from asyncio import base_events, base_subprocess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

IS_LINUX = sys.platform == "linux"
IS_WINDOWS = sys.platform == "win32"

# The module whose `Popen` makes a child; that of Windows has overlapped pipes.
spawning: Any = subprocess
# asyncio's loop, child's transport and policy of this system; the loop is for its methods alone. The
# policy is None where asyncio has none.
UnixLoop: Any
ChildTransport: Any
DefaultPolicy: Any
if IS_WINDOWS:
    from asyncio import windows_events, windows_utils

    spawning = windows_utils

    # Its Unix sockets raise, and it sends a file by reading it.
    UnixLoop = base_events.BaseEventLoop
    ChildTransport = base_subprocess.BaseSubprocessTransport
    DefaultPolicy = getattr(
        windows_events,
        "WindowsSelectorEventLoopPolicy",
        getattr(windows_events, "_WindowsSelectorEventLoopPolicy", None),
    )
else:
    import fcntl
    from asyncio import unix_events

    UnixLoop = unix_events._UnixSelectorEventLoop
    ChildTransport = unix_events._UnixSubprocessTransport  # type: ignore[attr-defined]
    DefaultPolicy = getattr(unix_events, "_UnixDefaultEventLoopPolicy", None)

# No family of a socket where Python has none.
AF_UNIX: int = getattr(socket, "AF_UNIX", -1)

# Elsewhere a number of ours, which `socket_with_flags` takes out again.
SOCK_NONBLOCK: int = getattr(socket, "SOCK_NONBLOCK", 0x4000_0000)

# Level and name of the option with a Unix socket's peer, and the length of its value: struct ucred of
# unix(7); LOCAL_PEERCRED of unix(4), struct xucred of <sys/ucred.h>. The user comes second in both.
_PEER, _PEER_LEN = ((socket.SOL_SOCKET, socket.SO_PEERCRED), 12) if IS_LINUX else ((0, 1), 76)
_PEER_UID = 4

# open(2) of a file: bytes as they are, and no child inherits it.
OPEN_FLAGS: int = (
    os.O_BINARY | os.O_NOINHERIT  # type: ignore[attr-defined,unused-ignore]
    if IS_WINDOWS
    else os.O_CLOEXEC
)

# By descriptor, so that few files share one.
_SEEKS = tuple(threading.Lock() for _ in range(64))


def socket_with_flags(family: int, kind: int, proto: int = 0) -> socket.socket:
    """Make a socket whose kind may have SOCK_NONBLOCK."""
    new = socket.socket(family, kind & ~SOCK_NONBLOCK, proto)
    new.setblocking(not kind & SOCK_NONBLOCK)
    return new


# Called with a family and a kind, and a protocol or none.
new_socket = socket.socket if IS_LINUX else socket_with_flags


@contextlib.contextmanager
def _positioned_at(fd: int, offset: int) -> Iterator[None]:
    """Move the position for a moment. Not atomic with other moves of the position."""
    with _SEEKS[fd % len(_SEEKS)]:
        position = os.lseek(fd, 0, os.SEEK_CUR)
        os.lseek(fd, offset, os.SEEK_SET)
        try:
            yield
        finally:
            os.lseek(fd, position, os.SEEK_SET)


def pread_by_seek(fd: int, size: int, offset: int) -> bytes:
    """Read at an offset; the position stays the same."""
    with _positioned_at(fd, offset):
        return os.read(fd, size)


def pwrite_by_seek(fd: int, data: Any, offset: int) -> int:
    """Write at an offset, or at the end of a file opened to append; the position stays the same."""
    with _positioned_at(fd, offset):
        return os.write(fd, data)


pread: Callable[[int, int, int], bytes] = getattr(os, "pread", pread_by_seek)
pwrite: Callable[[int, Any, int], int] = getattr(os, "pwrite", pwrite_by_seek)
fdatasync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


def is_readable(sock: socket.socket) -> bool:
    """Return whether a read of the socket would not wait."""
    if IS_WINDOWS:
        return bool(select.select([sock], [], [], 0)[0])
    # Unlike select(2), it takes large descriptors.
    unread = select.poll()
    unread.register(sock, select.POLLIN)
    return bool(unread.poll(0))


@contextlib.contextmanager
def alone_in(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Hold a directory's lock; there is none on Windows, nor on file systems without locks."""
    if IS_WINDOWS:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def require_unix(what: str) -> None:
    """Raise `NotImplementedError` on Windows, for what this loop supports only on Unix."""
    if IS_WINDOWS:
        raise NotImplementedError(f"ringloop has no {what} on Windows")


def after_fork_in_child(function: Callable[[], None]) -> None:
    """Have a forked child call `function` at its start, on systems with fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


def write_to_wakeup(fd: int, numbers: bytes) -> None:
    """Write to a descriptor of `signal.set_wakeup_fd`, which on Windows is a socket's."""
    if not IS_WINDOWS:
        os.write(fd, numbers)
        return
    wakeup = socket.socket(fileno=fd)
    try:
        wakeup.send(numbers)
    finally:
        wakeup.detach()


def pidfd_open(pid: int) -> int:
    """Return a descriptor for a child; `OSError` if the system has none, and a thread has to wait."""
    if not hasattr(os, "pidfd_open"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return os.pidfd_open(pid)


def usable_processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def peer_uid(connection: socket.socket) -> int:
    """Return the user of a Unix socket's peer, as it was when it connected."""
    value = connection.getsockopt(*_PEER, _PEER_LEN)
    return int.from_bytes(value[_PEER_UID : _PEER_UID + 4], sys.byteorder)
