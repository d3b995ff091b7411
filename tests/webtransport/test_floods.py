"""Floods of streams, datagrams and requests for sessions, and silent clients, on every loop."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import h3, quic, webtransport
from ringloop._native import h3 as _h3
from ringloop.quic.buffer import encode_uint_var
from ringloop.webtransport import Session, SessionLimits
from tests.h3.raw import CONNECT, GET, NO_SETTINGS, asked, closed, frame, raw_client
from tests.h3.support import resident_bytes
from tests.quic.support import relayed
from tests.support import wait_until, within
from tests.webtransport.support import both, served

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]

REJECTED = 0x10B
EXCESSIVE_LOAD = 0x107
BUFFERED_STREAM_REJECTED = 0x3994BD84
SESSIONS_MAX = 16
EARLY_MAX = 64
EARLY_BYTES_MAX = 256 << 10


async def idle(session: Session) -> None:
    """Wait for the end."""
    await session.wait_closed()


class Held:
    """Leaves requests for sessions without an answer until `go_on`."""

    def __init__(self) -> None:
        self.requests: list[h3.Request] = []
        self.go_on = asyncio.Event()

    async def accepts(self, request: h3.Request) -> Session:
        self.requests.append(request)
        await self.go_on.wait()
        self.requests.clear()
        return await webtransport.accept(request)


def early(server: webtransport.Server) -> list[int]:
    """Streams and datagrams that wait for a session, and their bytes."""
    (connection,) = server.connections
    return _h3.kept(connection)[-3:]


def session_stream(session_id: int) -> bytes:
    """The header of a unidirectional stream of a session."""
    return encode_uint_var(0x54) + encode_uint_var(session_id)


@pytest.mark.parametrize("ends", [True, False])
def test_unaccepted_short_streams_block_the_peer(
    run: Run, certificates: Certificates, ends: bool
) -> None:
    streams_max = 20
    go_on = asyncio.Event()

    async def handler(session: Session) -> None:
        await go_on.wait()
        for _ in range(100):
            stream = await session.accept_unidirectional_stream()
            if ends:
                assert await stream.read() == b"x"
            else:
                with pytest.raises(quic.StreamResetError):
                    await stream.read()
        session.close(6)

    async def main() -> None:
        server = {"max_streams_uni": streams_max}
        async with both(certificates, handler, server=server) as session:
            count = 0

            async def flood() -> None:
                nonlocal count
                while not session.is_closed:
                    stream = await session.open_unidirectional_stream()
                    await stream.send(b"x")
                    if ends:
                        stream.finish()
                    else:
                        # A reset drops what has not arrived, the stream's header too.
                        await session.connection.ping()
                        stream.reset(7)
                    count += 1

            flooding = asyncio.ensure_future(flood())
            before = -1
            while before != count or not count:
                before = count
                for _ in range(5):
                    await session.connection.ping()
            # Three of them are HTTP/3's own.
            assert count <= streams_max - 3
            go_on.set()
            assert (await within(session.wait_closed())).code == 6
            await within(asyncio.wait([flooding]))
            flooding.cancel()
            with suppress(quic.QuicError, asyncio.CancelledError):
                await flooding

    run(main())


def test_requests_for_sessions_without_end_are_rejected(
    run: Run, certificates: Certificates
) -> None:
    held = Held()

    async def main() -> None:
        async with (
            served(certificates, idle, accepts=held.accepts) as server,
            raw_client(certificates, server.address) as connection,
        ):
            streams = [await asked(connection, CONNECT) for _ in range(80)]
            await wait_until(lambda: len(held.requests) == SESSIONS_MAX)
            for stream in streams[SESSIONS_MAX:]:
                with pytest.raises(quic.StreamResetError) as reset:
                    await within(stream.read())
                assert reset.value.code == REJECTED
            # The rejected requests are forgotten.
            assert len(server._tasks) == SESSIONS_MAX
            assert not connection.is_closed
            held.go_on.set()
            for stream in streams[:SESSIONS_MAX]:
                assert (await within(stream.read(100))).startswith(b"\x01")

    run(main())


def test_flood_of_cancelled_sessions_ends_the_connection_and_is_logged_once(
    run: Run, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    held = Held()

    async def main() -> None:
        async with (
            served(certificates, idle, accepts=held.accepts) as server,
            raw_client(certificates, server.address) as connection,
        ):
            with pytest.raises(quic.ConnectionClosed):
                for _ in range(3000):
                    stream = await asked(connection, CONNECT)
                    stream.reset(0x10C)
                    stream.stop(0x10C)
            assert await closed(connection) == EXCESSIVE_LOAD
            held.go_on.set()
            await wait_until(lambda: not server._tasks)

    run(main())
    assert len(caplog.records) == 1


async def reset_of(stream: Any) -> int:
    with pytest.raises(quic.StreamResetError) as reset:
        await stream.read()
    return reset.value.code


def test_sessions_of_a_client_that_sends_no_settings_are_bounded(
    run: Run, certificates: Certificates
) -> None:
    held = Held()

    async def main() -> None:
        async with (
            served(certificates, idle, accepts=held.accepts) as server,
            raw_client(certificates, server.address, NO_SETTINGS) as connection,
        ):
            capsules = frame(0, bytes(16 << 10))
            streams = [await asked(connection, CONNECT, capsules) for _ in range(40)]
            # Which of them are kept depends on the order in which their heads arrive.
            resets = [asyncio.create_task(reset_of(stream)) for stream in streams]
            rejected_count = len(streams) - SESSIONS_MAX
            await wait_until(lambda: sum(reset.done() for reset in resets) >= rejected_count)
            kept = [at for at, reset in enumerate(resets) if not reset.done()]
            assert len(kept) == SESSIONS_MAX
            assert {reset.result() for reset in resets if reset.done()} == {REJECTED}
            # Its draft is not known: the application gets none of them.
            assert held.requests == []
            # One byte more than is kept of a session that was not accepted.
            streams[kept[0]].write(frame(0, b"x"))
            assert await within(resets[kept[0]]) == EXCESSIVE_LOAD
            assert not connection.is_closed
            for reset in resets:
                reset.cancel()

    run(main())


def test_datagrams_before_the_session_is_accepted_are_bounded(
    run: Run, certificates: Certificates
) -> None:
    held = Held()
    received: list[bytes] = []

    async def handler(session: Session) -> None:
        while len(received) < EARLY_MAX:
            received.append(await session.receive_datagram())
        session.close(6)

    async def main() -> None:
        async with (
            served(certificates, handler, accepts=held.accepts) as server,
            raw_client(certificates, server.address) as connection,
        ):
            request = await asked(connection, CONNECT)
            await wait_until(lambda: held.requests)
            quarter = encode_uint_var(0)
            for number in range(500):
                await connection.send_datagram(quarter + b"%d" % number)
                if not number % 50:
                    await within(connection.ping())
            await within(connection.ping())
            assert early(server)[1] == EARLY_MAX
            for _ in range(EARLY_MAX * 5):
                await connection.send_datagram(quarter + bytes(1000))
            for _ in range(3):
                await within(connection.ping())
            assert early(server)[1] == EARLY_MAX
            assert early(server)[2] <= EARLY_BYTES_MAX
            full = EARLY_MAX * 1000
            await wait_until(lambda: early(server)[2] == full)
            # It may be lost, and a ping overtakes datagrams that wait for the congestion window.
            while early(server)[2] == full:
                await connection.send_datagram(quarter + b"last")
                await within(connection.ping())
            held.go_on.set()
            await wait_until(lambda: len(received) == EARLY_MAX)
            assert received[-1] == b"last"
            await wait_until(lambda: early(server) == [0, 0, 0])
            request.finish()
            await wait_until(lambda: not server._tasks)

    run(main())


@pytest.mark.parametrize("unidirectional", [True, False])
def test_streams_of_sessions_that_never_come_are_bounded(
    run: Run, certificates: Certificates, unidirectional: bool
) -> None:
    async def main() -> None:
        limits = {"max_streams_uni": 200, "max_streams_bidi": 200}
        async with (
            served(certificates, idle, **limits) as server,
            raw_client(certificates, server.address) as connection,
        ):
            header = encode_uint_var(0x54 if unidirectional else 0x41) + encode_uint_var(4000)
            streams = []
            for _ in range(150):
                stream = await within(connection.open_stream(unidirectional=unidirectional))
                stream.write(header + bytes(1000))
                streams.append(stream)
            # The oldest give way.
            for stream in streams[:-EARLY_MAX]:
                assert await within(stream.stopped()) == BUFFERED_STREAM_REJECTED
            kept = early(server)
            assert kept[0] == EARLY_MAX
            assert kept[2] <= EARLY_BYTES_MAX
            # Datagrams of a session that never comes.
            for _ in range(200):
                await connection.send_datagram(encode_uint_var(2000) + bytes(100))
            await within(connection.ping())
            assert early(server)[1] <= EARLY_MAX
            assert not connection.is_closed

    run(main())


@pytest.mark.parametrize("kind", ["streams", "datagrams"])
def test_what_waits_for_a_session_keeps_no_memory_of_what_came_with_it(
    run: Run, certificates: Certificates, kind: str
) -> None:
    rounds = 2 * EARLY_MAX

    async def main() -> None:
        async with (
            served(certificates, idle, max_streams_bidi=2 * rounds) as server,
            raw_client(certificates, server.address) as connection,
        ):
            # An answered request: its datagrams are dropped.
            stream = await asked(connection, GET, end=True)
            assert (await within(stream.read())).startswith(b"\x01")
            streams = []

            async def send(session_id: int | None) -> None:
                length = connection.max_datagram_size
                assert length is not None
                for _ in range(rounds):
                    # Each fills a packet: a batch has 40, and what waits.
                    for _ in range(40):
                        await connection.send_datagram(b"\0" + bytes(length - 1))
                    if session_id is not None and kind == "datagrams":
                        await connection.send_datagram(encode_uint_var(session_id // 4) + b"x")
                    elif session_id is not None:
                        stream = await within(connection.open_stream())
                        stream.write(encode_uint_var(0x41) + encode_uint_var(session_id) + b"x")
                        streams.append(stream)
                    await within(connection.ping())

            # What both ends need for this, they keep.
            await send(None)
            before = resident_bytes()
            await send(8000)
            assert early(server)[kind == "datagrams"] == EARLY_MAX
            assert resident_bytes() - before < 1 << 20 < EARLY_MAX * 40 * 1100 / 2

    run(main())


def test_streams_before_the_session_is_accepted_wait_within_a_bound(
    run: Run, certificates: Certificates
) -> None:
    held = Held()
    taken: list[bytes] = []

    async def handler(session: Session) -> None:
        async for stream in session:
            data = await stream.read()
            taken.append(data)

    async def main() -> None:
        limits = {"max_streams_uni": 200}
        async with (
            served(certificates, handler, accepts=held.accepts, **limits) as server,
            raw_client(certificates, server.address) as connection,
        ):
            request = await asked(connection, CONNECT)
            await wait_until(lambda: held.requests)
            streams = []
            for number in range(100):
                stream = await within(connection.open_stream(unidirectional=True))
                stream.write(session_stream(0) + b"%d" % number)
                stream.finish()
                streams.append(stream)
            # The session is known: the newest are refused.
            await within(connection.ping())
            assert early(server)[0] == EARLY_MAX
            held.go_on.set()
            await wait_until(lambda: len(taken) == EARLY_MAX)
            assert sorted(taken, key=int) == [b"%d" % number for number in range(EARLY_MAX)]
            request.finish()
            await wait_until(lambda: not server._tasks)

    run(main())


def test_client_that_vanishes_in_a_session_ends_all_that_waits(
    run: Run, certificates: Certificates
) -> None:
    ended: dict[str, BaseException] = {}

    async def handler(session: Session) -> None:
        stream = await session.accept_stream()

        async def wait(name: str, waiting: Any) -> None:
            try:
                await waiting
            except ConnectionError as error:
                ended[name] = error

        async def fill() -> None:
            while True:
                await stream.send(bytes(1 << 16))

        await asyncio.gather(
            wait("session", session.wait_closed()),
            wait("draining", session.wait_draining()),
            wait("stream", session.accept_stream()),
            wait("datagram", session.receive_datagram()),
            wait("read", stream.read()),
            wait("write", fill()),
        )

    async def main() -> None:
        async with (
            served(certificates, handler, idle_timeout=1.5) as server,
            relayed(server.address) as relay,
        ):
            session = await within(
                webtransport.open_session(
                    f"https://127.0.0.1:{relay.address[1]}/",
                    ca_file=certificates.authority,
                    server_name="localhost",
                )
            )
            stream = await session.open_stream()
            await stream.send(b"x")
            await wait_until(lambda: bool(server._tasks))
            (connection,) = server.connections
            await wait_until(lambda: stream.is_readable and _h3.kept(connection)[-4] == 1)
            relay.faults.blackhole = True
            await wait_until(lambda: not server._tasks)
            # One that only asks whether the peer wants the end has its answer.
            assert set(ended) == {"session", "stream", "datagram", "read", "write"}
            for error in ended.values():
                assert isinstance(error, quic.IdleTimeout), ended
            await wait_until(lambda: not server.connections)
            session.connection.close()
            await session._close_connection()

    run(main())


def test_stopped_and_reset_streams_give_their_credit_back(
    run: Run, certificates: Certificates
) -> None:
    """Both ends count the final size of a stream, whatever of it was read (draft 16 §5.4)."""
    data = 20_000
    limits = SessionLimits(sessions=3, data=data, streams=4, unidirectional_streams=4)

    async def handler(session: Session) -> None:
        for number in range(12):
            stream = await session.accept_stream()
            match number % 3:
                case 0:
                    stream.stop(1)
                case 1:
                    assert await stream.read(1) == b"x"
                    stream.stop(2)
                case _:
                    # The client resets it.
                    with pytest.raises(quic.StreamResetError):
                        while await stream.read(1000):
                            pass
            stream.close()
        stream = await session.accept_stream()
        assert len(await stream.read()) == 3 * data
        session.close(6)

    async def main() -> None:
        async with both(certificates, handler, server={"limits": limits}, limits=limits) as session:
            for number in range(12):
                stream = await within(session.open_stream())
                # Half of what the session allows at a time; the stop may have come already.
                with suppress(quic.StreamStoppedError):
                    stream.write(b"x" * (data // 2))
                if number % 3 == 2:
                    await within(session.connection.ping())
                    stream.reset(9)
                else:
                    assert await within(stream.stopped()) == number % 3 + 1
            stream = await within(session.open_stream())
            stream.write(bytes(3 * data))
            stream.finish()
            assert (await within(session.wait_closed())).code == 6

    run(main())


@pytest.mark.parametrize("by_client", [True, False])
def test_dropped_streams_give_their_credit_back_to_either_end(
    run: Run, certificates: Certificates, by_client: bool
) -> None:
    data = 20_000
    limits = SessionLimits(sessions=3, data=data, streams=4, unidirectional_streams=4)
    rounds = 20

    async def flood(session: Session) -> None:
        for _ in range(rounds):
            stream = await session.open_unidirectional_stream()
            # The stop may have come already.
            with suppress(quic.StreamStoppedError):
                stream.write(bytes(data // 2))
                stream.finish()
            await stream.stopped()

    async def drop(session: Session) -> None:
        for _ in range(rounds):
            stream = await session.accept_unidirectional_stream()
            del stream

    async def handler(session: Session) -> None:
        await (drop(session) if by_client else flood(session))
        session.close(6)

    async def main() -> None:
        async with both(certificates, handler, server={"limits": limits}, limits=limits) as session:
            await within(flood(session) if by_client else drop(session))
            assert (await within(session.wait_closed())).code == 6

    run(main())
