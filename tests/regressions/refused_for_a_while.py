"""What a loop does while the kernel refuses calls, and after it: `python -m … LOOP WORK`.

Needs `tests/support/refusing.c` preloaded. Prints nothing and exits with 0 if all is as it should be.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support import pipes, tcp

if TYPE_CHECKING:
    from collections.abc import Callable

WATCH, ACCEPT, ENTER = range(3)
# Operations of epoll_ctl(2), as bits.
ADD, REMOVE, CHANGE = 1 << 1, 1 << 2, 1 << 3
# How long a quiet loop is looked at, and how much of that it may use.
QUIET_SECONDS = 0.3
BUSY_SHARE = 0.5

_library: Any = ctypes.CDLL(None)


def refuse(
    which: int, count: int, error: int = errno.ENOMEM, operations: int = ~0, skipped: int = 0
) -> None:
    """Make `count` calls fail, past some that do not."""
    _library.refuse_calls(which, error, skipped, count, operations)


def left(which: int) -> int:
    """Return how many of them are still to come."""
    count: int = _library.refusals_left(which)
    return count


def refused() -> Any:
    """Expect the error of a refused call."""
    return pytest.raises(OSError, match=os.strerror(errno.ENOMEM))


class Reports:
    """What the loop's exception handler gets."""

    def __init__(self) -> None:
        self.errors: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: self.errors.append(getattr(context.get("exception"), "errno", None))
        )


async def a_few_turns() -> None:
    """Let the loop look at the kernel, without a descriptor of its own."""
    for _ in range(5):
        await asyncio.sleep(0.001)


async def assert_quiet() -> None:
    """Fail if the loop uses a processor though nothing happens."""
    began = time.process_time()
    await asyncio.sleep(QUIET_SECONDS)
    used = time.process_time() - began
    assert used < BUSY_SHARE * QUIET_SECONDS, f"{used:.2f} s of {QUIET_SECONDS:g}"


# --- servers ------------------------------------------------------------------------------------------


async def listener_tries_again() -> None:
    reports = Reports()
    async with tcp.serving(tcp.Factory()) as (_, address):
        assert await tcp.ask(address) == b"ping"
        # It rests for a second, and then its poll is refused.
        refuse(ACCEPT, 1, errno.EMFILE)
        refuse(WATCH, 0)
        asking = asyncio.ensure_future(tcp.ask(address))
        await support.wait_until(lambda: reports.errors, "the refused accept")
        refuse(WATCH, 1, operations=ADD | CHANGE)
        assert await asking == b"ping"
        assert reports.errors == [errno.EMFILE, errno.ENOMEM]
        assert await tcp.ask(address) == b"ping"


async def resumed_server_tries_again() -> None:
    reports = Reports()
    async with tcp.serving(tcp.Factory()) as (server, address):
        server.pause_accepting()
        asking = asyncio.ensure_future(tcp.ask(address))
        await a_few_turns()
        refuse(WATCH, 1, operations=ADD | CHANGE)
        server.resume_accepting()
        assert reports.errors == [errno.ENOMEM]
        assert await asking == b"ping"


async def server_past_its_limit_tries_again() -> None:
    reports = Reports()
    async with tcp.serving(tcp.Factory(), max_connections=1) as (_, address):
        with socket.create_connection(address) as first:
            first.send(b"first")
            first.setblocking(False)
            peer = tcp.Peer(first)
            assert await peer.receive(5) == b"first"
            asking = asyncio.ensure_future(tcp.ask(address))
            await a_few_turns()
            refuse(WATCH, 1, operations=ADD)
        # Its end lets the next one in.
        assert await asking == b"ping"
        assert reports.errors == [errno.ENOMEM]


async def refused_server_may_start_again() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        tcp.Factory(), ["127.0.0.1", "127.0.0.2"], 0, start_serving=False
    )
    # The first of two is taken, the second is not.
    for _ in range(2):
        refuse(WATCH, 1, operations=ADD)
        with refused():
            await server.start_serving()
        assert not server.is_serving()
    await server.start_serving()
    for sock in server.sockets:
        assert await tcp.ask(sock.getsockname()) == b"ping"
    server.close()
    await server.wait_closed()


