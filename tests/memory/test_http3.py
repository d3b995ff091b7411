"""HTTP/3 and WebTransport: requests and sessions leave the state of both ends as it was.

CI plays some; RINGLOOP_STATE_REQUESTS and RINGLOOP_STATE_SESSIONS play more (`make http3-state`).
"""

from __future__ import annotations

import asyncio
import functools
import gc
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import h3, quic, webtransport
from ringloop._native import h3 as _h3
from ringloop.webtransport import SessionLimits
from tests.h3.support import echo, opened, served
from tests.memory.test_memory import until_flat
from tests.support import wait_until, within
from tests.webtransport import support as sessions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]

pytestmark = pytest.mark.one_thread("counts the objects and the memory of the process")

REQUESTS = int(os.environ.get("RINGLOOP_STATE_REQUESTS", "2000"))
SESSIONS = int(os.environ.get("RINGLOOP_STATE_SESSIONS", "1000"))
REQUESTS_AT_ONCE = 20
REQUESTS_A_CONNECTION = 50
SESSIONS_A_CONNECTION = 10
LIMITS = SessionLimits(sessions=4, data=1 << 20)
# What must not be left of requests, sessions and their streams.
NATIVE = (h3.Exchange, quic.Stream, webtransport.Session)


def living() -> Counter[str]:
    """Count the objects of requests, sessions and streams."""
    gc.collect()
    return Counter(type(it).__name__ for it in gc.get_objects() if isinstance(it, NATIVE))


def is_settled(end: quic.Connection) -> bool:
    """Whether one session is left at most."""
    return _h3.request_count(end) <= 1


async def settled(*ends: quic.Connection) -> list[list[int]]:
    """Wait until the requests of connections are over; the entries of their tables."""
    for end in ends:
        await end.ping()
        await wait_until(functools.partial(is_settled, end))
    return [_h3.kept(end) for end in ends]


async def ask(client: h3.Client, number: int) -> None:
    """One request in a few kinds: short, with a body and trailers, cancelled."""
    match number % 4:
        case 0:
            response = await client.request("GET", "/", {"x-number": str(number)})
        case 1:
            response = await client.request("POST", "/", body=bytes(3000), trailers={"a": "b"})
        case 2:
            response = await client.request("POST", "/", body=bytes(100))
            response.cancel()
            return
        case _:
            async with await client.request("POST", "/", body=bytes(100)):
                return
    await response.read()


async def ask_all(client: h3.Client, count: int) -> None:
    for start in range(0, count, REQUESTS_AT_ONCE):
        numbers = range(start, min(count, start + REQUESTS_AT_ONCE))
        await within(asyncio.gather(*(ask(client, number) for number in numbers)))


async def use(session: webtransport.Session, number: int) -> None:
    """Play a session with a stream of each kind; another stream is reset and stopped."""
    stream = await session.open_stream()
    await stream.send(b"x" * 1000)
    stream.finish()
    assert len(await stream.read()) == 1000
    one_way = await session.open_unidirectional_stream()
    one_way.write(b"x")
    given_up = await session.open_stream()
    given_up.write(bytes(1000))
    given_up.stop(1)
    given_up.reset(2)
    session.send_datagram(b"%d" % number)


async def echo_streams(session: webtransport.Session) -> None:
    async def one(stream: quic.Stream) -> None:
        try:
            async for piece in stream.chunks():
                if stream.is_bidirectional:
                    await stream.send(piece)
            stream.close()
        except quic.StreamError:
            return

    async with asyncio.TaskGroup() as group:
        async for stream in session:
            group.create_task(one(stream))


def flat(run: Run, count: int, body: Callable[[], Awaitable[None]]) -> None:
    """Run `body`, which does something `count` times, until it leaves nothing."""

    async def main() -> None:
        await body()

    run(main())
    before = living()
    for _ in until_flat(count):
        run(main())
        assert living() == before


def test_requests_on_one_connection_leave_its_state_as_it_was(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        async with (
            served(certificates, echo) as server,
            await opened(certificates, server) as client,
        ):
            await ask_all(client, 4 * REQUESTS_AT_ONCE)
            (there,) = server.connections
            before = await settled(client.connection, there)
            objects = living()
            for _ in until_flat(REQUESTS):
                await ask_all(client, REQUESTS)
                assert await settled(client.connection, there) == before
                assert living() == objects
                assert not server._tasks

    run(main())


def test_requests_on_many_connections_leave_nothing(run: Run, certificates: Certificates) -> None:
    async def body() -> None:
        async with served(certificates, echo) as server:
            for _ in range(0, REQUESTS, REQUESTS_A_CONNECTION):
                async with await opened(certificates, server) as client:
                    await ask_all(client, REQUESTS_A_CONNECTION)
                del client
            await wait_until(lambda: not server.connections)
            assert not server._tasks

    flat(run, REQUESTS, body)


def test_sessions_on_one_connection_leave_its_state_as_it_was(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        async with sessions.served(certificates, echo_streams, limits=LIMITS) as server:
            first = await sessions.opened(certificates, server, limits=LIMITS)
            async with first:
                ends = [first.connection, *server.connections]

                async def play(count: int) -> None:
                    for number in range(count):
                        session = await sessions.opened(
                            certificates, server, connection=first.connection
                        )
                        async with session:
                            await within(use(session, number))

                await play(20)
                before = await settled(*ends)
                objects = living()
                for _ in until_flat(SESSIONS):
                    await play(SESSIONS)
                    assert await settled(*ends) == before
                    await wait_until(lambda: len(server._tasks) == 1)
                    assert living() == objects

    run(main())


def test_sessions_on_many_connections_leave_nothing(run: Run, certificates: Certificates) -> None:
    async def body() -> None:
        async with sessions.served(certificates, echo_streams, limits=LIMITS) as server:
            for _ in range(0, SESSIONS, SESSIONS_A_CONNECTION):
                first = await sessions.opened(certificates, server, limits=LIMITS)
                async with first:
                    for number in range(SESSIONS_A_CONNECTION - 1):
                        session = await sessions.opened(
                            certificates, server, connection=first.connection
                        )
                        async with session:
                            await within(use(session, number))
                del first, session
            await wait_until(lambda: not server.connections and not server._tasks)

    flat(run, SESSIONS, body)
