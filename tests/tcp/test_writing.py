"""Writing on a TCP transport: data arrives complete and in order; `write_eof`."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import sys
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import (
    MORE_THAN_THE_KERNEL_TAKES,
    SOCKET_BUFFER_BYTES,
    Recorder,
    closed,
    connected,
    pattern,
    socket_pair,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]


# --- writing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_write_takes_every_buffer(run: Run, kind: Callable[[bytes], Any]) -> None:
    async def main() -> None:
        async with connected(Recorder()) as (transport, peer):
            transport.write(kind(b"hello"))
            assert await peer.receive(5) == b"hello"

    run(main())


@pytest.mark.parametrize("value", ["text", 7, None, ["list"]])
def test_write_refuses_other_types(run: Run, value: object) -> None:
    async def main() -> None:
        async with connected(Recorder()) as (transport, peer):
            with pytest.raises(TypeError):
                transport.write(value)
            transport.write(b"still works")
            assert await peer.receive(11) == b"still works"

    run(main())


def test_arguments_by_name(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected(protocol) as (transport, peer):
            transport.write(data=b"a")
            transport.writelines(list_of_data=[b"b", b"c"])
            transport.set_protocol(protocol=protocol)
            assert await peer.receive(3) == b"abc"
            given: Any = transport
            for method, arguments, names in (
                (given.write, (), {}),
                (given.write, (b"x",), {"data": b"y"}),
                (given.write, (b"x", b"y"), {}),
                (given.write, (), {"dta": b"x"}),
                (given.writelines, (), {}),
                (given.set_protocol, (), {}),
                (given.close, (1,), {}),
                (given.pause_reading, (1,), {}),
                (given.abort, (), {"now": True}),
            ):
                with pytest.raises(TypeError):
                    method(*arguments, **names)
            assert not transport.is_closing()

    run(main())


def test_writes_keep_their_order(run: Run) -> None:
    async def main() -> None:
        sizes = [1, 3, 70_000, 5, 16 * 1024, 1, 40_000, 2, 9]
        pieces = [pattern(size, seed) for seed, size in enumerate(sizes)]
        async with connected(Recorder(), SOCKET_BUFFER_BYTES) as (transport, peer):
            for piece in pieces:
                transport.write(piece)
            assert await peer.receive(sum(sizes)) == b"".join(pieces)

    run(main())


def test_many_small_writes_keep_their_order(run: Run) -> None:
    async def main() -> None:
        expected = b"".join(b"%06d" % number for number in range(20_000))
        async with connected(Recorder(), SOCKET_BUFFER_BYTES) as (transport, peer):
            for number in range(20_000):
                transport.write(b"%06d" % number)
            assert await peer.receive(len(expected)) == expected

    run(main())


def test_large_write_arrives_whole(run: Run) -> None:
    async def main() -> None:
        data = pattern(MORE_THAN_THE_KERNEL_TAKES)
        async with connected(Recorder(), SOCKET_BUFFER_BYTES) as (transport, peer):
            transport.write(data)
            assert await peer.receive(len(data)) == data

    run(main())


def skip_where_asyncio_keeps_a_view(loop_name: str, size: int) -> None:
    if (
        loop_name == support.ORACLE
        and sys.version_info >= (3, 12)
        and size == MORE_THAN_THE_KERNEL_TAKES
    ):
        pytest.skip("asyncio keeps a view of what it could not send at once, since 3.12")


@pytest.mark.parametrize("size", [5, 20_000, MORE_THAN_THE_KERNEL_TAKES])
def test_bytearray_may_change_after_write(run: Run, loop_name: str, size: int) -> None:
    skip_where_asyncio_keeps_a_view(loop_name, size)

    async def main() -> None:
        data = pattern(size)
        mutable = bytearray(data)
        async with connected(Recorder(), SOCKET_BUFFER_BYTES) as (transport, peer):
            transport.write(mutable)
            mutable[:] = b"\0" * size
            mutable.clear()  # BufferError if the transport still exported it
            assert await peer.receive(size) == data

    run(main())


@pytest.mark.parametrize("size", [5, 20_000, MORE_THAN_THE_KERNEL_TAKES])
def test_memory_under_a_view_may_change_after_write(run: Run, loop_name: str, size: int) -> None:
    skip_where_asyncio_keeps_a_view(loop_name, size)

    async def main() -> None:
        data = pattern(size)
        owner = bytearray(data)
        view = memoryview(owner)
        async with connected(Recorder(), SOCKET_BUFFER_BYTES) as (transport, peer):
            transport.write(view[1:-1])
            owner[:] = b"\0" * size
            view.release()
            assert await peer.receive(size - 2) == data[1:-1]

    run(main())


def test_write_of_nothing_is_nothing(run: Run) -> None:
    async def main() -> None:
        async with connected(Recorder()) as (transport, peer):
            for nothing in (b"", bytearray(), memoryview(b"")):
                transport.write(nothing)
            assert transport.get_write_buffer_size() == 0
            transport.write(b"x")
            assert await peer.receive(1) == b"x"

    run(main())


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [b""],
        [b"a", bytearray(b"b"), memoryview(b"c")],
        [b"", b"a", b"", b"b"],
        [b"%d" % number for number in range(5000)],
        [pattern(300_000), b"x", pattern(1_000_000)],
    ],
    ids=["none", "empty", "kinds", "holes", "many", "large"],
)
def test_writelines_sends_all_in_order(run: Run, pieces: list[Any]) -> None:
    async def main() -> None:
        async with connected(Recorder(), SOCKET_BUFFER_BYTES) as (transport, peer):
            transport.write(b"<")
            transport.writelines(pieces)
            transport.write(b">")
            expected = b"<" + b"".join(pieces) + b">"
            assert await peer.receive(len(expected)) == expected

    run(main())


def test_writelines_takes_an_iterator(run: Run) -> None:
    async def main() -> None:
        async with connected(Recorder()) as (transport, peer):
            transport.writelines(b"%d" % number for number in range(4))
            assert await peer.receive(4) == b"0123"

    run(main())


def test_write_inside_data_received_is_sent(run: Run) -> None:
    class Echo(Recorder):
        def data_received(self, data: bytes) -> None:
            self.transport.write(data)

    async def main() -> None:
        async with connected(Echo(), SOCKET_BUFFER_BYTES) as (_, peer):
            for size in (1, 100, 50_000):
                data = pattern(size)
                await peer.send(data)
                assert await peer.receive(size) == data

    run(main())


def test_write_is_sent_before_the_loop_returns(loop: asyncio.AbstractEventLoop) -> None:
    ours, theirs = socket_pair()

    async def main() -> Any:
        transport, _ = await loop.create_connection(Recorder, sock=ours)
        transport.write(b"sent")
        return transport

    transport = loop.run_until_complete(main())
    with theirs:
        theirs.settimeout(support.PATIENCE_SECONDS)
        assert theirs.recv(10) == b"sent"
    transport.abort()
    loop.run_until_complete(closed(transport))


async def transport_of(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> Any:
    transport, _ = await loop.create_connection(Recorder, sock=sock)
    return transport


def test_write_while_the_loop_does_not_run_is_sent_at_once(
    loop: asyncio.AbstractEventLoop,
) -> None:
    ours, theirs = socket_pair()

    transport = loop.run_until_complete(transport_of(loop, ours))
    with theirs:
        theirs.settimeout(support.PATIENCE_SECONDS)
        for data in (b"1", b"2", b"3"):
            transport.write(data)
            assert theirs.recv(10) == data
        transport.writelines([b"4", b"5"])
        assert theirs.recv(2, socket.MSG_WAITALL) == b"45"
        assert transport.get_write_buffer_size() == 0
    transport.abort()
    loop.run_until_complete(closed(transport))


def test_write_after_the_last_iteration_is_sent_at_once(
    loop: asyncio.AbstractEventLoop,
) -> None:
    ours, theirs = socket_pair()

    transport = loop.run_until_complete(transport_of(loop, ours))
    with theirs:
        theirs.settimeout(support.PATIENCE_SECONDS)
        loop.call_soon(transport.write, b"in the last pass")
        loop.call_soon(loop.stop)
        loop.run_forever()
        transport.write(b", behind it")
        assert theirs.recv(27, socket.MSG_WAITALL) == b"in the last pass, behind it"
        loop.call_soon(transport.write, b", and later")
        loop.call_soon(loop.stop)
        loop.run_forever()
        assert theirs.recv(11, socket.MSG_WAITALL) == b", and later"
    transport.abort()
    loop.run_until_complete(closed(transport))


def test_write_before_the_loop_is_closed_arrives(
    loop: asyncio.AbstractEventLoop,
) -> None:
    ours, theirs = socket_pair()

    transport = loop.run_until_complete(transport_of(loop, ours))
    with theirs, ours:
        theirs.settimeout(support.PATIENCE_SECONDS)
        transport.write(b"QUIT")
        loop.close()
        assert theirs.recv(10) == b"QUIT"
    with contextlib.suppress(RuntimeError):
        transport.abort()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del transport
        gc.collect()


def test_large_write_to_a_stopped_loop_is_finished_by_the_next_run(
    loop: asyncio.AbstractEventLoop,
) -> None:
    data = pattern(MORE_THAN_THE_KERNEL_TAKES)
    protocol = Recorder()
    ours, theirs = socket_pair(SOCKET_BUFFER_BYTES)

    async def main() -> Any:
        transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
        return transport

    async def rest(count: int) -> bytes:
        theirs.setblocking(False)
        got = bytearray()
        while len(got) < count:
            got += await support.within(loop.sock_recv(theirs, 1 << 16))
        return bytes(got)

    transport = loop.run_until_complete(main())
    with theirs:
        theirs.settimeout(support.PATIENCE_SECONDS)
        transport.write(b"head")
        assert theirs.recv(4) == b"head"
        transport.write(data)
        assert theirs.recv(1) == data[:1]
        transport.write(b"tail")
        assert "pause_writing" in protocol.events
        expected = data[1:] + b"tail"
        assert loop.run_until_complete(rest(len(expected))) == expected
    transport.abort()
    loop.run_until_complete(closed(transport))


# --- end of writing -------------------------------------------------------------------------------


def test_write_eof_sends_fin_after_the_data(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        data = pattern(MORE_THAN_THE_KERNEL_TAKES)
        async with connected(protocol, SOCKET_BUFFER_BYTES) as (transport, peer):
            assert transport.can_write_eof() is True
            transport.write(data)
            transport.write_eof()
            transport.write_eof()
            assert await peer.receive_all() == data
            await peer.send(b"answer")
            await support.wait_until(lambda: protocol.data, "the answer")
            assert protocol.data == b"answer"
            assert not transport.is_closing()

    run(main())


def test_write_eof_alone_sends_fin(run: Run) -> None:
    async def main() -> None:
        async with connected(Recorder()) as (transport, peer):
            transport.write_eof()
            assert await peer.receive_all() == b""

    run(main())


def test_write_after_write_eof_raises(run: Run) -> None:
    async def main() -> None:
        async with connected(Recorder()) as (transport, _):
            transport.write_eof()
            with pytest.raises(RuntimeError, match=r"write\(\) after write_eof"):
                transport.write(b"x")
            if sys.version_info >= (3, 12):
                with pytest.raises(RuntimeError, match=r"after write_eof"):
                    transport.writelines([b"x"])

    run(main())


def test_write_eof_then_close_flushes(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        data = pattern(MORE_THAN_THE_KERNEL_TAKES)
        async with connected(protocol, SOCKET_BUFFER_BYTES) as (transport, peer):
            transport.write(data)
            transport.write_eof()
            transport.close()
            assert await peer.receive_all() == data
            await protocol.until_lost()
            assert protocol.reason is None

    run(main())


def test_write_eof_after_close_is_silent(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected(protocol) as (transport, _):
            transport.close()
            transport.write_eof()
            await protocol.until_lost()
            transport.write_eof()

    run(main())


def test_small_write_that_the_kernel_accepts_is_not_counted(run: Run) -> None:
    async def main() -> None:
        async with connected(Recorder()) as (transport, peer):
            for _ in range(3):
                transport.write(b"some")
                assert transport.get_write_buffer_size() == 0
            assert await peer.receive(12) == b"some" * 3
            transport.write(b"turn")
            await asyncio.sleep(0)
            assert transport.get_write_buffer_size() == 0
            assert await peer.receive(4) == b"turn"
            await asyncio.sleep(0.001)
            transport.write(b"more")
            assert transport.get_write_buffer_size() == 0
            transport.write_eof()
            assert await peer.receive_all() == b"more"

    run(main())
