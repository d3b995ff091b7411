"""What keeps a ring from a process, for children of `test_refused_ring.py`: it cannot be undone."""

from __future__ import annotations

import ctypes
import os
import resource
import struct

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
# The same number on every architecture.
IO_URING_SETUP = 425


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def deny_io_uring(errno: int) -> None:
    """Have io_uring_setup(2) fail with `errno`, as container runtimes do."""
    steps = (
        (BPF_LOAD_WORD, 0, 0, 0),  # seccomp_data.nr
        (BPF_JUMP_EQUAL, 0, 1, IO_URING_SETUP),
        (BPF_RETURN, 0, 0, RETURN_ERRNO | errno),
        (BPF_RETURN, 0, 0, RETURN_ALLOW),
    )
    filter_ = b"".join(struct.pack("=HBBI", *step) for step in steps)
    program = _Program(len(steps), filter_)
    libc = ctypes.CDLL(None, use_errno=True)
    for call in (
        lambda: libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        lambda: libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0),
    ):
        if call() != 0:
            raise OSError(ctypes.get_errno(), "prctl")


def limit_locked_memory() -> None:
    """Let the process lock no memory, which older kernels charge for a ring."""
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))


def leave_descriptors(count: int) -> list[int]:
    """Let the process open `count` more descriptors; the others are returned, to be closed again."""
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
