"""Streams of the native API, on every loop."""

from __future__ import annotations

import asyncio
import gc
import sysconfig
import threading
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic
from ringloop._native import quic as native
from tests.quic.support import both, dialled, echo, relayed, served
from tests.support import wait_until, within

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]


def test_bytes_go_there_and_back(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        data = bytes(range(256)) * 4096
        async with (
            served(certificates, stream_handler=echo) as server,
            dialled(certificates, server.address) as connection,
        ):
            stream = await connection.open_stream()

            async def send() -> None:
                for at in range(0, len(data), 10_000):
                    await stream.send(data[at : at + 10_000])
                stream.finish()

            _, answer = await within(asyncio.gather(send(), stream.read_to_end()))
            assert answer == data
            assert stream.at_eof()
            assert await within(stream.acked())
            assert await stream.read() == b""

    run(main())


def test_reader_methods_are_those_of_asyncio(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            sent = await client.open_stream()
            sent.writelines([b"one\n", b"two\nthree", b"|four|12345", b"tail"])
            sent.close()
            stream = await within(server.accept_stream())
            reader, writer = stream.pair()
            assert isinstance(reader, asyncio.StreamReader)
            assert isinstance(writer, asyncio.StreamWriter)
            assert await within(reader.readline()) == b"one\n"
            assert await within(reader.readuntil(b"|")) == b"two\nthree|"
            assert await within(reader.readuntil(b"|")) == b"four|"
            assert await within(reader.readexactly(5)) == b"12345"
            assert not reader.at_eof()
            with pytest.raises(asyncio.IncompleteReadError) as short:
                await within(reader.readexactly(100))
            assert short.value.partial == b"tail"
            assert await within(reader.read(1)) == b""
            assert reader.at_eof()
            assert writer.get_extra_info("stream_id") == 0
            writer.close()
            await within(writer.wait_closed())

    run(main())


def test_lines_are_iterated_and_bounded(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            sent = await client.open_stream(unidirectional=True)
            sent.write(b"a\nb\nc")
            sent.finish()
            stream = await within(server.accept_stream(unidirectional=True))
            assert [line async for line in stream] == [b"a\n", b"b\n", b"c"]
            sent = await client.open_stream(unidirectional=True)
            sent.write(bytes(200_000))
            sent.finish()
            stream = await within(server.accept_stream(unidirectional=True))
            with pytest.raises(ValueError, match="Separator is not found"):
                await within(stream.readline())

    run(main())


def test_drain_waits_for_a_reader_that_does_not_read(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        windows = {"max_stream_data": 64_000, "max_data": 64_000}
        async with both(certificates, windows, send_window=64_000) as (client, server):
            sent = await client.open_stream()
            taken = sent.write_nowait(bytes(1_000_000))
            assert 0 < taken <= 200_000
            assert sent.write_nowait(b"more") == 0
            sent.write(bytes(1_000_000 - taken))
            drained = asyncio.ensure_future(sent.drain())
            stream = await within(server.accept_stream())
            await asyncio.sleep(0.05)
            assert not drained.done()
            assert sent.queued_bytes > 0
            await within(stream.readexactly(1_000_000))
            await within(drained)
            assert sent.queued_bytes == 0

    run(main())


def test_cancelled_waits_lose_nothing(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates, {"max_streams_bidi": 1}) as (client, server):
            sent = await client.open_stream()
            sent.write(b"abc")
            opening = asyncio.ensure_future(client.open_stream())
            stream = await within(server.accept_stream())
            reading = asyncio.ensure_future(stream.readexactly(6))
            accepting = asyncio.ensure_future(server.accept_stream())
            await wait_until(lambda: stream._left is not None and len(stream._left) == 3)
            for task in (opening, reading, accepting):
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            sent.write(b"def")
            assert await within(stream.readexactly(6)) == b"abcdef"
            sent.finish()
            assert await within(stream.read()) == b""
            stream.finish()
            assert await within(sent.read()) == b""
            # Credit for the next stream arrives once this one has ended in both directions.
            second = await within(client.open_stream())
            second.write(b"x")
            assert (await within(server.accept_stream())).id == second.id

    run(main())


def test_reset_and_stop_carry_codes_both_ways(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            sent = await client.open_stream()
            sent.write(b"x")
            stream = await within(server.accept_stream())
            sent.reset(41)
            stream.reset(42)
            with pytest.raises(quic.StreamResetError) as reset:
                while True:
                    await within(stream.read(10))
            assert reset.value.code == 41
            with pytest.raises(quic.StreamResetError) as reset:
                await within(sent.read(10))
            assert reset.value.code == 42
            sent = await client.open_stream(unidirectional=True)
            sent.write(b"x")
            stream = await within(server.accept_stream(unidirectional=True))
            stream.stop(43)
            assert await within(sent.stopped()) == 43
            with pytest.raises(quic.StreamStoppedError) as stopped:
                sent.write(b"more")
            assert stopped.value.code == 43
            with pytest.raises(quic.StreamClosedError):
                await stream.read(1)
            with pytest.raises(quic.StreamClosedError):
                stream.write(b"the other way")

    run(main())


def test_of_a_stop_and_a_reset_the_first_code_counts(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            for is_stopped_first in [True, False]:
                sent = await client.open_stream(unidirectional=True)
                sent.write(b"x")
                theirs = await within(server.accept_stream(unidirectional=True))
                if not is_stopped_first:
                    sent.reset(44)
                theirs.stop(43)
                # No call of the stream has seen the stop yet.
                await within(server.ping())
                sent.reset(44)
                for _ in range(2):
                    # RFC 9000 3.5: the peer that stopped it ignores the code of the reset.
                    assert await within(sent.stopped()) == (43 if is_stopped_first else 44)
                    # Later the protocol has forgotten the stream.
                    await within(client.ping())

    run(main())


def test_stop_behind_a_finish_keeps_its_code(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates, {"max_stream_data": 1000}) as (client, server):
            sent = await client.open_stream(unidirectional=True)
            sent.write(b"x" * 2000)
            sent.finish()
            theirs = await within(server.accept_stream(unidirectional=True))
            theirs.stop(7)
            await within(server.ping())
            await within(client.ping())
            assert await within(sent.stopped()) == 7
            sent.reset(8)
            assert await within(sent.stopped()) == 7
            assert not await within(sent.acked())

    run(main())


def test_dropped_stream_ends_both_ways(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            sent = await client.open_stream()
            sent.write(b"x" * 100)
            stream = await within(server.accept_stream())
            del stream
            assert await within(sent.stopped()) == 0
            assert await within(sent.read()) == b""

    run(main())


def test_reading_to_the_end_has_a_limit_and_loses_nothing(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):

            async def sent(data: bytes) -> quic.Stream:
                out = await client.open_stream(unidirectional=True)
                out.write(data)
                out.finish()
                return await within(server.accept_stream(unidirectional=True))

            assert await within((await sent(b"x" * 100)).read_to_end(100)) == b"x" * 100
            assert await within((await sent(b"")).read_to_end(0)) == b""
            stream = await sent(b"y" * 101)
            for _ in range(2):
                with pytest.raises(asyncio.LimitOverrunError):
                    await within(stream.read_to_end(100))
            assert not stream.at_eof()
            assert await within(stream.readexactly(1)) == b"y"
            assert await within(stream.read_to_end(100)) == b"y" * 100
            assert stream.at_eof()
            # Cancelled with partial data buffered.
            out = await client.open_stream(unidirectional=True)
            out.write(b"one")
            stream = await within(server.accept_stream(unidirectional=True))
            reading = asyncio.ensure_future(stream.read_to_end())
            out.write(b"two")
            assert await within(client.ping()) > 0
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            out.finish()
            assert await within(stream.read_to_end()) == b"onetwo"

    run(main())


def test_closing_a_stopped_stream_raises_nothing(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            stream = await client.open_stream()
            stream.write(b"x" * 100_000)
            theirs = await within(server.accept_stream())
            theirs.stop(7)
            assert await within(stream.stopped()) == 7
            stream.close()
            stream.close()
            assert stream.is_closing()

    run(main())


@pytest.mark.parametrize("ending", ["finish", "reset"])
def test_unread_complete_stream_frees_its_slot_when_dropped(
    run: Run, certificates: Certificates, ending: str
) -> None:
    async def main() -> None:
        async with both(certificates, {"max_streams_uni": 1}) as (client, server):
            for _ in range(5):
                stream = await within(client.open_stream(unidirectional=True))
                stream.write(b"x" * 10)
                theirs = await within(server.accept_stream(unidirectional=True))
                if ending == "finish":
                    stream.finish()
                    assert await within(stream.acked())
                else:
                    stream.reset(1)
                    await within(client.ping())
                # Nothing is in flight any more that could carry the server's answer.
                await asyncio.sleep(0.05)
                del theirs

    run(main())


@pytest.mark.parametrize("is_asked", [True, False])
def test_data_queued_behind_a_close_ends_if_the_peer_stops_it(
    run: Run, certificates: Certificates, is_asked: bool
) -> None:
    async def main() -> None:
        limits = {"max_streams_uni": 1, "max_stream_data": 10_000, "send_window": 20_000}
        async with both(certificates, limits, send_window=20_000) as (client, server):
            for _ in range(3):
                stream = await within(client.open_stream(unidirectional=True))
                stream.write(b"x" * 1_000_000)
                stream.close()
                assert stream.is_closing()
                asked = asyncio.ensure_future(stream.acked()) if is_asked else None
                theirs = await within(server.accept_stream(unidirectional=True))
                await within(theirs.read(1))
                theirs.stop(7)
                if asked is not None:
                    assert not await within(asked)
                    # The peer allows this end another stream once it has the answer.
                    other = await within(client.open_stream(unidirectional=True))
                    await within(client.ping())
                    assert not await within(stream.acked())
                    assert await within(stream.stopped()) == 7
                    other.reset(1)
                    await within(server.accept_stream(unidirectional=True))
                del stream, asked

    run(main())


@pytest.mark.parametrize("ending", ["close", "finish"])
def test_stopped_data_does_not_count_as_acknowledged(
    run: Run, certificates: Certificates, ending: str
) -> None:
    async def main() -> None:
        async with both(certificates, {"max_streams_uni": 1}) as (client, server):
            stream = await client.open_stream(unidirectional=True)
            stream.write(b"x")
            theirs = await within(server.accept_stream(unidirectional=True))
            theirs.stop(7)
            await within(server.ping())
            if ending == "close":
                stream.close()
            else:
                with pytest.raises(quic.StreamStoppedError):
                    stream.finish()
            # The answer is sent automatically; once acknowledged the protocol forgets the stream.
            await within(client.open_stream(unidirectional=True))
            await within(client.ping())
            assert not await within(stream.acked())
            assert await within(stream.stopped()) == 7

    run(main())


def test_streams_in_cycles_are_collected(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, _):
            stream: Any = await client.open_stream()
            stream.itself, client.hung_on = stream, stream  # type: ignore[attr-defined]
            assert stream.connection is client
            watched = weakref.ref(stream)
            del stream, client.hung_on  # type: ignore[attr-defined]
            gc.collect()
            assert watched() is None

    run(main())


def test_streams_of_one_batch_each_get_a_handler(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        handled = []

        async def handler(stream: quic.Stream) -> None:
            handled.append((stream.is_bidirectional, await stream.read_to_end()))

        async with (
            served(certificates, stream_handler=handler) as server,
            dialled(certificates, server.address) as connection,
        ):
            wanted = []
            for number in range(20):
                stream = await connection.open_stream(unidirectional=number % 2 == 1)
                stream.write(b"%d" % number)
                stream.finish()
                wanted.append((stream.is_bidirectional, b"%d" % number))
            await wait_until(lambda: len(handled) == len(wanted))
            assert sorted(handled) == sorted(wanted)

    run(main())


def test_many_streams_share_a_connection(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with (
            served(certificates, stream_handler=echo, max_streams_bidi=10) as server,
            dialled(certificates, server.address) as connection,
        ):

            async def one(number: int) -> None:
                async with await connection.open_stream() as stream:
                    stream.priority = number % 3
                    data = number.to_bytes(4, "big") * 100
                    stream.write(data)
                    stream.finish()
                    assert await stream.read_to_end() == data

            await within(asyncio.gather(*map(one, range(300))), 30)

    run(main())


def test_handler_that_raises_aborts_its_stream_and_is_reported(
    run: Run, certificates: Certificates, loop: asyncio.AbstractEventLoop
) -> None:
    reported: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: reported.append(context))

    async def broken(stream: quic.Stream) -> None:
        await stream.read(1)
        raise ZeroDivisionError

    async def main() -> None:
        async with (
            served(certificates, stream_handler=broken) as server,
            dialled(certificates, server.address) as connection,
        ):
            stream = await connection.open_stream()
            stream.write(b"x")
            with pytest.raises(quic.StreamResetError):
                await within(stream.read(1))

    run(main())
    assert isinstance(reported[0]["exception"], ZeroDivisionError)


def test_errors_of_a_handler_are_reported_except_the_peers_end(
    run: Run, certificates: Certificates, loop: asyncio.AbstractEventLoop
) -> None:
    """A failed connection to another server is a ConnectionError too."""
    reported: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: reported.append(context))
    errors = [ConnectionRefusedError("elsewhere"), quic.StreamResetError(5)]

    async def broken(stream: quic.Stream) -> None:
        await stream.read(1)
        raise errors[stream.id // 4]

    async def main() -> None:
        async with (
            served(certificates, stream_handler=broken) as server,
            dialled(certificates, server.address) as connection,
        ):
            for _ in errors:
                stream = await connection.open_stream()
                stream.write(b"x")
                with pytest.raises(quic.StreamResetError):
                    await within(stream.read(1))

    run(main())
    assert [context["exception"] for context in reported] == errors[:1]


def test_cancelled_handler_does_not_finish_its_stream(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        tasks: list[asyncio.Task[Any] | None] = []

        async def answer(stream: quic.Stream) -> None:
            tasks.append(asyncio.current_task())
            stream.write(b"the first half")
            await stream.drain()
            await asyncio.Event().wait()

        async with (
            served(certificates, stream_handler=answer) as server,
            dialled(certificates, server.address) as connection,
        ):
            stream = await connection.open_stream()
            stream.write(b"x")
            assert await within(stream.readexactly(14)) == b"the first half"
            (task,) = tasks
            assert task is not None
            task.cancel()
            with pytest.raises(quic.StreamResetError):
                await within(stream.read())

    run(main())


def test_waiters_on_a_stream_end_when_it_is_aborted(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates, {"max_stream_data": 1 << 16}) as (client, _server):
            stream = await client.open_stream()
            stream.write(bytes(1 << 24))
            draining = asyncio.ensure_future(stream.drain())
            closing = asyncio.ensure_future(stream.wait_closed())
            reading = asyncio.ensure_future(stream.read(1))
            await within(client.ping())
            assert not any(task.done() for task in (draining, closing, reading))
            stream.reset(7)
            await within(draining)
            await within(closing)
            assert not reading.done()
            stream.stop(7)
            with pytest.raises(quic.StreamClosedError):
                await within(reading)

            stream = await client.open_stream()
            stream.write(b"x")
            stream.abort()
            await within(stream.wait_closed())
            assert not await within(stream.acked())

    run(main())


def test_reset_after_complete_delivery_changes_nothing(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        async with both(certificates) as (client, _server):
            stream = await client.open_stream()
            stream.write(b"x")
            stream.finish()
            assert await within(stream.acked())
            stream.reset(7)
            assert await within(stream.acked())

    run(main())


def test_second_concurrent_reader_is_refused(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            stream = await client.open_stream()
            stream.write(b"x")
            first = asyncio.ensure_future(stream.read(1))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="already waiting for incoming data"):
                await stream.read(1)
            there = await within(server.accept_stream())
            there.write(b"y")
            assert await within(first) == b"y"
            # A cancelled reader does not block the next one.
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(stream.read(1), 0.001)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(stream.read(1), 0.001)

    run(main())


@pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="this build leaves the drop to the thread that made the stream, once it runs",
)
def test_stream_dropped_by_another_thread_ends_at_once(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            streams = [await client.open_stream()]
            streams[0].write(b"x")
            there = await within(server.accept_stream())
            assert await within(there.read(1)) == b"x"
            # The loop is asleep by then: only the drop wakes it.
            dropping = threading.Timer(0.2, streams.clear)
            dropping.start()
            assert await within(there.read(1), 15) == b""
            dropping.join()

    run(main())


def test_streams_are_freed_as_they_end(run: Run, certificates: Certificates) -> None:
    """Nothing of a stream is left on either end: see also the churn test of the Rust crate."""

    async def main() -> None:
        async with (
            served(certificates, stream_handler=echo) as server,
            dialled(certificates, server.address) as connection,
        ):
            for _ in range(50):
                stream = await connection.open_stream()
                stream.write(b"x")
                stream.finish()
                assert await within(stream.read_to_end()) == b"x"
            await wait_until(lambda: not server._tasks)
            known = native.EventConnection(connection.endpoint._native, connection._key)
            assert known.streams_queued == 0

    run(main())


@pytest.mark.parametrize(
    "faults",
    [
        {"loss": 0.02},
        {"reordering": 0.1, "duplication": 0.1},
        {"corruption": 0.03},
        {"longest": 1300},
    ],
    ids=["loss", "reordering", "corruption", "mtu"],
)
def test_transfer_through_a_bad_network(
    run: Run, certificates: Certificates, faults: dict[str, Any]
) -> None:
    async def main() -> None:
        data = bytes(range(251)) * 3000
        async with served(certificates, stream_handler=echo) as server:
            async with relayed(server.address, seed=11, **faults) as relay:
                async with dialled(certificates, relay.address, initial_rtt=0.05) as connection:
                    stream = await connection.open_stream()
                    stream.write(data)
                    stream.finish()
                    assert await within(stream.read_to_end(), 30) == data, relay.seed

    run(main())


async def _fed(client: quic.Connection, server: quic.Connection, data: bytes) -> quic.Stream:
    out = await client.open_stream(unidirectional=True)
    await within(out.send(data))
    out.finish()
    return await within(server.accept_stream(unidirectional=True))


def test_first_of_several_separators_counts(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            stream = await _fed(client, server, b"one;two\r\nthree\nrest")
            for separators, expected in [
                ((b"\r\n", b";"), b"one;"),
                ((b"\n", b"\r\n"), b"two\r\n"),
                ((b"ee\n", b"\n", b"e\n"), b"three\n"),
            ]:
                assert await within(stream.readuntil(separators)) == expected
            for wrong in ((), (b"a", b"")):
                with pytest.raises(ValueError, match="Separator should"):
                    await stream.readuntil(wrong)
            with pytest.raises(asyncio.IncompleteReadError) as ended:
                await within(stream.readuntil((b"\n", b"xyz")))
            assert ended.value.partial == b"rest"

    run(main())


@pytest.mark.parametrize("size", [(1 << 16) + 1, 100_000, 200_000])
def test_lines_are_as_long_as_those_of_asyncios_reader(
    size: int, run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            data = b"x" * (1 << 16) + b"\n" + b"y" * size + b"\n"
            stream = await _fed(client, server, data)
            assert len(await within(stream.readline())) == (1 << 16) + 1
            with pytest.raises(asyncio.LimitOverrunError):
                await within(stream.readuntil(b"\n"))
            assert len(await within(stream.readexactly(size))) == size
            assert await within(stream.readline()) == b"\n"

    run(main())
