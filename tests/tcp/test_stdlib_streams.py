"""The standard library's streams on a TCP transport, and its flow control."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import SOCKET_BUFFER_BYTES, Peer, pattern, socket_pair

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]
    Client = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def converse(serve: Client, ask: Client, **limits: Any) -> None:
    """Run both ends of one connection to completion."""
    served: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except BaseException as error:
            served.set_exception(error)
        else:
            served.set_result(None)
        finally:
            writer.close()
            await writer.wait_closed()

    server = await asyncio.start_server(accepted, "127.0.0.1", 0, **limits)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), **limits)
        try:
            await support.within(ask(reader, writer), 30)
            await support.within(served, 30)
        finally:
            writer.close()
            await writer.wait_closed()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


@pytest.mark.parametrize("size", [1, 1000, 70_000, 5_000_000])
def test_echo_of_a_stream(run: Run, size: int) -> None:
    data = pattern(size)

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def send() -> None:
            for start in range(0, size, 50_000):
                writer.write(data[start : start + 50_000])
                await writer.drain()
            writer.write_eof()

        sending = asyncio.ensure_future(send())
        assert await reader.read() == data
        await sending

    run(converse(echo, ask))


def test_lines(run: Run) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for line in reader:
            writer.write(b"<" + line)
        writer.write_eof()

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number in range(500):
            writer.write(b"%d\n" % number)
            assert await reader.readline() == b"<%d\n" % number
        writer.write(b"a\nb\nrest")
        writer.write_eof()
        assert await reader.read() == b"<a\n<b\n<rest"
        assert reader.at_eof()

    run(converse(serve, ask))


def test_readexactly_and_readuntil(run: Run) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readuntil(b"--") == b"head--"
        assert await reader.readexactly(100_000) == pattern(100_000)
        with pytest.raises(asyncio.IncompleteReadError) as caught:
            await reader.readexactly(10)
        assert caught.value.partial == b"tail"

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"he")
        await writer.drain()
        writer.writelines([b"ad--", pattern(100_000), b"tail"])
        writer.write_eof()
        assert await reader.read() == b""

    run(converse(serve, ask))


def test_a_line_over_the_limit(run: Run) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with pytest.raises(ValueError, match="limit"):
            await reader.readline()
        with pytest.raises(asyncio.LimitOverrunError):
            await reader.readuntil(b"?")

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x" * 1000 + b"\n" + b"y" * 1000 + b"?")
        await reader.read()

    run(converse(serve, ask, limit=100))


def test_slow_reader_blocks_the_writer(run: Run) -> None:
    async def main() -> None:
        ours, theirs = socket_pair(SOCKET_BUFFER_BYTES)
        peer = Peer(theirs)
        reader, writer = await asyncio.open_connection(sock=ours, limit=10_000)
        data = pattern(3_000_000)
        sending = asyncio.ensure_future(peer.send(data))
        # The reader's protocol pauses the transport at twice its limit; the last received chunk may
        # exceed it.
        buffer = reader._buffer  # type: ignore[attr-defined]
        await support.wait_until(lambda: len(buffer) > 20_000, "a full reader")
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(buffer) <= 20_000 + 512 * 1024
        assert not writer.transport.is_reading()  # type: ignore[attr-defined]
        assert not sending.done()
        received = bytearray()
        while len(received) < len(data):
            received += await support.within(reader.read(7777))
        await sending
        assert received == data
        peer.close()
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()

    run(main())


def test_end_while_reading_is_paused(run: Run) -> None:
    async def main() -> None:
        ours, theirs = socket_pair()
        peer = Peer(theirs)
        reader, writer = await asyncio.open_connection(sock=ours, limit=1000)
        await peer.send(pattern(50_000))
        peer.close()
        await support.wait_until(
            lambda: not writer.transport.is_reading(),  # type: ignore[attr-defined]
            "the pause",
        )
        assert await support.within(reader.read()) == pattern(50_000)
        writer.close()
        await writer.wait_closed()

    run(main())


def test_reset_reaches_the_reader(run: Run) -> None:
    async def main() -> None:
        ours, theirs = socket_pair()
        peer = Peer(theirs)
        reader, writer = await asyncio.open_connection(sock=ours)
        reading = asyncio.ensure_future(reader.read(1))
        await asyncio.sleep(0)
        peer.reset()
        with pytest.raises(ConnectionResetError):
            await support.within(reading)
        writer.close()
        with pytest.raises(ConnectionResetError):
            await writer.wait_closed()

    run(main())


def test_many_streams(run: Run) -> None:
    async def one(address: Any, number: int) -> None:
        reader, writer = await asyncio.open_connection(*address)
        data = pattern(30_000, number)
        writer.write(data)
        assert await reader.readexactly(len(data)) == data
        writer.close()
        await writer.wait_closed()

    async def main() -> None:
        served = 0

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal served
            await echo(reader, writer)
            writer.close()
            await writer.wait_closed()
            served += 1

        async with await asyncio.start_server(accepted, "127.0.0.1", 0) as server:
            address = server.sockets[0].getsockname()
            await support.within(asyncio.gather(*(one(address, n) for n in range(100))), 30)
            await support.wait_until(lambda: served == 100, "the server's ends")

    run(main())
