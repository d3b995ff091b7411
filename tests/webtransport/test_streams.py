"""Streams and datagrams of sessions, both ways, on every loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import h3, quic, webtransport
from ringloop.webtransport import Session
from tests.support import within
from tests.support.tcp import pattern
from tests.webtransport.support import both

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]

# More than a stream's window, and than is read at a time.
LONG = 3 << 20


async def echo(session: Session) -> None:
    """Send back what comes: on the same stream, or on one of this end."""

    async def one(stream: quic.Stream) -> None:
        back = stream
        if not stream.is_bidirectional:
            back = await session.open_unidirectional_stream()
        async for piece in stream.chunks():
            await back.send(piece)
        back.close()
        await back.acked()

    async with asyncio.TaskGroup() as group:
        async for stream in session:
            group.create_task(one(stream))


def test_both_kinds_of_streams_go_both_ways(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates, echo) as session:
            for body in (b"", b"short", pattern(LONG)):
                stream = await within(session.open_stream())
                sending = asyncio.ensure_future(_send_all(stream, body))
                assert await within(stream.read()) == body
                await within(sending)
                one_way = await within(session.open_unidirectional_stream())
                sending = asyncio.ensure_future(_send_all(one_way, body))
                back = await within(session.accept_unidirectional_stream())
                assert not back.is_bidirectional
                assert await within(back.read()) == body
                await within(sending)

    run(main())


async def _send_all(stream: quic.Stream, body: bytes) -> None:
    await stream.send(body)
    stream.finish()


def test_server_opens_streams(run: Run, certificates: Certificates) -> None:
    async def handler(session: Session) -> None:
        stream = await session.open_stream()
        await stream.send(b"from the server")
        stream.finish()
        assert await stream.read() == b"answer"
        await session.wait_closed()

    async def main() -> None:
        async with both(certificates, handler) as session:
            stream = await within(session.accept_stream())
            assert stream.is_bidirectional
            assert await within(stream.read()) == b"from the server"
            await stream.send(b"answer")
            stream.finish()
            assert await within(stream.acked())

    run(main())


def test_many_streams_in_a_row(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates, echo) as session:

            async def one(number: int) -> None:
                stream = await session.open_stream()
                await stream.send(b"%d" % number)
                stream.finish()
                assert await stream.read() == b"%d" % number

            # More than the server allows at a time.
            for _ in range(3):
                await within(asyncio.gather(*map(one, range(200))))

    run(main())


def test_short_stream_that_has_ended_with_its_first_bytes(
    run: Run, certificates: Certificates
) -> None:
    async def handler(session: Session) -> None:
        stream = await session.accept_unidirectional_stream()
        # All of it was read with the header.
        assert stream.is_readable
        assert await stream.readline() == b"one\n"
        assert await stream.read() == b"two"
        assert stream.at_eof()
        session.close(9)

    async def main() -> None:
        async with both(certificates, handler) as session:
            stream = await session.open_unidirectional_stream()
            stream.write(b"one\ntwo")
            stream.finish()
            assert (await within(session.wait_closed())).code == 9

    run(main())


@pytest.mark.parametrize("code", [0, 1, 29, 30, 31, 0xFFFF_FFFF])
def test_codes_of_resets_and_stops_are_the_programs(
    run: Run, certificates: Certificates, code: int
) -> None:
    async def handler(session: Session) -> None:
        stream = await session.accept_stream()
        # A reset may overtake what was sent before.
        assert await stream.readexactly(1) == b"x"
        await stream.send(b"got it")
        with pytest.raises(quic.StreamResetError) as reset:
            await stream.read()
        assert reset.value.code == code
        assert await stream.stopped() == code
        with pytest.raises(quic.StreamStoppedError) as stopped:
            while True:
                await stream.send(b"y")
        assert stopped.value.code == code
        session.close(1)

    async def main() -> None:
        async with both(certificates, handler) as session:
            stream = await session.open_stream()
            await stream.send(b"x")
            assert await within(stream.readexactly(6)) == b"got it"
            stream.reset(code)
            assert await stream.stopped() == code
            stream.stop(code)
            assert (await within(session.wait_closed())).code == 1

    run(main())


@pytest.mark.parametrize("opens", ["client", "server"])
def test_stream_reset_at_once_reaches_its_session(
    run: Run, certificates: Certificates, opens: str
) -> None:
    count = 50

    async def reset_many(session: Session) -> None:
        for code in range(count):
            stream = await session.open_unidirectional_stream()
            stream.write(b"x" * 2000)
            stream.reset(code)
        assert (await session.wait_closed()).code == 3

    async def take_many(session: Session) -> None:
        codes = set()
        for _ in range(count):
            stream = await session.accept_unidirectional_stream()
            with pytest.raises(quic.StreamResetError) as reset:
                await stream.read()
            codes.add(reset.value.code)
        assert codes == set(range(count))
        session.close(3)

    async def main() -> None:
        handler, own = (take_many, reset_many) if opens == "client" else (reset_many, take_many)
        async with both(certificates, handler) as session:
            await within(own(session))

    run(main())


@pytest.mark.parametrize("without", [None, "client", "server"])
def test_newest_dialect_needs_reset_stream_at_of_both_ends(
    run: Run, certificates: Certificates, without: str | None
) -> None:
    tokens = []

    async def accepts(request: h3.Request) -> Session:
        tokens.append(request.protocol)
        return await webtransport.accept(request)

    async def main() -> None:
        server: dict[str, Any] = {"accepts": accepts}
        client: dict[str, Any] = {}
        if without is not None:
            (client if without == "client" else server)["reset_stream_at"] = False
        async with both(certificates, echo, server=server, **client) as session:
            stream = await within(session.open_stream())
            await stream.send(b"ping")
            stream.finish()
            assert await within(stream.read()) == b"ping"

    run(main())
    assert tokens == ["webtransport" if without else "webtransport-h3"]


@pytest.mark.parametrize("code", [-1, 1 << 32, 1 << 62])
def test_code_that_webtransport_cannot_carry_is_refused(
    run: Run, certificates: Certificates, code: int
) -> None:
    async def main() -> None:
        async with both(certificates, echo) as session:
            stream = await session.open_stream()
            for give_up in (stream.reset, stream.stop):
                with pytest.raises(ValueError, match="code"):
                    give_up(code)
            assert stream.is_writable
            assert stream.is_readable

    run(main())


def test_close_of_a_session_resets_its_streams(run: Run, certificates: Certificates) -> None:
    async def handler(session: Session) -> None:
        stream = await session.accept_stream()
        await stream.readexactly(1)
        session.close(5)
        with pytest.raises(quic.StreamClosedError):
            await stream.read()
        with pytest.raises(quic.StreamClosedError):
            stream.write(b"y")

    async def main() -> None:
        async with both(certificates, handler) as session:
            stream = await session.open_stream()
            await stream.send(b"x")
            reading = asyncio.ensure_future(stream.read())
            with pytest.raises(quic.StreamClosedError):
                await within(reading)
            assert (await within(session.wait_closed())).code == 5
            with pytest.raises(quic.StreamError):
                while True:
                    await within(stream.send(b"y"))

    run(main())


def test_streams_that_come_before_the_session_is_accepted_wait(
    run: Run, certificates: Certificates
) -> None:
    go_on = asyncio.Event()
    asked = asyncio.Event()

    async def step(request: h3.Request) -> Session:
        asked.set()
        await go_on.wait()
        return await webtransport.accept(request)

    async def main() -> None:
        async with both_early(certificates, echo, step) as (connection, url):
            authority, path = url
            native = webtransport._connect._webtransport
            while native.takes_session(connection) is None:
                await connection._waiter("progress")
            session_id = native.open_session(connection, authority, path, [], [])
            assert session_id is not None
            async with Session(connection, session_id) as session:
                stream = await within(session.open_stream())
                stream.write(b"early")
                stream.finish()
                session.send_datagram(b"early, too")
                await within(asked.wait())
                # A whole exchange on the connection, so that all of it has come.
                await within(connection.ping())
                go_on.set()
                assert await within(stream.read()) == b"early"

    run(main())


def both_early(certificates: Certificates, handler: Any, step: Any) -> Any:
    """Give a connection to a server of sessions, of which none is open."""
    from contextlib import asynccontextmanager

    from tests.webtransport.support import served

    @asynccontextmanager
    async def opened_connection() -> Any:
        async with served(certificates, handler, accepts=step) as server:
            authority = f"127.0.0.1:{server.address[1]}"
            connection = await quic._connect.begun(
                lambda connection: webtransport._connect._drive((16, None), connection),
                "127.0.0.1",
                server.address[1],
                configuration=None,
                server_name="localhost",
                endpoint=None,
                local_address=None,
                early_data=False,
                keywords={"ca_file": certificates.authority, "alpn": ["h3"]},
            )
            async with connection:
                yield connection, (authority, "/")

    return opened_connection()