async def refused_server_leaves_nothing_open() -> None:
    loop = asyncio.get_running_loop()
    before = support.open_descriptors()
    refuse(WATCH, 1, operations=ADD)
    with refused():
        await loop.create_server(tcp.Factory(), ["127.0.0.1", "127.0.0.2"], 0)
    assert support.open_descriptors() == before
    # A socket that was brought stays the caller's.
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        refuse(WATCH, 1, operations=ADD)
        with refused():
            await loop.create_server(tcp.Factory(), sock=sock)
        assert sock.fileno() != -1
        async with await loop.create_server(tcp.Factory(), sock=sock):
            assert await tcp.ask(sock.getsockname()) == b"ping"


# --- registrations that are not taken back ------------------------------------------------------------


async def paused_transport_is_quiet() -> None:
    recorder = tcp.Recorder()
    async with tcp.connected(recorder) as (transport, peer):
        await peer.send(b"first")
        await support.wait_until(lambda: recorder.data, "the first data")
        refuse(WATCH, 3, operations=REMOVE | CHANGE)
        transport.pause_reading()
        await a_few_turns()
        await peer.send(b" second")
        await support.wait_until(lambda: not left(WATCH), "the last refusal")
        await assert_quiet()
        transport.resume_reading()
        await support.wait_until(lambda: len(recorder.data) == 12, "the rest")


async def removed_writer_leaves_its_reader() -> None:
    loop = asyncio.get_running_loop()
    received: list[bytes] = []
    ours, theirs = tcp.socket_pair()
    with ours, theirs:
        loop.add_reader(ours, lambda: received.append(ours.recv(100)))
        writable = loop.create_future()
        loop.add_writer(ours, lambda: writable.done() or writable.set_result(None))
        await writable
        refuse(WATCH, 3, operations=REMOVE | CHANGE)
        loop.remove_writer(ours)
        await support.wait_until(lambda: not left(WATCH), "the last refusal")
        await assert_quiet()
        theirs.send(b"data")
        await support.wait_until(lambda: received, "the data")
        # Another direction is watched beside it again, whatever the kernel has by now.
        loop.add_writer(ours, lambda: None)
        refuse(WATCH, 1, operations=REMOVE | CHANGE)
        loop.remove_writer(ours)
        again = loop.create_future()
        loop.add_writer(ours, lambda: again.done() or again.set_result(None))
        await again
        theirs.send(b"more")
        await support.wait_until(lambda: len(received) == 2, "more data")
        loop.remove_writer(ours)
        loop.remove_reader(ours)
        assert received == [b"data", b"more"]


async def number_of_an_unremoved_socket_is_used_again() -> None:
    loop = asyncio.get_running_loop()
    for _ in range(5):
        ours, theirs = tcp.socket_pair()
        with ours, theirs:
            readable = loop.create_future()
            loop.add_reader(ours, lambda: readable.done() or readable.set_result(None))  # noqa: B023
            theirs.send(b"data")
            await support.within(readable)
            refuse(WATCH, 2, operations=REMOVE)
            loop.remove_reader(ours)
        refuse(WATCH, 0)
    await assert_quiet()


# --- the rest -----------------------------------------------------------------------------------------


async def signals_are_handled_after_a_refusal() -> None:
    loop = asyncio.get_running_loop()
    handled = loop.create_future()
    # Its own pair may be watched already.
    refuse(WATCH, 2, operations=ADD)
    try:
        loop.add_signal_handler(signal.SIGUSR1, lambda: None)
    except OSError as error:
        assert error.errno == errno.ENOMEM
    refuse(WATCH, 0)
    loop.add_signal_handler(signal.SIGUSR1, handled.set_result, None)
    os.kill(os.getpid(), signal.SIGUSR1)
    await support.within(handled)
    assert loop.remove_signal_handler(signal.SIGUSR1)


