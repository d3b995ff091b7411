"""A socket that the user closes, detaches or duplicates under its transport.

The transports used the descriptor's number, which the next file reuses: a flush was sent on the other
connection, a re-armed receive took its bytes, and closing the old transport removed the new one from
epoll. asyncio calls methods of the socket, which fail with EBADF.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import Peer, Recorder, closed, pattern, socket_pair

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]


async def connect(sock: socket.socket) -> tuple[Any, Recorder]:
    loop = asyncio.get_running_loop()
    return await loop.create_connection(Recorder, sock=sock)


def take_number(closed_one: socket.socket) -> tuple[socket.socket, socket.socket]:
    """Close a socket, and open a connection whose near end reuses its number."""
    ours, theirs = socket_pair()
    number = closed_one.fileno()
    closed_one.close()
    os.dup2(ours.fileno(), number, inheritable=False)
    near = socket.socket(ours.family, ours.type, ours.proto, fileno=number)
    near.setblocking(False)
    ours.close()
    return near, theirs


def assert_bad_descriptor(protocol: Recorder) -> None:
    assert isinstance(protocol.reason, OSError)
    assert protocol.reason.errno == errno.EBADF


@pytest.mark.parametrize("size", [5, 100_000])
def test_write_after_the_socket_was_closed_is_not_sent(run: Run, size: int) -> None:
    async def main() -> None:
        ours, theirs = socket_pair()
        transport, protocol = await connect(ours)
        other, other_peer = take_number(ours)
        other_peer.setblocking(False)
        transport.write(pattern(size))
        await protocol.until_lost()
        assert_bad_descriptor(protocol)
        other.send(b"own")
        assert await Peer(other_peer).receive(3) == b"own"
        for sock in (theirs, other, other_peer):
            sock.close()

    run(main())


def test_write_before_the_socket_was_closed_is_not_misdirected(run: Run, loop_name: str) -> None:
    """Gathered writes are sent at the end of the iteration; by then another file may have the number."""

    async def main() -> None:
        ours, theirs = socket_pair()
        transport, protocol = await connect(ours)
        transport.write(b"mine")
        other, other_peer = take_number(ours)
        if loop_name == support.ORACLE:
            assert await Peer(theirs).receive(4) == b"mine"
            transport.abort()
            await protocol.until_lost()
        else:
            await protocol.until_lost()
            assert_bad_descriptor(protocol)
        assert Peer(other_peer).received() is None
        for sock in (theirs, other, other_peer):
            sock.close()

    run(main())


def test_new_connection_with_the_number_of_a_closed_one(run: Run, loop_name: str) -> None:
    if loop_name == support.ORACLE:
        pytest.skip(
            "asyncio's selector takes the new descriptor for the old one, and never waits for it"
        )

    async def main() -> None:
        ours, theirs = socket_pair()
        old, old_protocol = await connect(ours)
        await asyncio.sleep(0)
        near, far = take_number(ours)
        peer = Peer(far)
        new, new_protocol = await connect(near)
        await peer.send(b"for the new one")
        await support.wait_until(lambda: len(new_protocol.data) == 15)
        # Closing the old transport must not affect the new one.
        old.abort()
        await old_protocol.until_lost()
        await peer.send(b", and more")
        await support.wait_until(lambda: len(new_protocol.data) == 25)
        new.write(b"answer")
        assert await peer.receive(6) == b"answer"
        assert bytes(new_protocol.data) == b"for the new one, and more"
        assert not old_protocol.data
        with pytest.raises(RuntimeError, match="is used by transport"):
            asyncio.get_running_loop().add_reader(near, print)
        new.close()
        await closed(new)
        theirs.close()
        far.close()

    run(main())


@pytest.mark.parametrize("size", [10, 300_000])
def test_bytes_for_a_closed_socket_are_not_taken_from_the_next_one(
    run: Run, loop_name: str, size: int
) -> None:
    """Large enough to use every kind of receive."""

    async def main() -> None:
        ours, theirs = socket_pair()
        peer = Peer(theirs)
        transport, protocol = await connect(ours)
        await peer.send(pattern(size))
        await support.wait_until(lambda: len(protocol.data) == size)
        near, far = take_number(ours)
        far.sendall(b"not for the transport")
        await asyncio.sleep(0.01)
        transport.pause_reading()
        await asyncio.sleep(0.01)
        transport.resume_reading()
        await asyncio.sleep(0.01)
        if loop_name != support.ORACLE:
            assert len(protocol.data) == size
            assert near.recv(100) == b"not for the transport"
        transport.abort()
        await protocol.until_lost()
        for sock in (near, far, theirs):
            sock.close()

    run(main())


@pytest.mark.parametrize("has_read", [False, True])
def test_detached_socket_ends_the_connection_at_the_next_byte(
    run: Run, loop_name: str, has_read: bool
) -> None:
    async def main() -> None:
        ours, theirs = socket_pair()
        peer = Peer(theirs)
        _, protocol = await connect(ours)
        if has_read:
            await peer.send(b"0")
            await support.wait_until(lambda: protocol.data == b"0")
        with socket.socket(fileno=ours.detach()) as detached:
            await peer.send(b"first")
            await protocol.until_lost()
            assert_bad_descriptor(protocol)
            assert bytes(protocol.data) == (b"0" if has_read else b"")
            # From here on only the user reads it. Data for the receive in flight on the ring is
            # lost.
            expected = b"second" if has_read and loop_name == "ringloop-uring" else b"firstsecond"
            detached.setblocking(False)
            await peer.send(b"second")
            assert await Peer(detached).receive(len(expected)) == expected
            detached.send(b"answer")
            assert await peer.receive(6) == b"answer"
        peer.close()

    run(main())


def test_duplicate_keeps_the_connection_when_the_socket_is_closed(run: Run) -> None:
    """The file stays open through the duplicate, and epoll reports it under the old number."""

    async def main() -> None:
        ours, theirs = socket_pair()
        peer = Peer(theirs)
        _, protocol = await connect(ours)
        duplicate = ours.dup()
        duplicate.setblocking(False)
        ours.close()
        await peer.send(b"x")
        await protocol.until_lost()
        assert_bad_descriptor(protocol)
        duplicate.send(b"still open")
        assert await peer.receive(10) == b"still open"
        duplicate.close()
        peer.close()

    run(main())


def test_socket_subclass_is_asked_by_its_method(run: Run) -> None:
    class Wrapped(socket.socket):
        gone = False

        def fileno(self) -> int:
            return -1 if self.gone else super().fileno()

    async def main() -> None:
        ours, theirs = socket_pair()
        wrapped = Wrapped(ours.family, ours.type, ours.proto, fileno=ours.detach())
        wrapped.setblocking(False)
        peer = Peer(theirs)
        transport, protocol = await connect(wrapped)
        transport.write(b"x")
        assert await peer.receive(1) == b"x"
        await peer.send(b"y")
        await support.wait_until(lambda: protocol.data == b"y")
        transport.close()
        await protocol.until_lost()
        peer.close()

    run(main())


async def _watch(near: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    readable, writable = loop.create_future(), loop.create_future()
    loop.add_writer(near, lambda: writable.done() or writable.set_result(None))
    loop.add_reader(near, lambda: readable.done() or readable.set_result(None))
    await asyncio.gather(readable, writable)
    loop.remove_writer(near)
    loop.remove_reader(near)


async def _receive(near: socket.socket) -> None:
    near.recv(100)
    assert await asyncio.get_running_loop().sock_recv(near, 100) == b"later"


@pytest.mark.parametrize("use", [_watch, _receive])
def test_number_of_a_socket_that_was_closed_while_it_was_watched(
    run: Run, loop_name: str, use: Callable[[socket.socket], Coroutine[Any, Any, None]]
) -> None:
    """Its watchers were never removed: they end, and do not stand in the way of the next user."""
    if loop_name == support.ORACLE:
        pytest.skip(
            "asyncio's selector takes the new descriptor for the old one, and never waits for it"
        )

    async def main() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket_pair(1 << 12)
        # Neither is called: there is nothing to read, and no room.
        with pytest.raises(BlockingIOError):
            while True:
                ours.send(bytes(1 << 16))
        called: list[str] = []
        number = ours.fileno()
        loop.add_reader(ours, called.append, "old reader")
        loop.add_writer(ours, called.append, "old writer")
        await asyncio.sleep(0.01)
        near, far = take_number(ours)
        assert near.fileno() == number
        far.send(b"data")
        later = loop.call_later(0.01, far.send, b"later")
        await support.within(use(near))
        later.cancel()
        # On epoll they are told once, and see that their socket is closed.
        assert len(called) <= 2
        loop.remove_reader(near)
        loop.remove_writer(near)
        for sock in (near, far, theirs):
            sock.close()

    run(main())


@pytest.mark.parametrize("end", ["reader", "writer"])
def test_number_of_a_pipe_that_is_closed_before_its_transport(run: Run, end: str) -> None:
    """As asyncio closes those of a child that fails to start: the transport ends a turn later."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        reader, writer = os.pipe()
        other, feed = os.pipe()
        with open(reader, "rb", 0) as reading, open(writer, "wb", 0) as writing:  # noqa: ASYNC230
            ours: Any = reading if end == "reader" else writing
            connect_pipe: Any = (
                loop.connect_read_pipe if end == "reader" else loop.connect_write_pipe
            )
            transport, _ = await connect_pipe(asyncio.Protocol, ours)
            await asyncio.sleep(0.01)
            number = ours.fileno()
            transport.close()
            ours.close()
            os.dup2(other, number)
            readable = asyncio.Event()
            loop.add_reader(number, readable.set)
            # The transport has ended by then.
            await asyncio.sleep(0.01)
            os.write(feed, b"data")
            await support.within(readable.wait())
            loop.remove_reader(number)
        for fd in (number, other, feed):
            os.close(fd)

    run(main())
