"""Datagrams of sessions, on every loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic, webtransport
from ringloop.webtransport import Session, SessionClosed
from tests.support import wait_until, within
from tests.webtransport.support import both, opened, served

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]


async def echo(session: Session) -> None:
    """Send each datagram back."""
    async for datagram in session.datagrams():
        session.send_datagram(datagram)


def test_datagrams_go_both_ways(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates, echo) as session:
            for data in (b"", b"one", bytearray(b"two"), memoryview(b"three")):
                session.send_datagram(data)
                assert await within(session.receive_datagram()) == bytes(data)
            longest = bytes(session.max_datagram_size)
            session.send_datagram(longest)
            assert await within(session.receive_datagram()) == longest

    run(main())


def test_too_long_datagram_is_refused(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates, echo) as session:
            with pytest.raises(quic.DatagramError, match="too long"):
                session.send_datagram(bytes(70_000))

    run(main())


def test_newest_unread_datagrams_are_kept(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        stopped = asyncio.Event()

        async def handler(session: Session) -> None:
            await stopped.wait()
            number = -1
            async for datagram in session.datagrams():
                number = int.from_bytes(datagram[:4])
                if number == last:
                    session.close(1, str(session.dropped_datagrams))

        async with served(certificates, handler) as server:
            session = await opened(certificates, server)
            async with session:
                last, count = 1999, 2000
                for number in range(count):
                    session.send_datagram(number.to_bytes(4) + bytes(1000))
                    if number % 20 == 0:
                        await within(session.connection.ping())
                await within(session.connection.ping())
                stopped.set()
                end = await within(session.wait_closed())
                assert int(end.reason) > 1000

    run(main())


def test_each_session_has_its_own(run: Run, certificates: Certificates) -> None:
    async def handler(session: Session) -> None:
        async for datagram in session.datagrams():
            session.send_datagram(session.path.encode() + datagram)

    async def main() -> None:
        limits = webtransport.SessionLimits(data=1 << 20)
        async with served(certificates, handler, limits=limits) as server:
            first = await opened(certificates, server, "/1", limits=limits)
            async with first:
                second = await opened(certificates, server, "/2", connection=first.connection)
                async with second:
                    for session, expected in ((second, b"/2x"), (first, b"/1x")):
                        session.send_datagram(b"x")
                        assert await within(session.receive_datagram()) == expected

    run(main())


def test_waiting_ends_with_the_session(run: Run, certificates: Certificates) -> None:
    async def handler(session: Session) -> None:
        await session.receive_datagram()
        session.close(4)

    async def main() -> None:
        async with both(certificates, handler) as session:
            waiting = asyncio.ensure_future(session.receive_datagram())
            session.send_datagram(b"x")
            with pytest.raises(SessionClosed):
                await within(waiting)
            with pytest.raises(SessionClosed):
                session.send_datagram(b"y")
            cancelled = asyncio.ensure_future(session.connection.ping())
            cancelled.cancel()
            await wait_until(cancelled.done)

    run(main())
