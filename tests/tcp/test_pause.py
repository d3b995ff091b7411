"""Flow control for reading on TCP transports: pausing and resuming."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import (
    MORE_THAN_THE_KERNEL_TAKES,
    SOCKET_BUFFER_BYTES,
    Recorder,
    a_few_turns,
    closed,
    connected,
    pattern,
    socket_pair,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]


def test_nothing_is_delivered_while_paused(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected(protocol) as (transport, peer):
            # A receive is in flight by now.
            await peer.send(b"one")
            await support.wait_until(lambda: protocol.data == b"one", "the first message")
            transport.pause_reading()
            assert not transport.is_reading()
            for _ in range(3):
                await peer.send(b"two")
                await a_few_turns()
                assert protocol.data == b"one"
            transport.resume_reading()
            assert transport.is_reading()
            assert protocol.data == b"one"  # never from inside resume_reading()
            await support.wait_until(lambda: protocol.data == b"onetwotwotwo", "the rest")

    run(main())


@pytest.mark.parametrize("size", [1, 20_000, 3_000_000])
def test_order_is_kept_over_pauses_inside_data_received(run: Run, size: int) -> None:
    class Pauses(Recorder):
        def data_received(self, data: bytes) -> None:
            assert self.transport.is_reading()
            super().data_received(data)
            self.transport.pause_reading()
            assert not self.transport.is_reading()
            asyncio.get_running_loop().call_soon(self.transport.resume_reading)

    async def main() -> None:
        protocol = Pauses()
        data = pattern(size)
        async with connected(protocol, SOCKET_BUFFER_BYTES) as (_, peer):
            await peer.send(data)
            await support.wait_until(lambda: len(protocol.data) == size, "all bytes", 30)
            assert protocol.data == data

    run(main())


def test_order_is_kept_when_resumed_at_once(run: Run) -> None:
    class Flickers(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.pause_reading()
            self.transport.resume_reading()

    async def main() -> None:
        protocol = Flickers()
        data = pattern(1_000_000)
        async with connected(protocol, SOCKET_BUFFER_BYTES) as (_, peer):
            await peer.send(data)
            await support.wait_until(lambda: len(protocol.data) == len(data), "all bytes", 30)
            assert protocol.data == data

    run(main())


def test_paused_outside_a_callback_with_data_in_flight(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        data = pattern(2_000_000)
        async with connected(protocol, SOCKET_BUFFER_BYTES) as (transport, peer):
            sending = asyncio.ensure_future(peer.send(data))
            while len(protocol.data) < len(data):
                transport.pause_reading()
                before = len(protocol.data)
                await a_few_turns()
                assert len(protocol.data) == before
                transport.resume_reading()
                await support.wait_until(lambda: len(protocol.data) > before, "more", 30)  # noqa: B023
            await sending
            assert protocol.data == data

    run(main())


def test_paused_reader_blocks_the_peer(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        data = pattern(MORE_THAN_THE_KERNEL_TAKES * 2)
        async with connected(protocol, SOCKET_BUFFER_BYTES) as (transport, peer):
            transport.pause_reading()
            sent = 0
            blocked = 0
            while blocked < 5:
                try:
                    sent += peer.sock.send(data[sent : sent + 65536])
                    blocked = 0
                except BlockingIOError:
                    blocked += 1
                    await a_few_turns()
            # If everything were received and buffered, the peer could send forever.
            assert sent < len(data)
            assert not protocol.data
            transport.resume_reading()
            await peer.send(data[sent:])
            await support.wait_until(lambda: len(protocol.data) == len(data), "all bytes", 30)
            assert protocol.data == data

    run(main())


def test_pause_in_connection_made(loop: asyncio.AbstractEventLoop, run: Run) -> None:
    ours, theirs = socket_pair()
    theirs.sendall(b"early")

    class Paused(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            assert isinstance(transport, asyncio.ReadTransport)
            assert transport.is_reading()
            transport.pause_reading()

    async def main() -> None:
        transport, protocol = await loop.create_connection(Paused, sock=ours)
        await a_few_turns()
        assert protocol.events == ["connection_made"]
        assert not transport.is_reading()
        transport.resume_reading()
        await support.wait_until(lambda: protocol.data == b"early", "the data")
        transport.close()
        await closed(transport)

    with theirs:
        run(main())


def test_pause_and_resume_in_connection_made(loop: asyncio.AbstractEventLoop, run: Run) -> None:
    ours, theirs = socket_pair()
    theirs.sendall(b"early")

    class Flickers(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            assert isinstance(transport, asyncio.ReadTransport)
            transport.pause_reading()
            transport.resume_reading()

    async def main() -> None:
        transport, protocol = await loop.create_connection(Flickers, sock=ours)
        await support.wait_until(lambda: protocol.data == b"early", "the data")
        await a_few_turns()
        assert protocol.chunks == [b"early"]
        transport.close()
        await closed(transport)

    with theirs:
        run(main())


def test_pause_and_resume_are_idempotent(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected(protocol) as (transport, peer):
            transport.resume_reading()
            transport.pause_reading()
            transport.pause_reading()
            transport.resume_reading()
            transport.resume_reading()
            assert transport.is_reading()
            await peer.send(b"x")
            await support.wait_until(lambda: protocol.data == b"x", "the data")

    run(main())


def test_end_of_stream_waits_for_resume(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected(protocol) as (transport, peer):
            transport.pause_reading()
            await peer.send(b"last")
            peer.close()
            await a_few_turns()
            assert protocol.events == ["connection_made"]
            transport.resume_reading()
            await protocol.until_lost()
            assert protocol.events == [
                "connection_made",
                "data_received",
                "eof_received",
                "connection_lost",
            ]
            assert protocol.data == b"last"
            assert protocol.reason is None

    run(main())


def test_pause_between_the_last_byte_and_the_end(run: Run) -> None:
    class Pauses(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.pause_reading()

    async def main() -> None:
        protocol = Pauses()
        async with connected(protocol) as (transport, peer):
            await peer.send(b"last")
            peer.shut_down()
            await support.wait_until(lambda: protocol.data == b"last", "the data")
            await a_few_turns()
            assert protocol.events == ["connection_made", "data_received"]
            transport.resume_reading()
            await protocol.until_lost()
            assert protocol.events[-2:] == ["eof_received", "connection_lost"]

    run(main())


def test_reset_while_paused_comes_after_the_data(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected(protocol) as (transport, peer):
            transport.pause_reading()
            await peer.send(b"last")
            await a_few_turns()
            peer.reset()
            await a_few_turns()
            assert protocol.events == ["connection_made"]
            transport.resume_reading()
            await protocol.until_lost()
            assert isinstance(protocol.reason, ConnectionResetError)
            assert bytes(protocol.data) in (b"last", b"")  # a reset may overtake data

    run(main())


@pytest.mark.parametrize("end", ["close", "abort"])
def test_ending_a_paused_transport(run: Run, end: str) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected(protocol) as (transport, peer):
            transport.pause_reading()
            await peer.send(b"never seen")
            await a_few_turns()
            getattr(transport, end)()
            transport.resume_reading()
            await protocol.until_lost()
            assert protocol.events == ["connection_made", "connection_lost"]
            assert protocol.reason is None

    run(main())


@pytest.mark.parametrize("end", ["close", "abort"])
def test_ending_between_resume_and_delivery(run: Run, end: str) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected(protocol) as (transport, peer):
            transport.pause_reading()
            await peer.send(b"held")
            await a_few_turns()
            transport.resume_reading()
            getattr(transport, end)()
            await protocol.until_lost()
            await a_few_turns()
            assert protocol.events == ["connection_made", "connection_lost"]

    run(main())


def test_pausing_after_eof_is_harmless(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        protocol.keep_open_after_eof = True
        async with connected(protocol) as (transport, peer):
            peer.shut_down()
            await support.wait_until(lambda: "eof_received" in protocol.events, "eof_received")
            assert transport.is_reading()
            transport.pause_reading()
            assert not transport.is_reading()
            transport.write(b"still open")
            assert await peer.receive(10) == b"still open"
            transport.resume_reading()
            assert transport.is_reading()

    run(main())


def test_resuming_after_eof_reports_it_again(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        protocol.keep_open_after_eof = True
        async with connected(protocol) as (transport, peer):
            peer.shut_down()
            await support.wait_until(lambda: "eof_received" in protocol.events, "eof_received")
            for count in (2, 3):
                transport.pause_reading()
                transport.resume_reading()
                # Until EOF is reported again, this pause is like any other.
                transport.pause_reading()
                for _ in range(5):
                    await asyncio.sleep(0)
                assert protocol.events.count("eof_received") == count - 1
                transport.resume_reading()
                await support.wait_until(
                    lambda: protocol.events.count("eof_received") == count,  # noqa: B023
                    "eof_received",
                )
                assert transport.is_reading()
            transport.write(b"still open")
            assert await peer.receive(10) == b"still open"
            # Returning False now closes the transport.
            protocol.keep_open_after_eof = False
            transport.pause_reading()
            transport.resume_reading()
            await protocol.until_lost()

    run(main())


def test_pause_in_one_connection_leaves_the_others_alone(run: Run) -> None:
    async def main() -> None:
        first, second = Recorder(), Recorder()
        async with connected(first) as (transport, peer), connected(second) as (_, other):
            transport.pause_reading()
            await peer.send(b"held")
            for number in range(20):
                await other.send(b"%02d" % number)
                await support.wait_until(
                    lambda: second.data.endswith(b"%02d" % number),  # noqa: B023
                    "the message",
                )
            assert not first.data

    run(main())
