"""add_reader and add_writer: level-triggered, replaceable, with asyncio's errors."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import resource
import socket
import tempfile
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from tests import support

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Loop = asyncio.AbstractEventLoop


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    left.setblocking(False)
    right.setblocking(False)
    yield left, right
    left.close()
    right.close()


Pair = tuple[socket.socket, socket.socket]


def test_reader_is_called_until_the_data_is_read(
    loop: Loop, run: Callable[..., Any], pair: Pair
) -> None:
    left, right = pair
    calls = 0

    def readable() -> None:
        nonlocal calls
        calls += 1
        if calls >= 5:
            assert left.recv(100) == b"data"

    async def main() -> None:
        loop.add_reader(left, readable)
        right.send(b"data")
        await support.wait_until(lambda: calls == 5)
        await asyncio.sleep(0.01)
        assert calls == 5
        right.send(b"data")
        await support.wait_until(lambda: calls == 6)
        assert loop.remove_reader(left)
        assert not loop.remove_reader(left)
        right.send(b"more")
        await asyncio.sleep(0.01)
        assert calls == 6

    run(main())


def test_writer_and_reader_share_a_descriptor(
    loop: Loop, run: Callable[..., Any], pair: Pair
) -> None:
    left, right = pair
    got: list[str] = []

    def writable() -> None:
        got.append("w")
        loop.remove_writer(left.fileno())

    def readable() -> None:
        got.append("r")
        left.recv(10)
        loop.remove_reader(left.fileno())

    async def main() -> None:
        loop.add_reader(left.fileno(), readable)
        loop.add_writer(left.fileno(), writable)
        await support.wait_until(lambda: got == ["w"])
        right.send(b"x")
        await support.wait_until(lambda: got == ["w", "r"])
        loop.add_writer(left.fileno(), writable)
        await support.wait_until(lambda: got == ["w", "r", "w"])

    run(main())


def test_second_reader_replaces_the_first(loop: Loop, run: Callable[..., Any], pair: Pair) -> None:
    left, right = pair
    got: list[str] = []

    async def main() -> None:
        loop.add_reader(left, got.append, "first")
        loop.add_reader(left, got.append, "second")
        right.send(b"x")
        await support.wait_until(lambda: got)
        assert set(got) == {"second"}
        loop.remove_reader(left)

    run(main())


def test_callback_that_removes_itself_is_not_called_again(
    loop: Loop, run: Callable[..., Any], pair: Pair
) -> None:
    left, right = pair
    calls: list[int] = []

    def readable() -> None:
        calls.append(1)
        loop.remove_reader(left)

    async def main() -> None:
        loop.add_reader(left, readable)
        right.send(b"x")
        await asyncio.sleep(0.01)
        assert calls == [1]
        loop.add_reader(left, readable)
        await support.wait_until(lambda: calls == [1, 1])

    run(main())


def test_descriptor_number_can_be_used_again(loop: Loop, run: Callable[..., Any]) -> None:
    async def once() -> None:
        reader, writer = os.pipe()
        future = loop.create_future()
        loop.add_reader(reader, lambda: future.done() or future.set_result(None))
        os.write(writer, b"x")
        await support.within(future)
        loop.remove_reader(reader)
        os.close(reader)
        os.close(writer)

    async def main() -> None:
        for _ in range(50):
            await once()

    run(main())


def test_hang_up_is_readable(loop: Loop, run: Callable[..., Any], pair: Pair) -> None:
    left, right = pair

    async def main() -> None:
        future = loop.create_future()

        def readable() -> None:
            loop.remove_reader(left)
            future.set_result(left.recv(10))

        loop.add_reader(left, readable)
        right.close()
        assert await support.within(future) == b""

    run(main())


@pytest.fixture(params=["unix", "tcp"])
def connected(request: pytest.FixtureRequest, pair: Pair) -> Iterator[Pair]:
    if request.param == "unix":
        yield pair
        return
    with socket.create_server(("127.0.0.1", 0)) as listener:
        left = socket.create_connection(listener.getsockname())
        right, _ = listener.accept()
    with left, right:
        left.setblocking(False)
        yield left, right


@pytest.mark.parametrize("is_watched_first", [True, False])
def test_own_half_close_is_not_readable(
    loop: Loop, run: Callable[..., Any], connected: Pair, is_watched_first: bool
) -> None:
    """The kernel wakes the socket's waiters then, although there are no bytes to read."""
    left, right = connected
    read: list[bytes] = []

    async def main() -> None:
        if not is_watched_first:
            left.shutdown(socket.SHUT_WR)
        loop.add_reader(left, lambda: read.append(left.recv(10)))
        await asyncio.sleep(0.01)
        if is_watched_first:
            left.shutdown(socket.SHUT_WR)
        # Its acknowledgement is another wake-up.
        await asyncio.sleep(0.05)
        assert not read
        for _ in range(3):
            read.clear()
            right.send(b"data")
            await support.wait_until(lambda: read)
            assert read == [b"data"]
        loop.remove_reader(left)

    # An error of the callback fails the test by the log.
    run(main())


