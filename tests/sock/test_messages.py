"""`sock_recvmsg` and `sock_sendmsg`: asyncio does not have them, so `socket` is the oracle."""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import random
import socket
from typing import TYPE_CHECKING, Any

import pytest

from tests import support

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from pathlib import Path

    from ringloop import Loop

    Pair = tuple[socket.socket, socket.socket]

ANCILLARY = socket.CMSG_LEN(4 * array.array("i").itemsize)


@pytest.fixture(params=[f"ringloop-{driver}" for driver in support.DRIVERS])
def loop_name(request: pytest.FixtureRequest) -> str:
    return support.usable_loop(request.param)


@pytest.fixture(params=["stream", "datagram", "seqpacket"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    kinds = {
        "stream": socket.SOCK_STREAM,
        "datagram": socket.SOCK_DGRAM,
        "seqpacket": socket.SOCK_SEQPACKET,
    }
    left, right = socket.socketpair(socket.AF_UNIX, kinds[request.param])
    left.setblocking(False)
    right.setblocking(False)
    with left, right:
        yield left, right


def rights(*descriptors: int) -> list[tuple[int, int, Any]]:
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]


def passed(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    """The received descriptors, now owned by the caller."""
    found = array.array("i")
    for level, kind, data in ancillary:
        assert (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
        found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return list(found)


async def started(coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Run a coroutine as a task until it waits."""
    task = asyncio.ensure_future(coroutine)
    for _ in range(3):
        await asyncio.sleep(0)
    return task


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_result_equals_that_of_the_socket(loop: Loop, run: Any, pair: Pair) -> None:
    left, right = pair

    async def main() -> None:
        assert await loop.sock_sendmsg(left, [b"one ", bytearray(b"message")]) == 11
        right.setblocking(True)
        expected = right.recvmsg(100)
        right.setblocking(False)
        assert await loop.sock_sendmsg(left, (part for part in (b"one ", b"message"))) == 11
        assert await loop.sock_recvmsg(right, 100) == expected
        waiting = await started(loop.sock_recvmsg(right, 100))
        assert not waiting.done()
        assert await loop.sock_sendmsg(left, [b"one message"]) == 11
        assert await support.within(waiting) == expected

    run(main())


def test_descriptors_are_passed(loop: Loop, run: Any, pair: Pair) -> None:
    left, right = pair

    async def main() -> None:
        read, write = os.pipe()
        try:
            waiting = await started(loop.sock_recvmsg(right, 10, ANCILLARY))
            await loop.sock_sendmsg(left, [b"take"], rights(write))
        finally:
            os.close(write)
        data, ancillary, flags, _ = await support.within(waiting)
        (copy,) = passed(ancillary)
        assert (data, flags & socket.MSG_CTRUNC) == (b"take", 0)
        os.write(copy, b"through the copy")
        os.close(copy)
        assert os.read(read, 100) == b"through the copy"
        assert os.read(read, 100) == b""
        os.close(read)

    run(main())


def test_truncated_descriptors_are_closed(loop: Loop, run: Any, pair: Pair) -> None:
    left, right = pair

    async def main() -> None:
        read, write = os.pipe()
        await loop.sock_sendmsg(left, [b"x"], rights(write))
        os.close(write)
        data, ancillary, flags, _ = await loop.sock_recvmsg(right, 10)
        assert (data, ancillary, flags & socket.MSG_CTRUNC) == (b"x", [], socket.MSG_CTRUNC)
        # The last owner of the other end is gone.
        assert os.read(read, 1) == b""
        os.close(read)

    run(main())


def test_flags_reach_the_kernel(loop: Loop, run: Any, pair: Pair) -> None:
    left, right = pair

    async def main() -> None:
        await loop.sock_sendmsg(left, [b"peek"])
        data, _, _, _ = await loop.sock_recvmsg(right, 10, 0, socket.MSG_PEEK)
        assert data == b"peek"
        read, write = os.pipe()
        assert (await loop.sock_recvmsg(right, 10))[0] == b"peek"
        await loop.sock_sendmsg(left, [b"x"], rights(write), socket.MSG_NOSIGNAL)
        message = await loop.sock_recvmsg(right, 10, ANCILLARY, flags=socket.MSG_CMSG_CLOEXEC)
        (copy,) = passed(message[1])
        assert not os.get_inheritable(copy)
        for descriptor in (read, write, copy):
            os.close(descriptor)

    run(main())


def test_a_message_goes_to_an_address_and_waits_for_room(
    loop: Loop, run: Any, tmp_path: Path
) -> None:
    path = str(tmp_path / "bound")

    async def main() -> None:
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver,
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
        ):
            receiver.bind(path)
            receiver.setblocking(False)
            sender.setblocking(False)
            count = 0
            with contextlib.suppress(BlockingIOError):
                while True:
                    sender.sendto(b"filler", path)
                    count += 1
            buffers = iter([b"la", b"st"])
            waiting = await started(loop.sock_sendmsg(sender, buffers, address=path))
            assert not waiting.done()
            for _ in range(count):
                assert (await loop.sock_recvmsg(receiver, 10))[0] == b"filler"
            assert await support.within(waiting) == 4
            assert (await loop.sock_recvmsg(receiver, 10))[0] == b"last"

    run(main())


def test_a_cancelled_receive_takes_nothing_and_leaks_no_descriptor(
    loop: Loop, run: Any, pair: Pair
) -> None:
    left, right = pair
    random_ = random.Random(7)

    async def main() -> None:
        for number in range(200):
            receiving = await started(loop.sock_recvmsg(right, 10, ANCILLARY))
            read, write = os.pipe()
            await loop.sock_sendmsg(left, [b"%03d" % number], rights(write))
            os.close(write)
            for _ in range(random_.randrange(3)):
                await asyncio.sleep(0)
            # Cancelled before the socket was reported ready, after that, or too late.
            if receiving.done():
                message = receiving.result()
            else:
                await cancelled(receiving)
                message = await support.within(loop.sock_recvmsg(right, 10, ANCILLARY))
            assert message[0] == b"%03d" % number
            (copy,) = passed(message[1])
            os.close(copy)
            assert os.read(read, 1) == b""
            os.close(read)

    # The leak check of each test counts the descriptors.
    run(main())


def test_errors_are_those_of_the_socket(loop: Loop, run: Any, pair: Pair) -> None:
    left, right = pair

    async def main() -> None:
        for arguments, kind in [
            (([1],), TypeError),
            ((None,), TypeError),
            (([b"x"], [("no", 1, b"")]), TypeError),
            (([b"x"], [(1, 1, b"", 4)]), TypeError),
            (([b"x"], rights(10_000)), OSError),
        ]:
            with pytest.raises(kind):
                left.sendmsg(*arguments)  # type: ignore[arg-type]
            with pytest.raises(kind):
                await loop.sock_sendmsg(left, *arguments)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="negative"):
            await loop.sock_recvmsg(right, -1)
        with pytest.raises(ValueError, match="invalid ancillary"):
            await loop.sock_recvmsg(right, 1, -1)

    run(main())
    right.close()

    async def after() -> None:
        with pytest.raises(OSError, match="Bad file descriptor"):
            await loop.sock_recvmsg(right, 1)

    run(after())
