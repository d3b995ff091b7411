"""A TCP transport: writing, ending, what it shows of itself, and faults in its protocol."""

from __future__ import annotations

import asyncio
import contextvars
import errno
import gc
import logging
import socket
import sys
import time
import warnings
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.tcp import (
    MORE_THAN_THE_KERNEL_TAKES,
    SOCKET_BUFFER_BYTES,
    Peer,
    Recorder,
    closed,
    connected,
    exceptions_of,
    pattern,
    socket_pair,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]


# --- writing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_write_takes_every_buffer(run: Run, kind: Callable[[bytes], Any]) -> None:
    async def main() -> None:
        async with connected(Recorder()) as (transport, peer):
            transport.write(kind(b"hello"))
            assert await peer.receive(5) == b"hello"

    run(main())


@pytest.mark.parametrize("value", ["text", 7, None, ["list"]])
def test_write_refuses_what_is_not_bytes(run: Run, value: object) -> None:
    async def main() -> None:
        async with connected(Recorder()) as (transport, peer):
            with pytest.raises(TypeError):
                transport.write(value)
            transport.write(b"still works")
            assert await peer.receive(11) == b"still works"

    run(main())


def test_arguments_by_name(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected(protocol) as (transport, peer):
            transport.write(data=b"a")
            transport.writelines(list_of_data=[b"b", b"c"])
            transport.set_protocol(protocol=protocol)
            assert await peer.receive(3) == b"abc"
            given: Any = transport
            for method, arguments, names in (
                (given.write, (), {}),
                (given.write, (b"x",), {"data": b"y"}),
                (given.write, (b"x", b"y"), {}),
                (given.write, (), {"dta": b"x"}),
                (given.writelines, (), {}),
                (given.set_protocol, (), {}),
                (given.close, (1,), {}),
                (given.pause_reading, (1,), {}),
                (given.abort, (), {"now": True}),
            ):
                with pytest.raises(TypeError):
                    method(*arguments, **names)
            assert not transport.is_closing()

    run(main())


def test_writes_keep_their_order(run: Run) -> None:
    async def main() -> None:
        sizes = [1, 3, 70_000, 5, 16 * 1024, 1, 40_000, 2, 9]
        pieces = [pattern(size, seed) for seed, size in enumerate(sizes)]
        async with connected(Recorder(), SOCKET_BUFFER_BYTES) as (transport, peer):
            for piece in pieces:
                transport.write(piece)
            assert await peer.receive(sum(sizes)) == b"".join(pieces)

    run(main())


def test_many_small_writes_keep_their_order(run: Run) -> None:
    async def main() -> None:
        expected = b"".join(b"%06d" % number for number in range(20_000))
        async with connected(Recorder(), SOCKET_BUFFER_BYTES) as (transport, peer):
            for number in range(20_000):
                transport.write(b"%06d" % number)
            assert await peer.receive(len(expected)) == expected

    run(main())


def test_large_write_arrives_whole(run: Run) -> None:
    async def main() -> None:
        data = pattern(MORE_THAN_THE_KERNEL_TAKES)
        async with connected(Recorder(), SOCKET_BUFFER_BYTES) as (transport, peer):
            transport.write(data)
            assert await peer.receive(len(data)) == data

    run(main())


def skip_where_asyncio_keeps_a_view(loop_name: str, size: int) -> None:
    if (
        loop_name == support.ORACLE
        and sys.version_info >= (3, 12)
        and size == MORE_THAN_THE_KERNEL_TAKES
    ):
        pytest.skip("asyncio keeps a view of what it could not send at once, since 3.12")


@pytest.mark.parametrize("size", [5, 20_000, MORE_THAN_THE_KERNEL_TAKES])
def test_bytearray_may_change_after_write(run: Run, loop_name: str, size: int) -> None:
    skip_where_asyncio_keeps_a_view(loop_name, size)

    async def main() -> None:
        data = pattern(size)
        mutable = bytearray(data)
        async with connected(Recorder(), SOCKET_BUFFER_BYTES) as (transport, peer):
            transport.write(mutable)
            mutable[:] = b"\0" * size
            mutable.clear()  # would raise BufferError if the transport still held it
            assert await peer.receive(size) == data

    run(main())


@pytest.mark.parametrize("size", [5, 20_000, MORE_THAN_THE_KERNEL_TAKES])
def test_memory_under_a_view_may_change_after_write(run: Run, loop_name: str, size: int) -> None:
    skip_where_asyncio_keeps_a_view(loop_name, size)

    async def main() -> None:
        data = pattern(size)
        owner = bytearray(data)
        view = memoryview(owner)
        async with connected(Recorder(), SOCKET_BUFFER_BYTES) as (transport, peer):
            transport.write(view[1:-1])
            owner[:] = b"\0" * size
            view.release()
            assert await peer.receive(size - 2) == data[1:-1]

    run(main())


def test_write_of_nothing_is_nothing(run: Run) -> None:
    async def main() -> None:
        async with connected(Recorder()) as (transport, peer):
            for nothing in (b"", bytearray(), memoryview(b"")):
                transport.write(nothing)
            assert transport.get_write_buffer_size() == 0
            transport.write(b"x")
            assert await peer.receive(1) == b"x"

    run(main())


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        [b""],
        [b"a", bytearray(b"b"), memoryview(b"c")],
        [b"", b"a", b"", b"b"],
        [b"%d" % number for number in range(5000)],
        [pattern(300_000), b"x", pattern(1_000_000)],
    ],
    ids=["none", "empty", "kinds", "holes", "many", "large"],
)
def test_writelines_sends_all_in_order(run: Run, pieces: list[Any]) -> None:
    async def main() -> None:
        async with connected(Recorder(), SOCKET_BUFFER_BYTES) as (transport, peer):
            transport.write(b"<")
            transport.writelines(pieces)
            transport.write(b">")
            expected = b"<" + b"".join(pieces) + b">"
            assert await peer.receive(len(expected)) == expected

    run(main())


