"""Flow control of a TCP transport: pausing to read, and being asked to stop writing."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.tcp import (
    MORE_THAN_THE_KERNEL_TAKES,
    SOCKET_BUFFER_BYTES,
    Recorder,
    closed,
    connected,
    pattern,
    socket_pair,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]


async def a_few_turns() -> None:
    """Give bytes that are already in the kernel every chance to be delivered."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for _ in range(5):
            readable = asyncio.Event()
            loop.add_reader(ours, readable.set)
            theirs.send(b"x")
            await readable.wait()
            loop.remove_reader(ours)
            ours.recv(1)


# --- reading --------------------------------------------------------------------------------------


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


def test_order_is_kept_when_pause_is_taken_back_at_once(run: Run) -> None:
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


def test_paused_from_outside_with_data_on_its_way(run: Run) -> None:
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


def test_a_paused_reader_holds_the_peer_back(run: Run) -> None:
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
            # Were everything received and held, the peer could go on for ever.
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


def test_pausing_after_the_end_is_harmless(run: Run) -> None:
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


def test_who_resumes_after_the_end_hears_of_it_again(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        protocol.keep_open_after_eof = True
        async with connected(protocol) as (transport, peer):
            peer.shut_down()
            await support.wait_until(lambda: "eof_received" in protocol.events, "eof_received")
            for count in (2, 3):
                transport.pause_reading()
                transport.resume_reading()
                # Before the end is told again, this is a pause like any other.
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
            # Who says by then that it is over, ends it.
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


# --- writing --------------------------------------------------------------------------------------


def test_limits_by_default(run: Run) -> None:
    async def main() -> None:
        async with connected(Recorder()) as (transport, _):
            assert transport.get_write_buffer_limits() == (16 * 1024, 64 * 1024)

    run(main())


@pytest.mark.parametrize(
    ("arguments", "limits"),
    [
        ({"high": 1000}, (250, 1000)),
        ({"low": 1000}, (1000, 4000)),
        ({"high": 100, "low": 50}, (50, 100)),
        ({"high": 0}, (0, 0)),
        ({"high": 7, "low": 7}, (7, 7)),
        ({}, (16 * 1024, 64 * 1024)),
        ({"high": None, "low": None}, (16 * 1024, 64 * 1024)),
    ],
)
def test_limits_follow_from_each_other(
    run: Run, arguments: dict[str, int | None], limits: tuple[int, int]
) -> None:
    async def main() -> None:
        async with connected(Recorder()) as (transport, _):
            transport.set_write_buffer_limits(**arguments)
            assert transport.get_write_buffer_limits() == limits

    run(main())


@pytest.mark.parametrize("arguments", [{"high": 1, "low": 2}, {"high": 5, "low": -1}])
def test_limits_that_make_no_sense(run: Run, arguments: dict[str, int]) -> None:
    async def main() -> None:
        async with connected(Recorder()) as (transport, _):
            with pytest.raises(ValueError, match="must be >= 0"):
                transport.set_write_buffer_limits(**arguments)
            assert transport.get_write_buffer_limits() == (16 * 1024, 64 * 1024)

    run(main())


def test_limits_by_position_and_wrong_name(run: Run) -> None:
    async def main() -> None:
        async with connected(Recorder()) as (transport, _):
            transport.set_write_buffer_limits(500, 100)
            assert transport.get_write_buffer_limits() == (100, 500)
            with pytest.raises(TypeError):
                transport.set_write_buffer_limits(hihg=1)
            with pytest.raises(TypeError):
                transport.set_write_buffer_limits(1, 2, 3)

    run(main())


def test_pause_and_resume_writing_alternate(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        data = pattern(MORE_THAN_THE_KERNEL_TAKES)
        async with connected(protocol, SOCKET_BUFFER_BYTES) as (transport, peer):
            for _ in range(3):
                transport.write(data)
                assert protocol.events[-1] == "pause_writing"  # from inside write()
                assert await peer.receive(len(data)) == data
                await support.wait_until(
                    lambda: protocol.events[-1] == "resume_writing", "resume_writing"
                )
            assert protocol.events == ["connection_made"] + 3 * ["pause_writing", "resume_writing"]

    run(main())


def test_pause_writing_comes_once(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected(protocol, SOCKET_BUFFER_BYTES) as (transport, _):
            for _ in range(5):
                transport.write(bytes(MORE_THAN_THE_KERNEL_TAKES))
                await asyncio.sleep(0)
            assert protocol.events == ["connection_made", "pause_writing"]

    run(main())


def test_resume_writing_waits_for_the_low_mark(run: Run) -> None:
    class Sizes(Recorder):
        def resume_writing(self) -> None:
            super().resume_writing()
            self.size = self.transport.get_write_buffer_size()

    async def main() -> None:
        protocol = Sizes()
        async with connected(protocol, SOCKET_BUFFER_BYTES) as (transport, peer):
            transport.set_write_buffer_limits(high=100_000, low=10_000)
            transport.write(bytes(MORE_THAN_THE_KERNEL_TAKES))
            await peer.receive(MORE_THAN_THE_KERNEL_TAKES)
            await support.wait_until(
                lambda: protocol.events[-1] == "resume_writing", "resume_writing"
            )
            assert protocol.size <= 10_000

    run(main())


def test_a_mark_of_zero_pauses_until_all_is_sent(run: Run) -> None:
    class Sizes(Recorder):
        def resume_writing(self) -> None:
            super().resume_writing()
            assert self.transport.get_write_buffer_size() == 0

    async def main() -> None:
        protocol = Sizes()
        async with connected(protocol, SOCKET_BUFFER_BYTES) as (transport, peer):
            transport.set_write_buffer_limits(high=0)
            transport.write(b"fits")
            assert protocol.events == ["connection_made"]
            sent = 4
            while protocol.events[-1] != "pause_writing":
                transport.write(bytes(10_000))
                sent += 10_000
            await peer.receive(sent)
            await support.wait_until(
                lambda: protocol.events[-1] == "resume_writing", "resume_writing"
            )

    run(main())


def test_lower_limits_pause_at_once(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected(protocol, SOCKET_BUFFER_BYTES) as (transport, peer):
            transport.set_write_buffer_limits(high=2 * MORE_THAN_THE_KERNEL_TAKES)
            transport.write(bytes(MORE_THAN_THE_KERNEL_TAKES))
            assert protocol.events == ["connection_made"]
            assert transport.get_write_buffer_size() > 1000
            transport.set_write_buffer_limits(high=1000)
            assert protocol.events == ["connection_made", "pause_writing"]
            await peer.receive(MORE_THAN_THE_KERNEL_TAKES)
            await support.wait_until(
                lambda: protocol.events[-1] == "resume_writing", "resume_writing"
            )

    run(main())


def test_size_counts_what_is_not_sent(run: Run) -> None:
    async def main() -> None:
        async with connected(Recorder(), SOCKET_BUFFER_BYTES) as (transport, peer):
            assert transport.get_write_buffer_size() == 0
            transport.write(bytes(MORE_THAN_THE_KERNEL_TAKES))
            size = transport.get_write_buffer_size()
            assert 0 < size < MORE_THAN_THE_KERNEL_TAKES
            transport.write(b"12345")
            assert transport.get_write_buffer_size() == size + 5
            transport.writelines([b"67", b"89"])
            # It may try to send, and the kernel may have made room.
            assert 0 < transport.get_write_buffer_size() <= size + 9
            await peer.receive(MORE_THAN_THE_KERNEL_TAKES + 9)
            await support.wait_until(lambda: transport.get_write_buffer_size() == 0, "0 bytes")

    run(main())


def test_writing_inside_pause_writing(run: Run) -> None:
    data = pattern(MORE_THAN_THE_KERNEL_TAKES)

    class Writes(Recorder):
        def pause_writing(self) -> None:
            super().pause_writing()
            assert self.transport.get_write_buffer_size() > 0
            self.transport.write(b"<paused>")

        def resume_writing(self) -> None:
            super().resume_writing()
            self.transport.write(b"<resumed>")

    async def main() -> None:
        protocol = Writes()
        async with connected(protocol, SOCKET_BUFFER_BYTES) as (transport, peer):
            transport.write(data)
            transport.write(b"<after>")
            expected = data + b"<paused><after>"
            assert await peer.receive(len(expected) + 9) == expected + b"<resumed>"
            assert protocol.events == ["connection_made", "pause_writing", "resume_writing"]

    run(main())


@pytest.mark.parametrize("method", ["pause_writing", "resume_writing"])
@pytest.mark.parametrize("end", ["close", "abort"])
def test_ending_inside_flow_control(run: Run, loop_name: str, method: str, end: str) -> None:
    if loop_name == support.ORACLE and method == "resume_writing":
        pytest.skip("asyncio calls connection_lost twice (gh-156512)")
    data = pattern(MORE_THAN_THE_KERNEL_TAKES)

    class Ends(Recorder):
        def note(self, event: str) -> None:
            super().note(event)
            if event == method:
                getattr(self.transport, end)()

    async def main() -> None:
        protocol = Ends()
        async with connected(protocol, SOCKET_BUFFER_BYTES) as (transport, peer):
            transport.write(data)
            received = await peer.receive_all()
            await protocol.until_lost()
            assert protocol.events.count("connection_lost") == 1
            assert protocol.events[-1] == "connection_lost"
            assert protocol.reason is None
            if end == "close":
                assert received == data
            else:
                assert data.startswith(received)

    run(main())


def test_refilling_in_resume_writing_goes_on(run: Run) -> None:
    rounds = 5
    data = pattern(500_000)

    class Refills(Recorder):
        left = rounds

        def resume_writing(self) -> None:
            super().resume_writing()
            self.refill()

        def refill(self) -> None:
            while self.left and "pause" not in self.events[-1]:
                self.left -= 1
                self.transport.write(data)
            if not self.left:
                self.transport.close()

    async def main() -> None:
        protocol = Refills()
        async with connected(protocol, SOCKET_BUFFER_BYTES) as (_, peer):
            protocol.refill()
            assert await peer.receive_all() == rounds * data
            await protocol.until_lost()

    run(main())


def test_no_resume_after_abort(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected(protocol, SOCKET_BUFFER_BYTES) as (transport, _):
            transport.write(bytes(MORE_THAN_THE_KERNEL_TAKES))
            transport.abort()
            await protocol.until_lost()
            assert protocol.events == ["connection_made", "pause_writing", "connection_lost"]

    run(main())


def test_drain_waits_for_the_peer(run: Run) -> None:
    async def main() -> None:
        ours, theirs = socket_pair(SOCKET_BUFFER_BYTES)
        theirs.setblocking(False)
        _, writer = await asyncio.open_connection(sock=ours)
        await writer.drain()
        writer.write(bytes(MORE_THAN_THE_KERNEL_TAKES))
        draining = asyncio.ensure_future(writer.drain())
        await a_few_turns()
        assert not draining.done()
        received = 0

        def drained() -> bool:
            nonlocal received
            while True:
                try:
                    received += len(theirs.recv(1 << 16))
                except BlockingIOError:
                    return draining.done()

        await support.wait_until(drained, "drain()")
        await draining
        writer.close()
        theirs.close()
        assert received
        with contextlib.suppress(ConnectionError):  # the rest may be on its way or not
            await writer.wait_closed()

    run(main())


def test_drain_raises_when_the_peer_is_gone(run: Run) -> None:
    async def main() -> None:
        ours, theirs = socket_pair(SOCKET_BUFFER_BYTES)
        _, writer = await asyncio.open_connection(sock=ours)
        writer.write(bytes(MORE_THAN_THE_KERNEL_TAKES))
        draining = asyncio.ensure_future(writer.drain())
        await a_few_turns()
        theirs.close()
        with pytest.raises(ConnectionError):
            await draining
        writer.close()
        with pytest.raises(ConnectionError):
            await writer.wait_closed()

    run(main())


@pytest.mark.parametrize("later", [b"", b"and more"])
def test_what_the_kernel_has_room_for_is_no_reason_to_pause(run: Run, later: bytes) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected(protocol) as (transport, peer):
            transport.write(b"x")
            transport.set_write_buffer_limits(0)
            if later:
                transport.write(later)
            assert await peer.receive(1 + len(later)) == b"x" + later
            await a_few_turns()
            assert "pause_writing" not in protocol.events

    run(main())


def test_a_writer_with_a_limit_of_nothing_is_not_held_back_for_ever(run: Run) -> None:
    async def main() -> None:
        async def handle(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"x")
            writer.transport.set_write_buffer_limits(0)
            for _ in range(10):
                writer.write(b"y")
                await writer.drain()
            writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await support.within(reader.read()) == b"x" + b"y" * 10
        writer.close()
        server.close()
        await support.within(server.wait_closed())

    run(main())
