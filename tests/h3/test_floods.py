"""Clients that send without end, vanish or break the rules, on every loop: bounded, clear, logged."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import h3, quic
from ringloop.quic.buffer import encode_uint_var
from tests.h3.raw import GET, PLACE, POST, asked, closed, frame, headers, raw_client
from tests.h3.support import echo, opened, resident_bytes, served
from tests.quic.support import relayed
from tests.support import wait_until, within

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]

KIB = 1 << 10
EMPTY_DATA = frame(0)
UNKNOWN = frame(0x21, b"grease")
EXCESSIVE_LOAD = 0x107


async def idle(request: h3.Request) -> None:
    """Neither read nor answer, until the client is gone."""
    await request.connection.wait_closed()


@pytest.mark.parametrize(
    ("flood", "ends_all"),
    [
        pytest.param(POST + UNKNOWN * 3000, True, id="unknown frames"),
        pytest.param(POST + EMPTY_DATA * 3000, True, id="empty DATA frames"),
        pytest.param(GET + headers(*[(b"a", b"b")] * 300), False, id="too many trailers"),
    ],
)
def test_flood_of_frames_ends(
    run: Run,
    certificates: Certificates,
    caplog: pytest.LogCaptureFixture,
    flood: bytes,
    ends_all: bool,
) -> None:
    async def main() -> None:
        async with (
            served(certificates, idle) as server,
            raw_client(certificates, server.address) as connection,
        ):
            stream = await asked(connection, flood)
            ended = closed(connection) if ends_all else within(stream.stopped())
            assert await ended == EXCESSIVE_LOAD

    run(main())
    lines = [record.getMessage() for record in caplog.records if "failed" in record.getMessage()]
    assert len(lines) == ends_all


def test_flood_of_resets_ends_the_connection_and_is_logged_once(
    run: Run, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with served(certificates, idle) as server:
            async with raw_client(certificates, server.address) as connection:
                with pytest.raises(quic.ConnectionClosed):
                    for _ in range(3000):
                        stream = await asked(connection, GET)
                        stream.reset(0x10C)
                        stream.stop(0x10C)
                assert await closed(connection) == EXCESSIVE_LOAD
            await wait_until(lambda: not server._tasks)

    run(main())
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("the connection with 127.0.0.1:")
    assert "0x107" in line or "263" in line


def test_unread_bodies_are_bounded_by_streams_and_windows(
    run: Run, certificates: Certificates
) -> None:
    streams_max = 8
    window = 256 * KIB
    may_read = asyncio.Event()
    read: list[int] = []

    async def handler(request: h3.Request) -> None:
        await may_read.wait()
        count = 0
        async for piece in request:
            count += len(piece)
        read.append(count)
        await request.respond(200)

    async def main() -> None:
        limits = {
            "max_streams_bidi": streams_max,
            "max_stream_data": window,
            "max_data": 2 * window,
            "max_data_grown": 2 * window,
        }
        async with (
            served(certificates, handler, **limits) as server,
            await opened(certificates, server, send_window=64 * KIB) as client,
        ):
            sent = [0] * streams_max

            async def send(number: int) -> None:
                exchange = await client.open([(b":method", b"POST"), *PLACE])
                for _ in range(64):
                    await exchange.send(bytes(16 * KIB))
                    sent[number] += 16 * KIB
                await exchange.send(b"", end=True)
                await exchange.read()

            sending = [asyncio.ensure_future(send(number)) for number in range(streams_max)]
            before = -1
            while before != sum(sent) or not sum(sent):
                before = sum(sent)
                await client.connection.ping()
                await client.connection.ping()
            # What HTTP/3 keeps of each body, the connection's window, what the client has queued.
            bound = streams_max * (256 + 16) * KIB + 2 * window + (64 + 16 * streams_max) * KIB
            assert sum(sent) < bound < streams_max * KIB * KIB
            may_read.set()
            await within(asyncio.gather(*sending))
            assert read == [KIB * KIB] * streams_max

    run(main())


def test_unread_datagrams_keep_no_memory_of_what_came_with_them(
    run: Run, certificates: Certificates
) -> None:
    requests = 6
    # More than are kept of a request, each counting 64 bytes more than its length.
    datagrams = 4200
    kept_bytes = requests * 256 * KIB
    # Of no request.
    dropped = encode_uint_var(50_000) + bytes(1100)

    async def main() -> None:
        async with (
            served(certificates, idle) as server,
            raw_client(certificates, server.address) as connection,
        ):
            streams = [await asked(connection, POST) for _ in range(requests)]

            async def send(number: int) -> None:
                for _ in range(datagrams):
                    await connection.send_datagram(encode_uint_var(number) + b"x")
                    await connection.send_datagram(dropped)
                await within(connection.ping())

            # What the sender and the engine need for this, they keep.
            await send(60_000)
            before = resident_bytes()
            for number in range(requests):
                await send(number)
            assert resident_bytes() - before < 4 * kept_bytes < requests * datagrams * 1100 / 4
            assert not connection.is_closed
            del streams

    run(main())


@pytest.mark.parametrize("size", [520, 1100])
def test_unread_bodies_keep_no_memory_of_what_came_with_them(
    run: Run, certificates: Certificates, size: int
) -> None:
    requests = 6
    # As many as wait for the application: each piece counts 64 bytes more than its length.
    pieces = 256 * KIB // (size + 64)
    kept_bytes = requests * 256 * KIB

    async def main() -> None:
        async with (
            served(certificates, idle) as server,
            raw_client(certificates, server.address) as connection,
        ):
            streams = [await asked(connection, POST) for _ in range(requests)]

            async def send(number: int) -> None:
                # Of no request, and not kept. Each fills a packet: a batch has 20, and the piece.
                length = connection.max_datagram_size
                assert length is not None
                dropped = encode_uint_var(50_000) + bytes(length - 4)
                for _ in range(pieces):
                    for _ in range(20):
                        await connection.send_datagram(dropped)
                    streams[number].write(frame(0, bytes(size)))
                    await within(connection.ping())

            # What the sender and the engine need for this, they keep.
            await send(0)
            before = resident_bytes()
            for number in range(1, requests):
                await send(number)
            grown = resident_bytes() - before
            assert grown < 4 * kept_bytes < requests * pieces * 20 * 1100 / 4
            assert not connection.is_closed

    run(main())


def test_client_that_vanishes_ends_its_requests(run: Run, certificates: Certificates) -> None:
    ended: list[BaseException] = []

    async def handler(request: h3.Request) -> None:
        request.start(200)
        try:
            while True:
                # One waits for the body, one for room.
                await (request.read() if request.path == "/read" else request.send(bytes(KIB)))
        except quic.QuicError as error:
            ended.append(error)
            raise

    async def main() -> None:
        async with (
            served(certificates, handler, idle_timeout=1.5) as server,
            relayed(server.address) as relay,
        ):
            opening = h3.open_client(
                *relay.address, ca_file=certificates.authority, server_name="localhost"
            )
            client = await within(opening)
            held = []
            for path in (b"/read", b"/send"):
                fields = [*PLACE[:2], (b":path", path)]
                held.append(await client.open([(b":method", b"POST"), *fields]))
            await wait_until(lambda: len(server._tasks) == 2)
            relay.faults.blackhole = True
            await wait_until(lambda: len(ended) == 2 and not server._tasks)
            assert all(isinstance(error, quic.IdleTimeout) for error in ended), ended
            await wait_until(lambda: not server.connections)
            client.close()
            await within(client.wait_closed())

    run(main())


def test_sections_that_wait_for_the_encoder_stream_are_bounded(
    run: Run, certificates: Certificates
) -> None:
    # They refer to an entry of the dynamic table that never comes (RFC 9204 §2.1.2).
    waiting = frame(1, b"\x02\x00\x80")

    async def main() -> None:
        async with (
            served(certificates, idle) as server,
            raw_client(certificates, server.address) as connection,
        ):
            streams = [await asked(connection, waiting, bytes(100)) for _ in range(16)]
            await within(connection.ping())
            assert not connection.is_closed
            streams.append(await asked(connection, waiting))
            assert await closed(connection) == 0x200

    run(main())


def test_echo_continues_during_a_flood(run: Run, certificates: Certificates) -> None:
    """A connection that is ended for a flood takes no other with it."""

    async def main() -> None:
        async with (
            served(certificates, echo) as server,
            await opened(certificates, server) as client,
            raw_client(certificates, server.address) as connection,
        ):
            stream = await asked(connection, POST + UNKNOWN * 3000)
            assert await closed(connection) == EXCESSIVE_LOAD
            del stream
            response = await within(client.request("POST", "/", body=b"body"))
            assert await within(response.read()) == b"body"

    run(main())
