"""Makes the kernel refuse calls, for tests in a process or thread of their own: it is irreversible."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import resource
import shutil
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# linux/filter.h and linux/seccomp.h
BPF_LOAD_WORD = 0x20
BPF_JUMP_EQUAL = 0x15
BPF_RETURN = 0x06
RETURN_ALLOW = 0x7FFF0000
RETURN_ERRNO = 0x00050000
# linux/prctl.h
PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2
# Offsets in seccomp_data; of an argument its low half, which comes first where this runs.
CALL_NUMBER = 0
SECOND_ARGUMENT = 24
# sys/epoll.h
EPOLL_CTL_DEL = 2
# The same number on every architecture.
IO_URING_SETUP = 425
# asm/unistd.h
NUMBERS = {
    "x86_64": {
        "recvmsg": 47,
        "recvmmsg": 299,
        "sendmmsg": 307,
        "accept4": 288,
        "madvise": 28,
        "eventfd2": 290,
        "epoll_create1": 291,
        "epoll_ctl": 233,
    },
    "aarch64": {
        "recvmsg": 212,
        "recvmmsg": 243,
        "sendmmsg": 269,
        "accept4": 242,
        "madvise": 233,
        "eventfd2": 19,
        "epoll_create1": 20,
        "epoll_ctl": 21,
    },
}.get(platform.machine(), {})


# Refuses calls for a while: see there.
REFUSING = Path(__file__).with_name("refusing.c")


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def deny_io_uring(errno: int) -> None:
    """Make io_uring_setup(2) fail with `errno`, as container runtimes do."""
    deny([IO_URING_SETUP], errno)


def deny(numbers: Iterable[int], errno: int) -> None:
    """Make these system calls fail with `errno` in the calling thread and in threads it starts."""
    steps = [(BPF_LOAD_WORD, 0, 0, CALL_NUMBER)]
    for number in numbers:
        steps += [(BPF_JUMP_EQUAL, 0, 1, number), (BPF_RETURN, 0, 0, RETURN_ERRNO | errno)]
    _filter([*steps, (BPF_RETURN, 0, 0, RETURN_ALLOW)])


def deny_watching(errno: int) -> None:
    """Have epoll_ctl(2) add and change nothing; it removes, as in a kernel without memory."""
    _filter(
        [
            (BPF_LOAD_WORD, 0, 0, CALL_NUMBER),
            (BPF_JUMP_EQUAL, 0, 3, NUMBERS["epoll_ctl"]),
            (BPF_LOAD_WORD, 0, 0, SECOND_ARGUMENT),
            (BPF_JUMP_EQUAL, 1, 0, EPOLL_CTL_DEL),
            (BPF_RETURN, 0, 0, RETURN_ERRNO | errno),
            (BPF_RETURN, 0, 0, RETURN_ALLOW),
        ]
    )


def _filter(steps: Iterable[tuple[int, int, int, int]]) -> None:
    steps = list(steps)
    filter_ = b"".join(struct.pack("=HBBI", *step) for step in steps)
    program = _Program(len(steps), filter_)
    libc = ctypes.CDLL(None, use_errno=True)
    for call in (
        lambda: libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        lambda: libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0),
    ):
        if call() != 0:
            raise OSError(ctypes.get_errno(), "prctl")


@functools.cache
def interposer(source: Path, folder: Path) -> Path | str:
    """Build a library to preload, once; the reason if that is not possible."""
    compiler = shutil.which("cc")
    if compiler is None:
        return "no C compiler (cc)"
    path = folder / f"{source.stem}-{os.getpid()}.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-o", str(path), str(source), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return path if done.returncode == 0 else done.stderr


def limit_locked_memory() -> None:
    """Forbid the process to lock memory, which older kernels charge for a ring."""
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))


def leave_descriptors(count: int) -> list[int]:
    """Limit the process to `count` more descriptors; return the used ones for the caller to close."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    fillers = []
    while True:
        try:
            fillers.append(os.dup(0))
        except OSError:
            break
    for _ in range(count):
        os.close(fillers.pop())
    return fillers
