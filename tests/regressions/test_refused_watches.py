"""epoll refuses to watch a descriptor: no memory, or past `fs.epoll.max_user_watches` (epoll_ctl(2)).

A watcher was called once, and never again; `sock_*` asked again and again, and its loop used a whole
processor. Both raise the error, as on asyncio.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support import refuse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support import LoopFactory

pytestmark = [
    pytest.mark.skipif(not refuse.NUMBERS, reason="no numbers of system calls for this machine"),
]


@contextlib.contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        yield ours, theirs


async def watch(loop: asyncio.AbstractEventLoop) -> int | None:
    """Add watchers of both directions; return the errno, or None once one was called."""
    called = asyncio.Event()
    with pair() as (ours, _):
        try:
            loop.add_writer(ours, called.set)
        except OSError as error:
            assert not loop.remove_writer(ours)
            with pytest.raises(OSError, match=os.strerror(error.errno or 0)):
                loop.add_reader(ours, called.set)
            return error.errno
        await support.within(called.wait())
        loop.remove_writer(ours)
    return None


async def receive(loop: asyncio.AbstractEventLoop) -> int | None:
    """Receive what comes later; return the errno, or None once it has come."""
    with pair() as (ours, theirs):
        later = loop.call_later(0.01, theirs.send, b"bytes")
        try:
            assert await support.within(loop.sock_recv(ours, 100)) == b"bytes"
        except OSError as error:
            return error.errno
        finally:
            later.cancel()
    return None


@pytest.mark.parametrize("work", [watch, receive])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.ENOMEM])
def test_refused_watch_is_an_error(
    loop_name: str, loop_factory: LoopFactory, work: Any, error: int
) -> None:
    results: list[int | None] = []

    def in_thread() -> None:
        loop = loop_factory()
        try:
            refuse.deny([refuse.NUMBERS["epoll_ctl"]], error)
            results.append(loop.run_until_complete(work(loop)))
        finally:
            support.close_loop(loop)

    # A filter ends with its thread.
    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    # A ring polls by itself.
    assert results == [None if loop_name == "ringloop-uring" else error]
