"""Flow control for writing on TCP transports: pausing, resuming and limits."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import (
    MORE_THAN_THE_KERNEL_TAKES,
    SOCKET_BUFFER_BYTES,
    Recorder,
    a_few_turns,
    connected,
    pattern,
    socket_pair,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]


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
def test_invalid_limits(run: Run, arguments: dict[str, int]) -> None:
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


def test_size_counts_unsent_data(run: Run) -> None:
    async def main() -> None:
        async with connected(Recorder(), SOCKET_BUFFER_BYTES) as (transport, peer):
            assert transport.get_write_buffer_size() == 0
            transport.write(bytes(MORE_THAN_THE_KERNEL_TAKES))
            size = transport.get_write_buffer_size()
            assert 0 < size < MORE_THAN_THE_KERNEL_TAKES
            transport.write(b"12345")
            assert transport.get_write_buffer_size() == size + 5
            transport.writelines([b"67", b"89"])
            # The call may send, and the kernel may have room again.
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
        with contextlib.suppress(ConnectionError):  # the rest may be in flight or not
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
def test_write_that_the_kernel_accepts_does_not_pause(run: Run, later: bytes) -> None:
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


def test_writer_with_a_limit_of_zero_is_resumed(run: Run) -> None:
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
