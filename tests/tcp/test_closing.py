"""How a TCP connection ends, from this side and from the peer's."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import socket
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import (
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


# --- closing --------------------------------------------------------------------------------------


def test_close_flushes(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        data = pattern(MORE_THAN_THE_KERNEL_TAKES)
        async with connected(protocol, SOCKET_BUFFER_BYTES) as (transport, peer):
            transport.write(data)
            transport.close()
            assert transport.is_closing()
            assert not protocol.is_lost
            assert await peer.receive_all() == data
            await protocol.until_lost()
            assert protocol.reason is None
            assert protocol.events.count("connection_lost") == 1

    run(main())


@pytest.mark.parametrize("count", [1, 2, 3])
def test_close_is_idempotent(run: Run, count: int) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected(protocol) as (transport, peer):
            for _ in range(count):
                transport.close()
            assert protocol.events == ["connection_made"]  # never from inside close()
            assert await peer.receive_all() == b""
            await protocol.until_lost()
            transport.close()
            transport.abort()
            await asyncio.sleep(0)
            assert protocol.events == ["connection_made", "connection_lost"]

    run(main())


def test_abort_drops_unsent_data(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected(protocol, SOCKET_BUFFER_BYTES) as (transport, peer):
            transport.write(bytes(MORE_THAN_THE_KERNEL_TAKES))
            assert transport.get_write_buffer_size() > 0
            transport.abort()
            assert transport.is_closing()
            assert transport.get_write_buffer_size() == 0
            await protocol.until_lost()
            assert protocol.reason is None
            assert len(await peer.receive_all()) < MORE_THAN_THE_KERNEL_TAKES
            assert protocol.events.count("connection_lost") == 1

    run(main())


def test_abort_after_close_drops_the_rest(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected(protocol, SOCKET_BUFFER_BYTES) as (transport, _):
            transport.write(bytes(MORE_THAN_THE_KERNEL_TAKES))
            transport.close()
            transport.abort()
            await protocol.until_lost()
            assert protocol.events.count("connection_lost") == 1

    run(main())


def test_written_and_closed_in_one_callback_arrives(run: Run) -> None:
    class Once(Recorder):
        def data_received(self, data: bytes) -> None:
            self.transport.write(b"bye")
            self.transport.close()
            self.transport.write(
                b"never"
            )  # everything before close() has been sent: asyncio drops this

    async def main() -> None:
        protocol = Once()
        async with connected(protocol) as (_, peer):
            await peer.send(b"go")
            assert await peer.receive_all() == b"bye"
            await protocol.until_lost()

    run(main())


def test_close_in_data_received_stops_delivery(run: Run) -> None:
    class Closes(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.note("closed")
            self.transport.close()

    async def main() -> None:
        protocol = Closes()
        async with connected(protocol) as (_, peer):
            # More than one receive, so that data is in flight while the first part is delivered.
            await peer.send(bytes(200_000))
            await protocol.until_lost()
            assert protocol.events == [
                "connection_made",
                "data_received",
                "closed",
                "connection_lost",
            ]
            assert protocol.reason is None

    run(main())


def test_writes_after_the_loss_are_silent_then_logged(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected(protocol) as (transport, _):
            transport.abort()
            await protocol.until_lost()
            with caplog.at_level(logging.WARNING, "asyncio"):
                for _ in range(4):
                    transport.write(b"x")
                assert not caplog.records
                transport.write(b"x")
                transport.write(b"")
                transport.write(b"x")
            assert [record.getMessage() for record in caplog.records] == [
                "socket.send() raised exception.",
                "socket.send() raised exception.",
            ]

    run(main())


def test_transport_is_usable_after_the_loss(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected(protocol) as (transport, _):
            transport.close()
            await protocol.until_lost()
            await closed(transport)
            transport.write(b"x")
            transport.pause_reading()
            transport.resume_reading()
            assert transport.is_closing()
            assert not transport.is_reading()
            assert transport.get_write_buffer_size() == 0
            assert "closed" in repr(transport)

    run(main())


def test_writes_in_connection_lost_are_dropped(run: Run, loop_name: str) -> None:
    class Insistent(Recorder):
        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self.transport.write(b"late")
            if loop_name != support.ORACLE:  # since 3.12, asyncio raises inside
                self.transport.writelines([b"later"])
            self.transport.write_eof()
            self.transport.close()
            self.transport.abort()

    async def main() -> None:
        protocol = Insistent()
        async with connected(protocol) as (transport, peer):
            transport.close()
            assert await peer.receive_all() == b""
            await protocol.until_lost()
            await asyncio.sleep(0)
            assert protocol.events.count("connection_lost") == 1

    run(main())


def test_close_before_connection_made_still_calls_both(loop: asyncio.AbstractEventLoop) -> None:
    ours, theirs = socket_pair()

    class Closes(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            transport.close()

    async def main() -> None:
        transport, protocol = await loop.create_connection(Closes, sock=ours)
        assert transport.is_closing()
        await protocol.until_lost()
        await closed(transport)
        assert protocol.events == ["connection_made", "connection_lost"]

    with theirs:
        loop.run_until_complete(main())


def test_fin_is_sent_if_the_loop_stops_after_connection_lost(
    loop: asyncio.AbstractEventLoop,
) -> None:
    ours, theirs = socket_pair()

    async def main() -> None:
        protocol = Recorder()
        transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
        lost = loop.create_future()
        protocol.connection_lost = lost.set_result  # type: ignore[method-assign,assignment]
        transport.close()
        await lost

    loop.run_until_complete(main())
    with theirs:
        theirs.settimeout(support.PATIENCE_SECONDS)
        assert theirs.recv(10) == b""


def test_protocol_is_released_after_connection_lost(run: Run) -> None:
    async def main() -> None:
        protocol: Recorder | None = Recorder()
        assert protocol is not None
        seen = weakref.ref(protocol)
        async with connected(protocol) as (transport, _):
            protocol.transport = None
            transport.close()
            await protocol.until_lost()
            await closed(transport)
            assert transport.get_protocol() is None
            protocol = None

        def collected() -> bool:
            gc.collect()
            return seen() is None

        await support.wait_until(collected, "the protocol to be collected")

    async def outer() -> None:
        await main()

    run(outer())


def test_protocol_is_still_set_in_connection_lost(run: Run) -> None:
    class Looks(Recorder):
        def connection_lost(self, exc: Exception | None) -> None:
            self.seen = (self.transport.get_protocol(), self.transport.is_closing())
            super().connection_lost(exc)

    async def main() -> None:
        protocol = Looks()
        async with connected(protocol) as (transport, _):
            transport.close()
            await protocol.until_lost()
            assert protocol.seen == (protocol, True)

    run(main())


# --- what the peer does ---------------------------------------------------------------------------


def test_peer_closes(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected(protocol) as (_, peer):
            await peer.send(b"last words")
            peer.close()
            await protocol.until_lost()
            assert protocol.data == b"last words"
            assert protocol.reason is None
            assert protocol.events == [
                "connection_made",
                "data_received",
                "eof_received",
                "connection_lost",
            ]

    run(main())


def test_data_and_end_in_one_batch_come_in_order(loop: asyncio.AbstractEventLoop) -> None:
    ours, theirs = socket_pair()
    theirs.sendall(pattern(100_000))
    theirs.shutdown(socket.SHUT_WR)

    async def main() -> None:
        transport, protocol = await loop.create_connection(Recorder, sock=ours)
        await protocol.until_lost()
        await closed(transport)
        assert protocol.data == pattern(100_000)
        assert protocol.events[-2:] == ["eof_received", "connection_lost"]

    with theirs:
        loop.run_until_complete(main())


def test_true_from_eof_received_keeps_the_writing_side(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        protocol.keep_open_after_eof = True
        async with connected(protocol) as (transport, peer):
            peer.shut_down()
            await support.wait_until(lambda: "eof_received" in protocol.events, "eof_received")
            assert not transport.is_closing()
            transport.write(b"answer")
            assert await peer.receive(6) == b"answer"
            assert protocol.events == ["connection_made", "eof_received"]
            transport.close()
            assert await peer.receive_all() == b""
            await protocol.until_lost()
            assert protocol.reason is None

    run(main())


def test_peer_reset(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected(protocol) as (transport, peer):
            peer.reset()
            await protocol.until_lost()
            assert isinstance(protocol.reason, ConnectionResetError)
            assert protocol.reason.errno == errno.ECONNRESET
            assert protocol.events == ["connection_made", "connection_lost"]
            assert transport.is_closing()

    run(main())


def test_peer_reset_while_sending(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected(protocol, SOCKET_BUFFER_BYTES) as (transport, peer):
            transport.write(bytes(MORE_THAN_THE_KERNEL_TAKES))
            await peer.receive(1000)
            peer.reset()
            await protocol.until_lost()
            assert isinstance(protocol.reason, (ConnectionResetError, BrokenPipeError))
            assert transport.get_write_buffer_size() == 0
            assert protocol.events.count("connection_lost") == 1

    run(main())


def test_writing_to_a_closed_peer_ends_the_connection(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        protocol.keep_open_after_eof = True
        async with connected(protocol) as (transport, peer):
            peer.close()
            await support.wait_until(lambda: "eof_received" in protocol.events, "eof_received")

            def lost() -> bool:
                transport.write(b"x" * 100)
                return protocol.is_lost

            await support.wait_until(lost, "connection_lost")
            assert isinstance(protocol.reason, (ConnectionResetError, BrokenPipeError))

    run(main())