def test_writelines_takes_an_iterator(run: Run) -> None:
    async def main() -> None:
        async with connected(Recorder()) as (transport, peer):
            transport.writelines(b"%d" % number for number in range(4))
            assert await peer.receive(4) == b"0123"

    run(main())


def test_write_inside_data_received_is_sent(run: Run) -> None:
    class Echo(Recorder):
        def data_received(self, data: bytes) -> None:
            self.transport.write(data)

    async def main() -> None:
        async with connected(Echo(), SOCKET_BUFFER_BYTES) as (_, peer):
            for size in (1, 100, 50_000):
                data = pattern(size)
                await peer.send(data)
                assert await peer.receive(size) == data

    run(main())


def test_write_is_sent_before_the_loop_returns(loop: asyncio.AbstractEventLoop) -> None:
    ours, theirs = socket_pair()

    async def main() -> Any:
        transport, _ = await loop.create_connection(Recorder, sock=ours)
        transport.write(b"sent")
        return transport

    transport = loop.run_until_complete(main())
    with theirs:
        theirs.settimeout(5)
        assert theirs.recv(10) == b"sent"
    transport.abort()
    loop.run_until_complete(closed(transport))


# --- end of writing -------------------------------------------------------------------------------


def test_write_eof_sends_fin_after_the_data(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        data = pattern(MORE_THAN_THE_KERNEL_TAKES)
        async with connected(protocol, SOCKET_BUFFER_BYTES) as (transport, peer):
            assert transport.can_write_eof() is True
            transport.write(data)
            transport.write_eof()
            transport.write_eof()
            assert await peer.receive_all() == data
            await peer.send(b"answer")
            await support.wait_until(lambda: protocol.data, "the answer")
            assert protocol.data == b"answer"
            assert not transport.is_closing()

    run(main())


def test_write_eof_alone_sends_fin(run: Run) -> None:
    async def main() -> None:
        async with connected(Recorder()) as (transport, peer):
            transport.write_eof()
            assert await peer.receive_all() == b""

    run(main())


def test_write_after_write_eof_raises(run: Run) -> None:
    async def main() -> None:
        async with connected(Recorder()) as (transport, _):
            transport.write_eof()
            with pytest.raises(RuntimeError, match=r"write\(\) after write_eof"):
                transport.write(b"x")
            if sys.version_info >= (3, 12):
                with pytest.raises(RuntimeError, match=r"after write_eof"):
                    transport.writelines([b"x"])

    run(main())


def test_write_eof_then_close_flushes(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        data = pattern(MORE_THAN_THE_KERNEL_TAKES)
        async with connected(protocol, SOCKET_BUFFER_BYTES) as (transport, peer):
            transport.write(data)
            transport.write_eof()
            transport.close()
            assert await peer.receive_all() == data
            await protocol.until_lost()
            assert protocol.reason is None

    run(main())


def test_write_eof_after_close_is_silent(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected(protocol) as (transport, _):
            transport.close()
            transport.write_eof()
            await protocol.until_lost()
            transport.write_eof()

    run(main())


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


def test_abort_drops_what_was_not_sent(run: Run) -> None:
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
            )  # everything before close() has gone out: asyncio drops this

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
            # Many receives' worth, so that more is on its way while the first is delivered.
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


def test_writes_in_connection_lost_go_nowhere(run: Run, loop_name: str) -> None:
    class Insistent(Recorder):
        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self.transport.write(b"late")
            if loop_name != support.ORACLE:  # since 3.12, asyncio fails inside
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


def test_close_before_connection_made_still_tells_both(loop: asyncio.AbstractEventLoop) -> None:
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


def test_fin_is_sent_though_the_loop_stops_after_the_loss(
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
        theirs.settimeout(5)
        assert theirs.recv(10) == b""


def test_protocol_is_let_go_after_the_loss(run: Run) -> None:
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


def test_protocol_is_still_there_in_connection_lost(run: Run) -> None:
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


def test_writing_to_a_peer_that_is_gone_ends_the_connection(run: Run) -> None:
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


# --- what it shows of itself ----------------------------------------------------------------------


def test_extra_info(run: Run) -> None:
    async def main() -> None:
        async with connected(Recorder()) as (transport, peer):
            sock = transport.get_extra_info("socket")
            assert type(sock).__name__ == "TransportSocket"
            assert type(sock).__module__ == "asyncio.trsock"
            assert sock.fileno() >= 0
            assert transport.get_extra_info("sockname") == peer.sock.getpeername()
            assert transport.get_extra_info("peername") == peer.sock.getsockname()
            assert transport.get_extra_info("nothing") is None
            assert transport.get_extra_info("nothing", 7) == 7

    run(main())


def test_extra_info_outlives_the_connection(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected(protocol) as (transport, peer):
            name = peer.sock.getsockname()
            transport.close()
            await protocol.until_lost()
            assert transport.get_extra_info("peername") == name

    run(main())


def test_nagle_is_off(run: Run) -> None:
    async def main() -> None:
        async with connected(Recorder()) as (transport, _):
            sock = transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0

    run(main())


def test_is_a_true_transport(run: Run) -> None:
    async def main() -> None:
        async with connected(Recorder()) as (transport, _):
            assert isinstance(transport, asyncio.Transport)
            assert isinstance(transport, asyncio.ReadTransport)
            assert isinstance(transport, asyncio.WriteTransport)
            given: Any = transport
            assert given._start_tls_compatible is True
            given.anything = 5
            assert given.__dict__["anything"] == 5
            assert {given: 1}[given] == 1
            assert weakref.ref(given)() is given
            with pytest.raises(AttributeError):
                getattr(given, "nothing")  # noqa: B009 - the lookup is the test

    run(main())


def test_repr_names_descriptor_and_state(run: Run) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected(protocol, SOCKET_BUFFER_BYTES) as (transport, _):
            fd = transport.get_extra_info("socket").fileno()
            text = repr(transport)
            assert f"fd={fd}" in text
            assert "read=polling" in text
            assert "write=<idle, bufsize=0>" in text
            transport.pause_reading()
            assert "read=idle" in repr(transport)
            transport.write(bytes(MORE_THAN_THE_KERNEL_TAKES))
            assert "write=<polling, bufsize=" in repr(transport)
            transport.close()
            assert "closing" in repr(transport)

    run(main())


def test_set_protocol_in_the_middle(run: Run) -> None:
    async def main() -> None:
        first, second = Recorder(), Recorder()
        async with connected(first) as (transport, peer):
            await peer.send(b"one")
            await support.wait_until(lambda: first.data == b"one", "the first message")
            transport.set_protocol(second)
            assert transport.get_protocol() is second
            await peer.send(b"two")
            await support.wait_until(lambda: second.data == b"two", "the second message")
            peer.close()
            await second.until_lost()
            assert first.events == ["connection_made", "data_received"]
            assert second.events == ["data_received", "eof_received", "connection_lost"]

    run(main())


def test_set_protocol_inside_data_received(run: Run) -> None:
    second = Recorder()

    class Upgrades(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.set_protocol(second)

    async def main() -> None:
        first = Upgrades()
        async with connected(first) as (_, peer):
            data = pattern(300_000)
            await peer.send(data)
            await support.wait_until(
                lambda: len(first.data) + len(second.data) == len(data), "all bytes"
            )
            assert len(first.chunks) == 1
            assert first.data + second.data == data

    run(main())


def test_protocol_set_after_close_is_told_of_the_loss(run: Run) -> None:
    async def main() -> None:
        first, second = Recorder(), Recorder()
        async with connected(first) as (transport, _):
            transport.close()
            transport.set_protocol(second)
            await second.until_lost()
            assert first.events == ["connection_made"]
            assert second.events == ["connection_lost"]

    run(main())


# --- contexts -------------------------------------------------------------------------------------


def test_contexts_of_the_callbacks(run: Run) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")

    class Notes(Recorder):
        def note(self, event: str) -> None:
            super().note(f"{event} {variable.get()}")
            variable.set(event)

        def data_received(self, data: bytes) -> None:
            self.note("data_received")
            self.data += data

    async def main() -> None:
        variable.set("creator")
        protocol = Notes()
        async with connected(protocol) as (transport, peer):
            variable.set("later")
            await peer.send(b"1")
            await support.wait_until(lambda: protocol.data == b"1", "the first message")
            await peer.send(b"2")
            await support.wait_until(lambda: protocol.data == b"12", "the second message")
            variable.set("closer")
            transport.close()
            await support.wait_until(lambda: len(protocol.events) == 4, "connection_lost")
            assert protocol.events == [
                "connection_made creator",
                "data_received creator",
                "data_received data_received",
                "connection_lost closer",
            ]

    run(main())


# --- exceptions in callbacks ----------------------------------------------------------------------


class FaultError(Exception):
    """What the protocols of these tests raise."""


def faulty(method: str, error: BaseException) -> Recorder:
    """Make a recorder whose `method` notes itself and raises."""

    def raises(*_arguments: object) -> None:
        protocol.note(method)
        raise error

    protocol = Recorder()
    if method == "connection_made":
        original = protocol.connection_made

        def made(transport: asyncio.BaseTransport) -> None:
            original(transport)
            raise error

        protocol.connection_made = made  # type: ignore[method-assign]
    else:
        setattr(protocol, method, raises)
    return protocol


def test_exception_in_connection_made_is_reported(
    loop: asyncio.AbstractEventLoop, run: Run
) -> None:
    async def main() -> None:
        protocol = faulty("connection_made", FaultError())
        with exceptions_of(loop) as contexts:
            async with connected(protocol) as (transport, peer):
                assert isinstance(contexts[0]["exception"], FaultError)
                # The connection goes on.
                await peer.send(b"x")
                await support.wait_until(lambda: protocol.data, "the data")
                assert not transport.is_closing()
            assert len(contexts) == 1

    run(main())


def test_exception_in_data_received_ends_the_connection(
    loop: asyncio.AbstractEventLoop, run: Run
) -> None:
    async def main() -> None:
        error = FaultError()
        protocol = faulty("data_received", error)
        with exceptions_of(loop) as contexts:
            async with connected(protocol) as (transport, peer):
                await peer.send(bytes(200_000))
                await protocol.until_lost()
                assert protocol.reason is error
                assert protocol.events == ["connection_made", "data_received", "connection_lost"]
            (context,) = contexts
            assert context["exception"] is error
            assert context["message"] == "Fatal error: protocol.data_received() call failed."
            assert context["transport"] is transport
            assert context["protocol"] is protocol

    run(main())


def test_exception_in_eof_received_ends_the_connection(
    loop: asyncio.AbstractEventLoop, run: Run
) -> None:
    async def main() -> None:
        error = FaultError()
        protocol = faulty("eof_received", error)
        with exceptions_of(loop) as contexts:
            async with connected(protocol) as (_, peer):
                peer.shut_down()
                await protocol.until_lost()
                assert protocol.reason is error
            (context,) = contexts
            assert context["message"] == "Fatal error: protocol.eof_received() call failed."

    run(main())


def test_os_error_in_data_received_ends_the_connection_quietly(
    loop: asyncio.AbstractEventLoop, run: Run
) -> None:
    async def main() -> None:
        error = OSError(errno.ENOSPC, "no space")
        protocol = faulty("data_received", error)
        with exceptions_of(loop) as contexts:
            async with connected(protocol) as (_, peer):
                await peer.send(b"x")
                await protocol.until_lost()
                assert protocol.reason is error
            # asyncio treats every OSError as the connection's end, to be logged in debug mode only.
            assert contexts == []

    run(main())


@pytest.mark.parametrize("method", ["pause_writing", "resume_writing"])
def test_exception_in_flow_control_is_reported_and_harmless(
    loop: asyncio.AbstractEventLoop, run: Run, method: str
) -> None:
    async def main() -> None:
        error = FaultError()
        protocol = faulty(method, error)
        data = pattern(MORE_THAN_THE_KERNEL_TAKES)
        with exceptions_of(loop) as contexts:
            async with connected(protocol, SOCKET_BUFFER_BYTES) as (transport, peer):
                transport.write(data)
                assert await peer.receive(len(data)) == data
                await support.wait_until(
                    lambda: "resume_writing" in protocol.events, "resume_writing"
                )
                assert not transport.is_closing()
            (context,) = contexts
            assert context["exception"] is error
            assert context["message"] == f"protocol.{method}() failed"

    run(main())


def test_exception_in_connection_lost_is_reported_and_the_socket_closed(
    loop: asyncio.AbstractEventLoop, run: Run
) -> None:
    async def main() -> None:
        error = FaultError()
        protocol = faulty("connection_lost", error)
        with exceptions_of(loop) as contexts:
            async with connected(protocol) as (transport, peer):
                transport.close()
                assert await peer.receive_all() == b""
                await closed(transport)
            (context,) = contexts
            assert context["exception"] is error
            assert protocol.events.count("connection_lost") == 1

    run(main())


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("size", [1, 300_000])
def test_interrupt_in_data_received_leaves_the_loop_and_nothing_is_lost(
    loop: asyncio.AbstractEventLoop, error: type[BaseException], size: int
) -> None:
    ours, theirs = socket_pair()

    class Interrupted(Recorder):
        def data_received(self, data: bytes) -> None:
            first = not self.data
            super().data_received(data)
            if first:
                raise error

    protocol = Interrupted()
    ran: list[int] = []

    async def begin() -> Any:
        transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
        return transport

    async def rest(transport: Any, peer: Peer) -> None:
        await support.wait_until(lambda: len(protocol.data) == size + 4, "all bytes")
        assert protocol.data == pattern(size) + b"more"
        await support.wait_until(lambda: ran == [1, 2], "the other callbacks")
        transport.close()
        await closed(transport)
        peer.close()

    transport = loop.run_until_complete(begin())
    theirs.sendall(pattern(size))
    loop.call_soon(ran.append, 1)
    loop.call_later(0, ran.append, 2)
    with pytest.raises(error):
        loop.run_forever()
    theirs.sendall(b"more")
    loop.run_until_complete(rest(transport, Peer(theirs)))


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("method", ["connection_made", "connection_lost", "eof_received"])
def test_interrupt_in_other_callbacks_leaves_the_loop(
    loop: asyncio.AbstractEventLoop, error: type[BaseException], method: str
) -> None:
    ours, theirs = socket_pair()
    protocol = faulty(method, error())

    async def main() -> None:
        transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
        if method == "eof_received":
            theirs.shutdown(socket.SHUT_WR)
        else:
            transport.close()
        await asyncio.sleep(10)

    task = loop.create_task(main())
    with pytest.raises(error):
        loop.run_until_complete(task)
    setattr(protocol, method, lambda *_: protocol.note("again"))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    if method == "eof_received":
        # The end of the stream is not lost either.
        loop.run_until_complete(protocol.until_lost())
        assert protocol.events[-2:] == ["again", "connection_lost"]
    transport = protocol.transport
    transport.abort()
    loop.run_until_complete(closed(transport))
    theirs.close()


# --- faults of the user ---------------------------------------------------------------------------


def test_unclosed_transport_warns_when_its_loop_is_gone(loop_factory: support.LoopFactory) -> None:
    ours, theirs = socket_pair()
    loop = loop_factory()

    async def main() -> None:
        running = asyncio.get_running_loop()
        await running.create_connection(Recorder, sock=ours)

    loop.run_until_complete(main())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loop.close()
        del loop
        gc.collect()
    assert sum("unclosed transport" in str(warning.message) for warning in caught) == 1
    with theirs:
        theirs.settimeout(5)
        assert theirs.recv(10) == b""


def test_unclosed_transport_with_a_send_in_flight(loop_factory: support.LoopFactory) -> None:
    ours, theirs = socket_pair(SOCKET_BUFFER_BYTES)
    loop = loop_factory()

    async def main() -> None:
        running = asyncio.get_running_loop()
        transport, _ = await running.create_connection(Recorder, sock=ours)
        transport.write(bytes(MORE_THAN_THE_KERNEL_TAKES))
        await asyncio.sleep(0)

    loop.run_until_complete(main())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loop.close()
        del loop
        gc.collect()
    assert any("unclosed transport" in str(w.message) for w in caught)
    theirs.close()


def test_transport_of_a_closed_loop_is_harmless(loop_factory: support.LoopFactory) -> None:
    ours, theirs = socket_pair()
    loop = loop_factory()

    async def main() -> Any:
        running = asyncio.get_running_loop()
        transport, _ = await running.create_connection(Recorder, sock=ours)
        return transport

    transport = loop.run_until_complete(main())
    loop.close()
    assert "Transport" in repr(transport)
    with pytest.raises(RuntimeError, match="closed"):
        transport.close()
    assert transport.is_closing()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        del transport, loop
        gc.collect()
    theirs.close()


def test_closing_transport_on_a_closed_loop_lets_go(loop_factory: support.LoopFactory) -> None:
    ours, theirs = socket_pair()
    loop = loop_factory()

    async def main() -> None:
        running = asyncio.get_running_loop()
        transport, _ = await running.create_connection(Recorder, sock=ours)
        running.call_soon(transport.close)
        running.call_soon(running.stop)
        await asyncio.sleep(0)

    loop.run_until_complete(main())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loop.close()
        del loop
        gc.collect()
    with theirs:
        theirs.settimeout(5)
        assert theirs.recv(10) == b""


def test_descriptor_closed_under_the_transport(run: Run) -> None:
    async def main() -> None:
        ours, theirs = socket_pair()
        peer = Peer(theirs)
        protocol = Recorder()
        transport, _ = await asyncio.get_running_loop().create_connection(
            lambda: protocol, sock=ours
        )
        ours.close()
        transport.write(b"x")
        transport.abort()
        await protocol.until_lost()
        peer.close()

    run(main())


def test_descriptor_detached_under_the_transport(run: Run) -> None:
    async def main() -> None:
        ours, theirs = socket_pair()
        peer = Peer(theirs)
        protocol = Recorder()
        transport, _ = await asyncio.get_running_loop().create_connection(
            lambda: protocol, sock=ours
        )
        with socket.socket(fileno=ours.detach()) as detached:
            transport.abort()
            await protocol.until_lost()
            # What was detached is no longer the transport's to close.
            assert detached.fileno() >= 0
            detached.setblocking(True)
            detached.sendall(b"mine")
            assert await peer.receive(4) == b"mine"
        peer.close()

    run(main())


@pytest.mark.parametrize("method", ["add_reader", "add_writer"])
def test_descriptor_of_a_transport_is_not_for_watching(
    loop: asyncio.AbstractEventLoop, run: Run, method: str
) -> None:
    async def main() -> None:
        async with connected(Recorder()) as (transport, _):
            fd = transport.get_extra_info("socket").fileno()
            with pytest.raises(RuntimeError, match="is used by transport"):
                getattr(loop, method)(fd, lambda: None)
            with pytest.raises(RuntimeError, match="is used by transport"):
                getattr(loop, method.replace("add", "remove"))(fd)

    run(main())


def test_transport_is_freed_without_the_collector(loop_name: str, run: Run) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio's transport refers to itself")

    class Bare(asyncio.Protocol):
        pass

    async def main() -> None:
        ours, theirs = socket_pair()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(Bare, sock=ours)
        seen = weakref.ref(transport)
        transport.close()
        await closed(transport)
        theirs.close()
        del transport, ours
        await support.wait_until(lambda: seen() is None, "the transport to be freed", timeout=5)

    gc.disable()
    try:
        run(main())
    finally:
        gc.enable()


def test_paused_transport_that_nobody_holds(run: Run) -> None:
    """asyncio lets a paused transport be collected; whoever keeps it must close it in the end."""

    async def main() -> None:
        ours, theirs = socket_pair()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
        transport.pause_reading()
        seen = weakref.ref(transport)
        del transport, ours
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()
            if (kept := seen()) is not None:
                kept.abort()
                await closed(kept)
                del kept
            gc.collect()
        theirs.settimeout(5)
        assert theirs.recv(10) == b""
        theirs.close()

    run(main())


def test_many_connections_at_once(run: Run) -> None:
    count = 300

    async def main() -> None:
        loop = asyncio.get_running_loop()
        pairs = [socket_pair() for _ in range(count)]
        protocols = [Recorder() for _ in pairs]

        async def one(number: int) -> Any:
            transport, _ = await loop.create_connection(
                lambda: protocols[number], sock=pairs[number][0]
            )
            return transport

        transports = await asyncio.gather(*map(one, range(count)))
        for number, (_, theirs) in enumerate(pairs):
            theirs.sendall(pattern(40_000, number))
        time.sleep(0.01)  # noqa: ASYNC251 - the bytes shall all wait for the loop at once
        for _, theirs in pairs:
            theirs.shutdown(socket.SHUT_WR)
        for number, protocol in enumerate(protocols):
            await protocol.until_lost()
            assert protocol.data == pattern(40_000, number)
        await asyncio.gather(*map(closed, transports))
        for _, theirs in pairs:
            theirs.close()

    run(main())
