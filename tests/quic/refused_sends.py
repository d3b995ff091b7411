"""A transfer during which the kernel refuses some sendmsg(2): a child of `test_refused_sends.py`.

    python -m tests.quic.refused_sends LOOP CERTIFICATE KEY AUTHORITY

A seccomp filter makes each call wait for another process, which allows it or makes it fail
(seccomp_unotify(2)): a thread of this one would need the interpreter, which a short call does not
release. The filter cannot be removed, so it needs a process of its own, too.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import platform
import signal
import socket
import struct
import sys
import threading

from ringloop import quic
from tests import support

# asm/unistd.h: seccomp, sendmsg, sendmmsg.
NUMBERS = {"x86_64": (317, 46, 307), "aarch64": (277, 211, 269)}
# linux/filter.h
LOAD_WORD, JUMP_EQUAL, RETURN = 0x20, 0x15, 0x06
# linux/seccomp.h
SET_MODE_FILTER, NEW_LISTENER, CONTINUE = 1, 1 << 3, 1
RETURN_ALLOW, RETURN_USER_NOTIF = 0x7FFF0000, 0x7FC00000
RECEIVE, SEND = 0xC0502100, 0xC0182101
NOTIFICATION, RESPONSE = struct.Struct("QIIiIQ6Q"), struct.Struct("QqiI")
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38

# The result of a call, by its number among twenty: a full socket, several times in a row, and
# errors of networks.
REFUSALS = {
    **dict.fromkeys((3, 4, 5, 11), errno.EAGAIN),
    13: errno.ENOBUFS,
    16: errno.EPERM,
    18: errno.ENETUNREACH,
}
BYTES = 1 << 20
UNAVAILABLE = 77


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


class Judge:
    """Decides about each call, in a child of this process without the filter."""

    def __init__(self) -> None:
        # By error, shared with the child.
        self._counts = memoryview(mmap.mmap(-1, mmap.PAGESIZE)).cast("I")
        ours, self._childs = socket.socketpair()
        self._listener = -1
        self._is_set = threading.Event()
        # The filter is its maker's and its threads': this one, from before, may send.
        self._sender = threading.Thread(target=self._send, args=(ours,))
        if os.fork() == 0:
            try:
                self._judge()
            finally:
                os._exit(1)
        self._sender.start()

    def counts(self) -> dict[int, int]:
        """How many calls had which result."""
        return {error: count for error, count in enumerate(self._counts) if count}

    def begin(self) -> None:
        """Put the calling thread's messages under the filter."""
        seccomp, *messages = NUMBERS[platform.machine()]
        steps = [
            (LOAD_WORD, 0, 0, 0),  # seccomp_data.nr
            (JUMP_EQUAL, 1, 0, messages[0]),
            (JUMP_EQUAL, 0, 1, messages[1]),
            (RETURN, 0, 0, RETURN_USER_NOTIF),
            (RETURN, 0, 0, RETURN_ALLOW),
        ]
        code = b"".join(struct.pack("=HBBI", *step) for step in steps)
        program = _Program(len(steps), code)
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        mode, listener = ctypes.c_long(SET_MODE_FILTER), ctypes.c_long(NEW_LISTENER)
        self._listener = libc.syscall(ctypes.c_long(seccomp), mode, listener, ctypes.byref(program))
        self._is_set.set()
        self._sender.join()
        if self._listener < 0:
            sys.stdout.write(f"no filter: {os.strerror(ctypes.get_errno())}")
            raise SystemExit(UNAVAILABLE)

    def _send(self, channel: socket.socket) -> None:
        self._is_set.wait()
        if self._listener >= 0:
            socket.send_fds(channel, [b"x"], [self._listener])

    def _judge(self) -> None:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        _, (listener,), _, _ = socket.recv_fds(self._childs, 1, 1)
        number = 0
        while True:
            asked = bytearray(NOTIFICATION.size)
            fcntl.ioctl(listener, RECEIVE, asked)
            error = REFUSALS.get(number % 20, 0)
            number += 1
            self._counts[error] += 1
            flags = 0 if error else CONTINUE
            answer = RESPONSE.pack(NOTIFICATION.unpack(asked)[0], 0, -error, flags)
            fcntl.ioctl(listener, SEND, bytearray(answer))


async def echo(stream: quic.Stream) -> None:
    async for chunk in stream.chunks():
        await stream.send(chunk)


async def main(certificate: str, key: str, authority: str, judge: Judge) -> None:
    """Transfer bytes both ways, and check that the judge has refused each kind."""
    server = await quic.serve(
        host="127.0.0.1",
        stream_handler=echo,
        certificate=certificate,
        private_key=key,
        alpn=["test"],
        initial_rtt=0.02,
    )
    judge.begin()
    data = bytes(range(256)) * (BYTES // 256)
    async with server:
        async with quic.connect(
            *server.address[:2],
            server_name="localhost",
            ca_file=authority,
            alpn=["test"],
            initial_rtt=0.02,
        ) as connection:
            for _ in range(3):
                stream = await connection.open_stream()
                stream.write(data)
                stream.finish()
                assert await stream.read_to_end() == data
    counts = judge.counts()
    assert set(counts) == {0, *REFUSALS.values()}, counts
    sys.stdout.write(f"arrived, {counts}\n")


if __name__ == "__main__":
    name, *paths = sys.argv[1:]
    certificate, key, authority = paths
    loop = support.loop_factory(name)()
    try:
        loop.run_until_complete(main(certificate, key, authority, Judge()))
    finally:
        loop.close()