def test_bad_descriptors_are_refused(loop: Loop) -> None:
    # The highest possible number: another thread could reuse that of a file closed just before.
    closed = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 1
    with pytest.raises(OSError, match="Bad file descriptor"):
        loop.add_reader(closed, print)
    with pytest.raises(ValueError, match="Invalid file"):
        loop.add_reader(-1, print)
    with pytest.raises(ValueError, match="Invalid file object"):
        loop.add_writer(object(), print)  # type: ignore[arg-type]
    assert not loop.remove_reader(closed)


@pytest.mark.parametrize("path", [__file__, "/", "/dev/null", "/dev/zero"])
def test_descriptors_that_cannot_be_polled_are_refused(
    loop: Loop, run: Callable[..., Any], path: str
) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        for add in (loop.add_reader, loop.add_writer):
            with pytest.raises(PermissionError) as caught:
                add(fd, pytest.fail, "called")
            assert caught.value.errno == errno.EPERM
        assert not loop.remove_reader(fd)
        assert not loop.remove_writer(fd)
        run(asyncio.sleep(0.001))
    finally:
        os.close(fd)


@pytest.mark.one_thread("counts on the numbers of new descriptors")
def test_temporary_file_is_refused_and_its_number_stays_usable(
    loop: Loop, run: Callable[..., Any]
) -> None:
    with tempfile.TemporaryFile() as file:
        number = file.fileno()
        with pytest.raises(PermissionError):
            loop.add_writer(file, print)
    left, right = socket.socketpair()
    try:
        # The next descriptor reuses the file's number.
        assert left.fileno() == number
        future = loop.create_future()
        loop.add_reader(left, lambda: future.done() or future.set_result(None))
        right.send(b"x")
        run(support.within(future))
        loop.remove_reader(left)
    finally:
        left.close()
        right.close()


def test_terminal_and_eventfd_can_be_watched(loop: Loop, run: Callable[..., Any]) -> None:
    main, other = os.openpty()
    event = os.eventfd(0, os.EFD_NONBLOCK)
    got: list[str] = []

    def readable(fd: int, name: str) -> None:
        os.read(fd, 8)
        got.append(name)

    try:
        loop.add_reader(main, readable, main, "terminal")
        loop.add_reader(event, readable, event, "event")
        os.write(other, b"x")
        os.eventfd_write(event, 1)
        run(support.wait_until(lambda: sorted(got) == ["event", "terminal"]))
        assert loop.remove_reader(main)
        assert loop.remove_reader(event)
    finally:
        for fd in (main, other, event):
            os.close(fd)


@pytest.mark.parametrize("kind", ["reader", "writer"])
def test_watcher_of_a_closed_socket_is_found_by_the_object(
    loop: asyncio.AbstractEventLoop, kind: str
) -> None:
    a, b = socket.socketpair()
    getattr(loop, f"add_{kind}")(a, list)
    a.close()
    assert getattr(loop, f"remove_{kind}")(a) is True
    with pytest.raises(ValueError, match="Invalid file descriptor: -1"):
        getattr(loop, f"remove_{kind}")(a)
    b.close()


def test_closed_socket_is_known_until_its_last_direction_is_removed(
    loop_name: str, loop: asyncio.AbstractEventLoop
) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio raises EBADF: it asks epoll for the other direction of what is closed")
    a, b = socket.socketpair()
    loop.add_reader(a, list)
    loop.add_writer(a, list)
    a.close()
    assert loop.remove_writer(a) is True
    assert loop.remove_writer(a) is False
    assert loop.remove_reader(a) is True
    b.close()


def test_closed_socket_that_was_watched_by_number_is_unknown(
    loop: asyncio.AbstractEventLoop,
) -> None:
    a, b = socket.socketpair()
    fd = a.fileno()
    loop.add_reader(fd, list)
    a.close()
    with pytest.raises(ValueError, match="Invalid file descriptor: -1"):
        loop.remove_reader(a)
    assert loop.remove_reader(fd) is True
    b.close()


def test_object_of_a_watcher_is_released_with_it(loop: asyncio.AbstractEventLoop) -> None:
    a, b = socket.socketpair()
    loop.add_reader(a, list)
    gone = weakref.ref(a)
    loop.remove_reader(a)
    a.close()
    del a
    gc.collect()
    assert gone() is None
    b.close()
