"""A descriptor that is closed while it is watched: its peer sees the end at once, as with epoll.

The ring keeps the file of a poll in flight: a socket that was closed without `remove_reader` stayed
open, and its peer waited. Watchers of the ring poll an epoll set, which keeps no file; so that the sets
are no descriptors that stay, either.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from typing import TYPE_CHECKING, Any

import pytest

from tests import support

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.support import LoopFactory

    Run = Callable[[Coroutine[Any, Any, Any]], Any]


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    return ours, theirs


@pytest.mark.parametrize("pair", [socket.socketpair, tcp_pair], ids=["unix", "tcp"])
@pytest.mark.parametrize("by", ["number", "object"])
def test_peer_of_a_socket_sees_the_end(
    loop: Any, run: Run, pair: Callable[[], tuple[socket.socket, socket.socket]], by: str
) -> None:
    ours, theirs = pair()
    theirs.settimeout(support.PATIENCE_SECONDS)
    called: list[int] = []

    async def main() -> None:
        watched = ours if by == "object" else ours.fileno()
        loop.add_reader(watched, called.append, 1)
        await asyncio.sleep(0.01)
        ours.close()
        await asyncio.sleep(0)
        assert theirs.recv(1) == b""
        theirs.close()
        await asyncio.sleep(0.01)
        assert called == []
        assert loop.remove_reader(watched)

    run(main())


def test_reader_of_a_pipe_sees_the_end_of_a_watched_writer(loop: Any, run: Run) -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)

    async def main() -> None:
        with pytest.raises(BlockingIOError):
            while True:
                os.write(write_end, bytes(65_536))
        loop.add_writer(write_end, lambda: None)
        await asyncio.sleep(0.01)
        os.close(write_end)
        await asyncio.sleep(0)
        os.set_blocking(read_end, False)
        while os.read(read_end, 1 << 20):
            """Until the end: a pipe that has a writer is a BlockingIOError."""
        loop.remove_writer(write_end)

    run(main())
    os.close(read_end)


def test_writer_of_a_pipe_sees_the_end_of_a_watched_reader(loop: Any, run: Run) -> None:
    read_end, write_end = os.pipe()

    async def main() -> None:
        loop.add_reader(read_end, lambda: None)
        await asyncio.sleep(0.01)
        os.close(read_end)
        await asyncio.sleep(0)
        with pytest.raises(BrokenPipeError):
            os.write(write_end, b"x")
        loop.remove_reader(read_end)

    run(main())
    os.close(write_end)


@pytest.mark.parametrize("when", ["before the first run", "between runs", "in a callback"])
def test_watching_often_without_a_turn_leaves_no_descriptors(
    loop_factory: LoopFactory, when: str
) -> None:
    loop = loop_factory()
    ours, theirs = socket.socketpair()
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = len(os.listdir("/proc/self/fd"))

    def often() -> None:
        for _ in range(2 * min(limit, 1024)):
            loop.add_reader(ours, print)
            loop.add_writer(ours, print)
            loop.remove_writer(ours)
            loop.add_reader(ours, print)
            loop.remove_reader(ours)
        assert len(os.listdir("/proc/self/fd")) < before + 200

    try:
        if when != "before the first run":
            loop.run_until_complete(asyncio.sleep(0))
        if when == "in a callback":
            loop.call_soon(often)
        else:
            often()
        loop.run_until_complete(asyncio.sleep(0.01))
    finally:
        loop.close()
        ours.close()
        theirs.close()
    assert len(os.listdir("/proc/self/fd")) <= before + 2
