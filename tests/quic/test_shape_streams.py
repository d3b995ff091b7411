"""Aborted streams of `ringloop.quic.asyncio`: what the peer sees, and what is left locally."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ringloop.quic.asyncio import QuicConnectionProtocol
from ringloop.quic.errors import StreamResetError, StreamStoppedError
from tests.quic.test_shape_asyncio import both, echo
from tests.quic.test_shape_connection import server_side
from tests.support import wait_until, within

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ringloop.quic.connection import QuicConnection
    from tests.support.tls import Certificates

    Run = Callable[[Coroutine[Any, Any, None]], None]

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def keeping(made: list[QuicConnectionProtocol]) -> Any:
    def make(connection: QuicConnection, **keywords: Any) -> QuicConnectionProtocol:
        made.append(QuicConnectionProtocol(connection, **keywords))
        return made[-1]

    return make


def streams_of(protocol: Any) -> dict[int, Any]:
    streams: dict[int, Any] = protocol._QuicConnectionProtocol__streams
    return streams


def abort(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


def test_aborted_stream_stops_the_peer_and_is_freed(certificates: Certificates, run: Run) -> None:
    async def main() -> None:
        arrived: asyncio.Queue[Streams] = asyncio.Queue()
        made: list[QuicConnectionProtocol] = []
        async with both(
            certificates,
            create_protocol=keeping(made),
            stream_handler=lambda reader, writer: arrived.put_nowait((reader, writer)),
        ) as client:
            reader, writer = await client.create_stream()
            writer.write(b"begun")
            there, back = await within(arrived.get())
            assert await within(there.readexactly(5)) == b"begun"
            abort(back)
            assert await within(there.read()) == b""
            with pytest.raises(StreamResetError):
                await within(reader.read())
            await wait_until(writer.is_closing, "that the peer stops")
            stopped: Any = writer.transport
            assert isinstance(stopped._error, StreamStoppedError)
            assert stopped._error.code == 0
            await wait_until(lambda: not streams_of(made[0]), "that the server forgets it")
            await wait_until(lambda: not streams_of(client), "that the client forgets it")
            assert arrived.empty()

    run(main())


def test_aborted_stream_returns_its_credit(certificates: Certificates, run: Run) -> None:
    """A connection window of 256 KiB, and streams aborted with half of it unread."""

    async def main() -> None:
        window = 1 << 18
        aborted: list[int] = []

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            number = writer.get_extra_info("stream_id")
            if number >= 32:
                await echo(reader, writer)
                return
            # Nothing is read: the reader fills up, and its stream is blocked.
            await wait_until(lambda: reader._paused)  # type: ignore[attr-defined]
            abort(writer)
            aborted.append(number)

        configuration = server_side(certificates, max_data=window, max_stream_data=window)
        async with both(certificates, configuration=configuration, stream_handler=handle) as client:
            for _stream in range(8):
                _reader, writer = await client.create_stream()
                writer.write(bytes(window - 1000))
                await wait_until(writer.is_closing, "that the peer stops")
            assert aborted == list(range(0, 32, 4))
            reader, writer = await client.create_stream()
            writer.write(bytes(window))
            writer.write_eof()
            assert await within(reader.read()) == bytes(window)

    run(main())


def test_later_events_of_an_aborted_stream_do_not_reopen_it(
    certificates: Certificates, run: Run
) -> None:
    """Two events of a stream are taken together; the first makes the application abort it."""

    async def main() -> None:
        handled: list[int] = []

        def handle(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            handled.append(writer.get_extra_info("stream_id"))
            abort(writer)

        made: list[QuicConnectionProtocol] = []
        async with both(
            certificates, create_protocol=keeping(made), stream_handler=handle
        ) as client:
            for stream_id in (0, 2):
                client._quic.send_stream_data(stream_id, bytes(1 << 20), end_stream=True)
            await wait_until(lambda: len(handled) >= 2)
            for _turn in range(5):
                await within(client.ping())
            assert sorted(handled) == [0, 2]
            await wait_until(lambda: not streams_of(made[0]))

    run(main())


def test_unidirectional_and_ended_streams_can_be_aborted(
    certificates: Certificates, run: Run
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if writer.can_write_eof():
            await echo(reader, writer)

    async def main() -> None:
        async with both(certificates, stream_handler=answer) as client:
            _reader, one_way = await client.create_stream(is_unidirectional=True)
            one_way.write(b"begun")
            abort(one_way)
            abort(one_way)
            reader, writer = await client.create_stream()
            writer.write(b"all of it")
            writer.write_eof()
            assert await within(reader.read()) == b"all of it"
            abort(writer)
            reader, writer = await client.create_stream()
            abort(writer)
            assert await within(reader.read()) == b""
            await within(client.ping())
            await wait_until(lambda: not streams_of(client))
            reader, writer = await client.create_stream()
            client.close()
            abort(writer)
            await within(client.wait_closed())

    run(main())