async def refused_child_is_reaped() -> None:
    before = support.open_descriptors()
    # Past the question whether a pidfd can be watched: it, and then one of its pipes after the other.
    for skipped in range(1, 5):
        refuse(WATCH, 1, operations=ADD, skipped=skipped)
        with refused():
            await asyncio.create_subprocess_exec(
                *("sleep", "100"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        assert not left(WATCH)
        with pytest.raises(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)  # noqa: ASYNC222 - it does not wait
        await support.wait_until(lambda: support.open_descriptors() == before, "its pipes' end")
    process = await asyncio.create_subprocess_exec("true")
    assert await process.wait() == 0


async def unanswerable_question_is_no_refusal() -> None:
    # Whether a pidfd can be watched is asked of a set of its own, for which there is no memory.
    refuse(WATCH, 1, operations=ADD)
    process = await asyncio.create_subprocess_exec("true")
    assert await process.wait() == 0
    assert not left(WATCH)


async def refused_pipe_is_closed() -> None:
    loop = asyncio.get_running_loop()
    for connect in (pipes.reading, pipes.writing):
        lost = pipes.Recorder()
        reader, writer = os.pipe()
        with open(reader, "rb", 0) as reading, open(writer, "wb", 0) as writing:  # noqa: ASYNC230
            ours = reading if connect is pipes.reading else writing
            refuse(WATCH, 1, operations=ADD)
            with refused():
                await connect(loop, ours, lost)
            await support.wait_until(lambda: ("lost", OSError) in lost.calls, "its end")  # noqa: B023
            assert ours.closed
            assert lost.calls[0] == "made"


async def entering_is_tried_again() -> None:
    async with tcp.serving(tcp.Factory()) as (_, address):
        for error in (errno.EAGAIN, errno.EBUSY, errno.ENOMEM, errno.EINTR):
            refuse(ENTER, 50, error)
            assert await tcp.ask(address) == b"ping"
            await support.wait_until(lambda: not left(ENTER), "the last refusal")


async def entering_is_not_tried_without_end() -> None:
    ours, theirs = tcp.socket_pair()
    with ours, theirs:
        loop = asyncio.get_running_loop()
        # A millisecond passes before each next one: a receive waits to be taken.
        refuse(ENTER, 100, errno.EAGAIN)
        began, used = time.monotonic(), time.process_time()
        loop.call_later(0.01, theirs.send, b"data")
        reader, writer = await asyncio.open_connection(sock=ours)
        assert await support.within(reader.read(100)) == b"data"
        assert not left(ENTER)
        assert time.monotonic() - began >= 0.09
        assert time.process_time() - used < BUSY_SHARE * (time.monotonic() - began)
        writer.close()
        await writer.wait_closed()


EPOLL_WORKS: tuple[Callable[[], Any], ...] = (
    listener_tries_again,
    resumed_server_tries_again,
    server_past_its_limit_tries_again,
    refused_server_may_start_again,
    refused_server_leaves_nothing_open,
    paused_transport_is_quiet,
    removed_writer_leaves_its_reader,
    number_of_an_unremoved_socket_is_used_again,
    signals_are_handled_after_a_refusal,
    refused_child_is_reaped,
    refused_pipe_is_closed,
)
URING_WORKS: tuple[Callable[[], Any], ...] = (
    unanswerable_question_is_no_refusal,
    entering_is_tried_again,
    entering_is_not_tried_without_end,
)


def main(loop_name: str, work_name: str) -> None:
    """Run one work."""
    works = {work.__name__: work for work in (*EPOLL_WORKS, *URING_WORKS)}
    loop = support.loop_factory(loop_name)()
    try:
        loop.run_until_complete(support.within(works[work_name]()))
    finally:
        refuse(WATCH, 0)
        support.close_loop(loop)


if __name__ == "__main__":
    main(*sys.argv[1:])
