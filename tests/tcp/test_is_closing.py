"""`is_closing()` reports an error found by a write, so that a callback that writes until then ends."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import SOCKET_BUFFER_BYTES, Peer, Recorder, closed, serving, socket_pair
from tests.support.tls import accepted_tls, plain_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from tests.support.tls import Certificates

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

# A callback that has written this often without seeing the end will never see it.
WRITES_MAX = 50_000


@contextlib.asynccontextmanager
async def brought(pair: Any, protocol: Any) -> AsyncIterator[tuple[Any, Peer]]:
    """A connection on a socket that the test created."""
    ours, theirs = pair
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
    peer = Peer(theirs)
    try:
        yield transport, peer
    finally:
        peer.close()
        transport.abort()
        await closed(transport)


@contextlib.asynccontextmanager
async def accepted(
    protocol: Any, certificates: Certificates | None = None
) -> AsyncIterator[tuple[Any, Peer]]:
    """A connection accepted by a server of the loop, past its start."""
    arguments = {"ssl": certificates.server()} if certificates else {}
    async with serving(lambda: protocol, **arguments) as (_, address):
        if certificates:
            peer: Peer = await plain_client(address, certificates.client())
        else:
            peer = Peer(socket.create_connection(address))
        await support.wait_until(lambda: protocol.transport, "the connection")
        transport = protocol.transport
        try:
            for _ in range(20):
                transport.write(b".")
                await asyncio.sleep(0)
            yield transport, peer
        finally:
            peer.close()
            transport.abort()
            await protocol.until_lost()


def pairs() -> list[Any]:
    return [
        pytest.param(socket.socketpair, id="unix"),
        pytest.param(lambda: socket_pair(SOCKET_BUFFER_BYTES), id="tcp"),
    ]


@pytest.mark.parametrize("pair", pairs())
def test_write_to_a_closed_peer_is_seen_at_once(run: Run, pair: Any) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with brought(pair(), protocol) as (transport, peer):
            transport.pause_reading()
            peer.reset()
            for _ in range(3):
                transport.write(b"x" * 10)
                assert transport.is_closing()
            # None of these raises any more.
            transport.write_eof()
            transport.write(b"x")
            transport.writelines([b"x", b"y"])
            await protocol.until_lost()

    run(main())


@pytest.mark.parametrize("pause", [False, True], ids=["reading", "paused"])
def test_callback_that_writes_until_the_end_sees_it(run: Run, pause: bool) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with accepted(protocol) as (transport, peer):
            if pause:
                transport.pause_reading()
            transport.write(b"gathered")
            peer.reset()
            writes = 0
            while not transport.is_closing() and writes < WRITES_MAX:
                transport.write(b"x" * 100)
                writes += 1
            assert writes < WRITES_MAX

    run(main())


def skip_where_tls_does_not_look_below(loop_name: str) -> None:
    if loop_name == support.ORACLE and sys.version_info < (3, 14):
        pytest.skip("asyncio's TLS transport asks the one below since 3.14")


@pytest.mark.parametrize("size", [100, 5_000, 100_000])
def test_callback_that_writes_tls_until_the_end_sees_it(
    run: Run, loop_name: str, certificates: Certificates, tls_engine: str, size: int
) -> None:
    skip_where_tls_does_not_look_below(loop_name)

    async def main() -> None:
        protocol = Recorder()
        async with accepted(protocol, certificates) as (transport, peer):
            peer.reset()
            writes = 0
            while not transport.is_closing() and writes < WRITES_MAX:
                transport.write(b"x" * size)
                writes += 1
            assert writes < WRITES_MAX

    run(main())


class Refills(Recorder):
    """Writes until paused; when resumed after the peer has gone, until `is_closing()`."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.peer: Any = None
        self.is_paused = False
        self.writes = 0

    def fill(self) -> None:
        while not self.is_paused and not self.transport.is_closing() and self.writes < WRITES_MAX:
            self.transport.write(b"x" * self.size)
            self.writes += 1

    def pause_writing(self) -> None:
        super().pause_writing()
        self.is_paused = True

    def resume_writing(self) -> None:
        super().resume_writing()
        self.is_paused = False
        self.peer.reset()
        self.writes = 0
        self.fill()


async def until_refilled(protocol: Refills, peer: Peer) -> None:
    """Make a protocol write until paused, then resume it after its peer has gone."""
    protocol.peer = peer
    protocol.fill()
    assert protocol.is_paused

    def resumed() -> bool:
        if "resume_writing" not in protocol.events:
            peer.received()
        return "resume_writing" in protocol.events

    await support.wait_until(resumed, "resume_writing()")
    await protocol.until_lost()
    assert protocol.writes < WRITES_MAX


@pytest.mark.parametrize("size", [1_000, 100_000])
@pytest.mark.parametrize("pair", pairs())
def test_resume_writing_of_a_lost_connection_ends(
    run: Run, loop_name: str, pair: Any, size: int
) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio calls connection_lost twice (gh-156512)")

    async def main() -> None:
        protocol = Refills(size)
        async with brought(pair(), protocol) as (_, peer):
            await until_refilled(protocol, peer)

    run(main())


@pytest.mark.parametrize("size", [1_000, 100_000])
def test_resume_writing_of_a_lost_tls_connection_ends(
    run: Run, loop_name: str, certificates: Certificates, tls_engine: str, size: int
) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio calls connection_lost twice (gh-156512)")

    async def main() -> None:
        protocol = Refills(size)
        async with accepted_tls(protocol, certificates) as (_, peer):
            await until_refilled(protocol, peer)

    run(main())
