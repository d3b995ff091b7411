"""What sessions cost, and what peers cannot make them cost, on every loop."""

from __future__ import annotations

import asyncio
import gc
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import h3, quic, webtransport
from ringloop._native import h3 as _h3
from ringloop.webtransport import Session, SessionLimits
from tests.support import wait_until, within
from tests.support.tcp import pattern
from tests.webtransport.support import both, opened, served

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]

LIMITS = SessionLimits(sessions=3, data=20_000, streams=4, unidirectional_streams=4)


async def idle(session: Session) -> None:
    """Wait for the end."""
    await session.wait_closed()


async def echo(session: Session) -> None:
    """Send back what comes on each stream."""

    async def one(stream: quic.Stream) -> None:
        async for piece in stream.chunks(7000):
            await stream.send(piece)
        stream.close()
        await stream.acked()

    async with asyncio.TaskGroup() as group:
        async for stream in session:
            group.create_task(one(stream))


def test_several_sessions_on_a_connection(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with served(certificates, echo, limits=LIMITS) as server, AsyncExitStack() as stack:
            first = await stack.enter_async_context(
                await opened(certificates, server, "/0", limits=LIMITS)
            )
            sessions = [first]
            for number in (1, 2):
                session = await opened(
                    certificates, server, f"/{number}", connection=first.connection
                )
                sessions.append(await stack.enter_async_context(session))
            with pytest.raises(quic.ConnectError, match="its maximum of sessions"):
                await opened(certificates, server, connection=first.connection)

            async def ask(session: Session) -> None:
                stream = await session.open_stream()
                await stream.send(session.path.encode())
                stream.finish()
                assert await stream.read() == session.path.encode()

            await within(asyncio.gather(*map(ask, sessions * 5)))
            sessions[1].close()
            # The request for another one may overtake that.
            await within(first.connection.ping())
            another = await opened(certificates, server, "/3", connection=first.connection)
            await within(ask(another))
            another.close()

    run(main())


def test_sessions_on_a_connection_go_on_when_the_first_is_closed(
    run: Run, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringloop.webtransport._session._END_SECONDS", 0)

    async def main() -> None:
        async with served(certificates, echo, limits=LIMITS) as server:
            first = await opened(certificates, server, limits=LIMITS)
            second = await opened(certificates, server, connection=first.connection)
            first.close()
            await within(first.wait_closed())
            for _ in range(3):
                stream = await within(second.open_stream())
                await within(stream.send(b"on"))
                stream.finish()
                assert await within(stream.read()) == b"on"
            await first.__aexit__(None, None, None)
            assert first.connection.is_closed

    run(main())


# The server of an older dialect announces how many it takes; of the newest one it rejects.
@pytest.mark.parametrize(
    ("has_newest", "text"),
    [(True, "did not process the request"), (False, "its maximum of sessions")],
)
def test_session_beyond_the_limit_is_rejected(
    run: Run, certificates: Certificates, has_newest: bool, text: str
) -> None:
    async def main() -> None:
        server_limits = SessionLimits(sessions=1, data=1 << 20)
        client_limits = SessionLimits(sessions=5, data=1 << 20)
        async with served(certificates, idle, limits=server_limits) as server:
            first = await opened(
                certificates, server, limits=client_limits, reset_stream_at=has_newest
            )
            async with first:
                with pytest.raises(quic.ConnectError, match=text):
                    await opened(certificates, server, connection=first.connection)
                assert not first.is_closed

    run(main())


def test_flow_control_lets_long_streams_through(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates, echo, server={"limits": LIMITS}, limits=LIMITS) as session:
            body = pattern(300_000)

            async def ask() -> None:
                stream = await session.open_stream()
                sending = asyncio.ensure_future(_send_all(stream, body))
                assert await stream.read() == body
                await sending

            # More streams than are allowed at a time, and more bytes.
            await within(asyncio.gather(*(ask() for _ in range(10))))

    run(main())


async def _send_all(stream: quic.Stream, body: bytes) -> None:
    for at in range(0, len(body), 50_000):
        await stream.send(body[at : at + 50_000])
    stream.finish()


def test_flow_control_stops_who_sends_to_one_that_does_not_read(
    run: Run, certificates: Certificates
) -> None:
    go_on = asyncio.Event()

    async def handler(session: Session) -> None:
        await go_on.wait()
        stream = await session.accept_stream()
        assert len(await stream.read()) == 100_000
        session.close(6)

    async def main() -> None:
        async with both(certificates, handler, server={"limits": LIMITS}, limits=LIMITS) as session:
            stream = await session.open_stream()
            assert stream.write_nowait(bytes(100_000)) == 20_000
            assert stream.write_nowait(b"x") == 0
            stream.write(bytes(80_000))
            assert stream.queued_bytes == 80_000
            stream.finish()
            await within(session.connection.ping())
            assert stream.queued_bytes == 80_000
            go_on.set()
            assert (await within(session.wait_closed())).code == 6

    run(main())


def test_unaccepted_streams_block_the_peer(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        server = {"max_streams_bidi": 10, "max_streams_uni": 10}
        async with both(certificates, idle, server=server) as session:
            opened_streams = []
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    while True:
                        stream = await session.open_stream()
                        stream.write(bytes(1000))
                        opened_streams.append(stream)
            assert len(opened_streams) < 10
            # Waiting for room ends with the session.
            waiting = asyncio.ensure_future(session.open_stream())
            await asyncio.sleep(0)
            session.close()
            with pytest.raises(webtransport.SessionClosed):
                await within(waiting)

    run(main())


def test_sessions_leave_nothing_behind(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        limits = SessionLimits(sessions=4, data=1 << 20)
        async with served(certificates, echo, limits=limits) as server:
            first = await opened(certificates, server, limits=limits)
            async with first:
                connection = first.connection
                for number in range(300):
                    session = await opened(certificates, server, connection=connection)
                    async with session:
                        stream = await session.open_stream()
                        await stream.send(b"x")
                        stream.finish()
                        assert await within(stream.read()) == b"x"
                        session.send_datagram(b"%d" % number)
                    del session, stream
                await wait_until(lambda: _h3.request_count(connection) == 1)
                ends = [connection, *server.connections]
                await wait_until(lambda: all(_h3.request_count(end) == 1 for end in ends))
                gc.collect()

    run(main())


def test_half_open_sessions_are_limited(run: Run, certificates: Certificates) -> None:
    held: list[h3.Request] = []
    go_on = asyncio.Event()

    async def step(request: h3.Request) -> None:
        held.append(request)
        await go_on.wait()

    async def main() -> None:
        limits = SessionLimits(sessions=2, data=1 << 20)
        more = SessionLimits(sessions=9, data=1 << 20)
        async with served(certificates, idle, accepts=step, limits=limits) as server:
            connection = await webtransport._connect.begun(
                lambda connection: webtransport._connect._drive(more._native(), connection),
                "127.0.0.1",
                server.address[1],
                configuration=None,
                endpoint=None,
                local_address=None,
                early_data=False,
                server_name="localhost",
                keywords={"ca_file": certificates.authority, "alpn": ["h3"]},
            )
            async with connection:
                openings = [
                    asyncio.ensure_future(opened(certificates, server, connection=connection))
                    for _ in range(3)
                ]
                done, _ = await within(asyncio.wait(openings, return_when=asyncio.FIRST_COMPLETED))
                assert all(isinstance(one.exception(), quic.ConnectError) for one in done)
                await wait_until(lambda: len(held) == 2)
                go_on.set()
                held.clear()
                for opening in openings:
                    with pytest.raises(quic.QuicError):
                        await within(opening)

    run(main())
