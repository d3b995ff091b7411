"""Sockets that the application closes while an operation of another task waits for them.

As on asyncio the operation goes on waiting. Its peer sees the end, and the address is free: no loop may
keep the file open. The ring may for the first milliseconds of a wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest

import ringloop
from tests import support

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Loop = asyncio.AbstractEventLoop

# Longer than the ring keeps a file open.
BRIEF_SECONDS = 0.05


async def begin_recv(loop: Loop, sock: socket.socket) -> bytes:
    return await loop.sock_recv(sock, 10)


async def fill(loop: Loop, sock: socket.socket) -> None:
    await loop.sock_sendall(sock, bytes(32 << 20))


STREAMS = pytest.mark.parametrize(
    "begin",
    [
        pytest.param(lambda loop, sock: loop.sock_recv(sock, 10), id="recv"),
        pytest.param(lambda loop, sock: loop.sock_recv_into(sock, bytearray(10)), id="recv_into"),
        pytest.param(lambda loop, sock: loop.sock_recvfrom(sock, 10), id="recvfrom"),
        pytest.param(
            lambda loop, sock: loop.sock_recvfrom_into(sock, bytearray(10)), id="recvfrom_into"
        ),
        pytest.param(fill, id="sendall"),
    ],
)
SECONDS = pytest.mark.parametrize("seconds", [0, BRIEF_SECONDS], ids=["soon", "later"])
DATAGRAMS = pytest.mark.parametrize(
    "begin",
    [
        pytest.param(lambda loop, sock: loop.sock_recv(sock, 10), id="recv"),
        pytest.param(lambda loop, sock: loop.sock_recvfrom(sock, 10), id="recvfrom"),
        pytest.param(
            lambda loop, sock: loop.sock_recvfrom_into(sock, bytearray(10)), id="recvfrom_into"
        ),
    ],
)


async def started(
    loop: Loop, sock: socket.socket, begin: Any, seconds: float = 0.001
) -> asyncio.Task[Any]:
    """A task that waits for the socket, in the kernel."""
    task = loop.create_task(begin(loop, sock))
    await asyncio.sleep(seconds)
    assert not task.done()
    return task


@contextlib.asynccontextmanager
async def waiting(
    loop: Loop, sock: socket.socket, begin: Any, seconds: float = 0.001
) -> AsyncIterator[None]:
    """While a task waits for the socket."""
    task = await started(loop, sock, begin, seconds)
    yield
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def received_to_end(sock: socket.socket) -> None:
    sock.settimeout(support.PATIENCE_SECONDS)
    while sock.recv(1 << 20):
        pass


@STREAMS
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_UNIX], ids=["tcp", "unix"])
@SECONDS
def test_peer_of_a_stream_sees_the_end(
    loop: Loop, run: Any, begin: Any, family: int, seconds: float
) -> None:
    async def main() -> None:
        if family == socket.AF_UNIX:
            near, far = socket.socketpair()
        else:
            with socket.create_server(("127.0.0.1", 0)) as listener:
                near = socket.create_connection(listener.getsockname())
                far, _ = listener.accept()
        near.setblocking(False)
        with far:
            async with waiting(loop, near, begin, seconds):
                near.close()
                await support.within(asyncio.to_thread(received_to_end, far))

    run(main())


@DATAGRAMS
def test_address_of_a_datagram_socket_is_free(loop: Loop, run: Any, begin: Any) -> None:
    async def main() -> None:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", 0))
        sock.setblocking(False)
        address = sock.getsockname()
        async with waiting(loop, sock, begin, BRIEF_SECONDS):
            sock.close()
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as again:
                again.bind(address)

    run(main())


def test_address_of_a_listener_is_free(loop: Loop, run: Any) -> None:
    async def main() -> None:
        sock = socket.create_server(("127.0.0.1", 0))
        sock.setblocking(False)
        address = sock.getsockname()
        async with waiting(loop, sock, lambda loop, sock: loop.sock_accept(sock)):
            sock.close()
            socket.create_server(address).close()

    run(main())


@STREAMS
@SECONDS
def test_next_socket_of_that_number_is_another(
    loop: Loop, run: Any, begin: Any, seconds: float
) -> None:
    """An operation on it gets its own bytes."""
    if not isinstance(loop, ringloop.Loop):
        pytest.skip("asyncio takes it for the closed one, and waits for ever")

    async def main() -> None:
        near, far = socket.socketpair()
        near.setblocking(False)
        number = near.fileno()
        async with waiting(loop, near, begin, seconds):
            near.close()
            far.close()
            next_near, next_far = socket.socketpair()
            # The kernel gives the lowest free number.
            assert number in {next_near.fileno(), next_far.fileno()}
            if next_far.fileno() == number:
                next_near, next_far = next_far, next_near
            with next_near, next_far:
                next_near.setblocking(False)
                for message in (b"one", b"two"):
                    receiving = await started(loop, next_near, begin_recv)
                    next_far.send(message)
                    assert await support.within(receiving) == message

    run(main())


def test_duplicate_does_not_keep_the_loop_busy(loop: Loop, run: Any) -> None:
    """The file lives on, hung up, in another descriptor."""

    async def main() -> None:
        near, far = socket.socketpair()
        near.setblocking(False)
        copy = os.dup(near.fileno())
        try:
            receiving = loop.create_task(loop.sock_recv(near, 10))
            await asyncio.sleep(0.001)
            far.send(b"x")
            assert await support.within(receiving) == b"x"
            near.close()
            far.close()
            before = time.thread_time()
            await asyncio.sleep(0.2)
            assert time.thread_time() - before < 0.1
        finally:
            os.close(copy)

    run(main())
