"""`loop.sendfile` and `loop.sock_sendfile`: sendfile(2), the fallback, and the state afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import socket
import tempfile
from typing import IO, TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import Recorder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

Loop = asyncio.AbstractEventLoop
CONTENT = os.urandom(3 << 20)


@pytest.fixture
def file() -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile() as opened:
        opened.write(CONTENT)
        opened.seek(0)
        yield opened


@contextlib.asynccontextmanager
async def connection(loop: Loop) -> AsyncIterator[tuple[Any, Recorder, socket.socket]]:
    """A transport, its protocol, and the plain socket at the other end."""
    left, right = socket.socketpair()
    right.setblocking(False)
    protocol = Recorder()
    transport, _ = await loop.connect_accepted_socket(lambda: protocol, left)
    with right:
        yield transport, protocol, right
        transport.abort()
        await protocol.until_lost()


async def drain(loop: Loop, sock: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        data += await support.within(loop.sock_recv(sock, 1 << 20))
    return bytes(data)


@pytest.mark.parametrize(
    ("offset", "count"),
    [(0, None), (1000, None), (0, 100_000), (70_000, 2_000_000), (0, 4 << 20), (4 << 20, None)],
)
def test_a_socket_gets_the_part_asked_for(
    loop: Loop, run: Any, file: IO[bytes], offset: int, count: int | None
) -> None:
    wanted = CONTENT[offset:][:count]

    async def main() -> None:
        left, right = socket.socketpair()
        with left, right:
            left.setblocking(False)
            right.setblocking(False)
            sending = asyncio.ensure_future(loop.sock_sendfile(left, file, offset, count))
            assert await drain(loop, right, len(wanted)) == wanted
            assert await support.within(sending) == len(wanted)
            if wanted:  # else CPython's versions differ
                assert file.tell() == offset + len(wanted)

    run(main())


@pytest.mark.parametrize(
    ("offset", "count"), [(0, None), (1000, None), (0, 100_000), (70_000, 2_000_000)]
)
def test_a_transport_sends_the_part_asked_for(
    loop: Loop, run: Any, file: IO[bytes], offset: int, count: int | None
) -> None:
    wanted = CONTENT[offset:][:count]

    async def main() -> None:
        async with connection(loop) as (transport, _, peer):
            sending = asyncio.ensure_future(loop.sendfile(transport, file, offset, count))
            assert await drain(loop, peer, len(wanted)) == wanted
            assert await support.within(sending) == len(wanted)
            assert file.tell() == offset + len(wanted)

    run(main())


def test_earlier_writes_precede_the_file(loop: Loop, run: Any, file: IO[bytes]) -> None:
    before = os.urandom(2 << 20)

    async def main() -> None:
        async with connection(loop) as (transport, _, peer):
            transport.write(before)
            sending = asyncio.ensure_future(loop.sendfile(transport, file))
            expected = before + CONTENT
            assert await drain(loop, peer, len(expected)) == expected
            assert await support.within(sending) == len(CONTENT)
            transport.write(b"after")
            assert await drain(loop, peer, 5) == b"after"

    run(main())


def test_small_write_of_the_same_iteration_precedes_the_file(
    loop: Loop, run: Any, file: IO[bytes]
) -> None:
    async def main() -> None:
        async with connection(loop) as (transport, _, peer):
            transport.write(b"header")
            sending = asyncio.ensure_future(loop.sendfile(transport, file, 0, 1000))
            assert await drain(loop, peer, 1006) == b"header" + CONTENT[:1000]
            assert await support.within(sending) == 1000

    run(main())


@pytest.mark.parametrize(
    "ask",
    [
        lambda transport: transport.get_write_buffer_size(),
        lambda transport: transport.set_write_buffer_limits(),
    ],
    ids=["size", "limits"],
)
def test_asking_for_the_buffer_size_does_not_block_a_file(
    loop: Loop, run: Any, file: IO[bytes], ask: Callable[[Any], None]
) -> None:
    async def send(transport: Any) -> int:
        transport.write(b"header")
        return await loop.sendfile(transport, file, 0, 1000)

    async def main() -> None:
        async with connection(loop) as (transport, _, peer):
            sending = loop.create_task(send(transport))
            # In the iteration that started the file, after it.
            loop.call_soon(ask, transport)
            assert await support.within(sending) == 1000
            assert await drain(loop, peer, 1006) == b"header" + CONTENT[:1000]

    run(main())


def test_writes_are_refused_and_reading_is_paused_during_sendfile(
    loop: Loop, run: Any, file: IO[bytes]
) -> None:
    async def main() -> None:
        async with connection(loop) as (transport, protocol, peer):
            sending = asyncio.ensure_future(loop.sendfile(transport, file))
            await support.wait_until(lambda: not transport.is_reading(), "the pause")
            with pytest.raises(RuntimeError, match="unable to write; sendfile is in progress"):
                transport.write(b"x")
            with pytest.raises(RuntimeError, match="sendfile is in progress"):
                transport.writelines([b"x"])
            peer.send(b"meanwhile")
            await drain(loop, peer, len(CONTENT))
            await support.within(sending)
            assert transport.is_reading()
            await support.wait_until(lambda: protocol.data == b"meanwhile", "what was held")

    run(main())


def test_a_paused_transport_stays_paused(loop: Loop, run: Any, file: IO[bytes]) -> None:
    async def main() -> None:
        async with connection(loop) as (transport, _, peer):
            transport.pause_reading()
            sending = asyncio.ensure_future(loop.sendfile(transport, file, 0, 10))
            assert await drain(loop, peer, 10) == CONTENT[:10]
            await support.within(sending)
            assert not transport.is_reading()

    run(main())


@pytest.mark.parametrize("way", ["sendfile", "sock_sendfile"])
def test_other_objects_use_the_fallback_or_fail(loop: Loop, run: Any, way: str) -> None:
    async def main() -> None:
        async with connection(loop) as (transport, _, peer):
            left, right = socket.socketpair()
            with left, right:
                left.setblocking(False)
                right.setblocking(False)
                target = transport if way == "sendfile" else left
                reader = peer if way == "sendfile" else right
                send: Any = getattr(loop, way)
                with pytest.raises(asyncio.SendfileNotAvailableError):
                    await send(target, io.BytesIO(CONTENT), fallback=False)
                sending = asyncio.ensure_future(send(target, io.BytesIO(CONTENT), 5))
                assert await drain(loop, reader, len(CONTENT) - 5) == CONTENT[5:]
                assert await support.within(sending) == len(CONTENT) - 5

    run(main())


def test_protocol_is_restored_after_the_fallback(loop: Loop, run: Any) -> None:
    async def main() -> None:
        async with connection(loop) as (transport, protocol, peer):
            sending = asyncio.ensure_future(loop.sendfile(transport, io.BytesIO(CONTENT)))
            assert await drain(loop, peer, len(CONTENT)) == CONTENT
            await support.within(sending)
            assert transport.get_protocol() is protocol
            peer.send(b"again")
            await support.wait_until(lambda: protocol.data == b"again", "the bytes")

    run(main())


@pytest.mark.parametrize("source", ["file", "fallback"])
def test_peer_that_closes_during_sendfile_is_an_error(
    loop: Loop, run: Any, file: IO[bytes], source: str
) -> None:
    async def main() -> None:
        async with connection(loop) as (transport, _, peer):
            content: Any = file if source == "file" else io.BytesIO(CONTENT)
            sending = asyncio.ensure_future(loop.sendfile(transport, content))
            await drain(loop, peer, 1000)
            peer.close()
            with pytest.raises(ConnectionError):
                await support.within(sending)

    run(main())


@pytest.mark.parametrize("end", ["close", "abort"])
@pytest.mark.parametrize("source", ["file", "fallback"])
def test_transport_that_is_closed_ends_its_sendfile(
    loop_name: str, loop: Loop, run: Any, file: IO[bytes], source: str, end: str
) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio's call waits for ever, or fails with an error of its own")

    async def main() -> None:
        async with connection(loop) as (transport, protocol, peer):
            content: Any = file if source == "file" else io.BytesIO(CONTENT)
            sending = asyncio.ensure_future(loop.sendfile(transport, content))
            await drain(loop, peer, 1000)
            getattr(transport, end)()
            with pytest.raises(ConnectionError):
                await support.within(sending)
            await protocol.until_lost()

    run(main())


def test_cancelled_sendfile_releases_the_socket(loop: Loop, run: Any, file: IO[bytes]) -> None:
    async def main() -> None:
        left, right = socket.socketpair()
        with left, right:
            left.setblocking(False)
            right.setblocking(False)
            sending = asyncio.ensure_future(loop.sock_sendfile(left, file))
            await drain(loop, right, 1000)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            assert not loop.remove_writer(left)
            with contextlib.suppress(BlockingIOError):
                while right.recv(1 << 20):
                    pass
            await loop.sock_sendall(left, b"next")
            assert (await drain(loop, right, 4)) == b"next"

    run(main())


def test_a_closing_transport_is_refused(loop: Loop, run: Any, file: IO[bytes]) -> None:
    async def main() -> None:
        async with connection(loop) as (transport, _, _):
            transport.close()
            with pytest.raises(RuntimeError, match="Transport is closing"):
                await loop.sendfile(transport, file)

    run(main())


@pytest.mark.parametrize(
    ("offset", "count", "error"),
    [(-1, None, ValueError), ("0", None, TypeError), (0, -1, ValueError), (0, "1", TypeError)],
)
def test_wrong_arguments_are_refused(
    loop: Loop, run: Any, file: IO[bytes], offset: Any, count: Any, error: type[Exception]
) -> None:
    async def main() -> None:
        left, right = socket.socketpair()
        with left, right:
            left.setblocking(False)
            with pytest.raises(error):
                await loop.sock_sendfile(left, file, offset, count)

    run(main())
