"""Operations on the user's own sockets: the coroutine around a native attempt, and sendfile."""

from __future__ import annotations

import asyncio
import socket
from asyncio import base_events

from ringloop import _system
from ringloop._native import SocketOperation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ringloop._loop import Loop


# Seconds between two tries to connect to a Unix listener whose backlog is full.
CONNECT_PAUSE_MIN = 0.0005
CONNECT_PAUSE_MAX = 0.016


async def finish(answer: Any) -> Any:
    """Return the result of a `_begin_*` call, waiting if it returned an operation.

    Nothing is taken from the socket between its readiness and the return of this coroutine, so a
    cancelled receive leaves every byte to the next one.
    """
    if type(answer) is not SocketOperation:
        return answer
    operation = answer
    try:
        while answer is operation:
            await operation.wait()
            answer = operation.attempt()
        return answer
    finally:
        operation.end()


async def connect(loop: Loop, sock: socket.socket, address: Any) -> None:
    """Resolve `address` if its family has names, and connect."""
    base_events._check_ssl_socket(sock)  # type: ignore[attr-defined]
    if loop.get_debug() and sock.gettimeout() != 0:
        raise ValueError("the socket must be non-blocking")
    if sock.family in {socket.AF_INET, socket.AF_INET6}:
        resolved = await loop._ensure_resolved(  # type: ignore[attr-defined]
            address, family=sock.family, type=sock.type, proto=sock.proto, loop=loop
        )
        address = resolved[0][4]
    if sock.family == _system.AF_UNIX:
        await _connect_unix(sock, address)
    else:
        await finish(loop._begin_connect(sock, address))


async def _connect_unix(sock: socket.socket, address: Any) -> None:
    """Connect, and wait while the listener's backlog is full.

    The kernel says `EAGAIN` then, which elsewhere means that the connection is under way. Here it is
    not, and no event tells of room: the socket is writable all the time.
    """
    pause = CONNECT_PAUSE_MIN
    while True:
        try:
            return sock.connect(address)
        except BlockingIOError:
            await asyncio.sleep(pause)
        pause = min(pause * 2, CONNECT_PAUSE_MAX)


def sendfile_step(loop: Loop, done: asyncio.Future[int], *state: Any) -> None:
    """Send a part of a file, as asyncio does.

    If the kernel cannot watch the socket for writing, that ends it: asyncio's waits forever.
    """
    if (fd := state[1].fileno()) in loop._lent_descriptors:
        loop._lent_descriptors[fd] = done
    try:
        _system.UnixLoop._sock_sendfile_native_impl(loop, done, *state)
    except OSError as error:
        if not done.done():
            done.set_exception(error)


def end_sendfile(loop: Loop, fd: int, error: Exception) -> None:
    """End the file that is sent on a transport that is lost; asyncio's waits for ever."""
    loop._remove_writer(fd)
    done = loop._lent_descriptors.get(fd)
    if done is not None and not done.done():
        done.set_exception(error)


async def sendfile_native(loop: Loop, transport: Any, file: Any, offset: int, count: int) -> int:
    """Send a file on a transport's socket while the transport is paused."""
    fd = transport._sock_fd
    resume_reading = transport.is_reading()
    transport.pause_reading()
    await transport._make_empty_waiter()
    loop._lent_descriptors[fd] = None
    try:
        sent: int = await loop.sock_sendfile(transport._sock, file, offset, count, fallback=False)
        return sent
    finally:
        loop._lent_descriptors.pop(fd, None)
        transport._reset_empty_waiter()
        if resume_reading:
            transport.resume_reading()
