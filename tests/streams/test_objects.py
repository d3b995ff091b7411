"""Readers and writers as Python objects, and where asyncio's names lead to them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import warnings
import weakref
from typing import TYPE_CHECKING, Any

import pytest

import ringloop
from ringloop import _native
from tests import support
from tests.support.streams import closed, connected, echo, is_ours, serving, until_alone
from tests.support.tcp import socket_pair

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]
    Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def test_buffer_is_a_live_bytearray(run: Run) -> None:
    async def main() -> None:
        async with connected() as (reader, _writer, peer):
            await peer.send(b"abc")
            await support.wait_until(lambda: len(reader._buffer) == 3)
            buffer = reader._buffer
            assert type(buffer) is bytearray
            buffer.extend(b"def\n")
            del buffer[:1]
            assert await reader.readexactly(2) == b"bc"
            await peer.send(b"ghi")
            await support.wait_until(lambda: buffer == b"def\nghi")
            assert await reader.readline() == b"def\n"
            assert await reader.read(100) == b"ghi"
            assert buffer == b""
            await peer.send(b"more")
            assert await reader.readexactly(4) == b"more"

    run(main())


def test_attributes_may_be_set(run: Run) -> None:
    async def main() -> None:
        async with connected() as (reader, writer, peer):
            reader._limit = 4
            await peer.send(b"123456\n")
            with pytest.raises(ValueError, match="longer than limit"):
                await reader.readline()
            reader._limit = 2**70
            await peer.send(b"123456\n")
            assert await reader.readline() == b"123456\n"
            assert reader._limit == 2**70
            error = ValueError("set")
            reader._exception = error
            with pytest.raises(ValueError, match="set"):
                await reader.read(1)
            reader._exception = None
            reader._eof = True
            assert await reader.read() == b""
            reader._eof = False
            reader.note, writer.note = "dictionary", "too"  # type: ignore[attr-defined]
            assert (vars(reader)["note"], vars(writer)["note"]) == ("dictionary", "too")
            # As libraries do that put TLS under a stream by themselves.
            other = asyncio.StreamWriter(
                writer.transport, writer._protocol, reader, asyncio.get_running_loop()
            )
            other.write(b"by another writer")
            await other.drain()
            assert await peer.receive(17) == b"by another writer"
            other._transport = type("Closed", (), {"is_closing": lambda self: True})()

    run(main())


def test_methods_may_be_replaced_on_an_instance(run: Run) -> None:
    """As pypresence does, which listens to events of a stream."""

    async def main() -> None:
        async with connected() as (reader, writer, peer):
            heard: list[bytes] = []
            feed = reader.feed_data

            def listen(data: bytes) -> None:
                heard.append(bytes(data))
                reader._buffer.extend(data)
                reader._wakeup_waiter()

            reader.feed_data = listen
            await peer.send(b"event\n")
            assert await support.within(reader.readline()) == b"event\n"
            assert heard == [b"event\n"]
            del reader.feed_data
            assert reader.feed_data == feed
            await peer.send(b"unheard\n")
            assert await support.within(reader.readline()) == b"unheard\n"
            writer._protocol.data_received = heard.append
            await peer.send(b"raw")
            await support.wait_until(lambda: heard == [b"event\n", b"raw"])
            del writer._protocol.data_received
            await peer.send(b"x")
            assert await support.within(reader.read(1)) == b"x"

    run(main())


def test_subclasses_of_the_reader(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()

        class Upper(_native.StreamReader):
            def feed_data(self, data: Any) -> None:
                super().feed_data(bytes(data).upper())

        reader = Upper(limit=100, loop=loop)
        protocol = _native.StreamReaderProtocol(reader, loop=loop)
        ours, theirs = socket_pair()
        ours.setblocking(False)
        transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
        with contextlib.closing(theirs):
            theirs.sendall(b"loud\n")
            assert await reader.readline() == b"LOUD\n"
        transport.close()
        assert await reader.read() == b""
        await protocol._get_close_waiter(None)  # type: ignore[attr-defined]

    run(main())


def test_callback_may_be_a_function(run: Run) -> None:
    async def main() -> None:
        seen: list[Pair] = []
        async with serving(lambda *pair: seen.append(pair)) as port:
            reader, writer = await ringloop.open_connection("127.0.0.1", port)
            await support.wait_until(lambda: seen)
            seen[0][1].write(b"hello")
            assert await reader.readexactly(5) == b"hello"
            await closed(seen[0][1])
            await closed(writer)

    run(main())


@pytest.mark.loop_errors
def test_exception_in_the_callback_is_reported(run: Run) -> None:
    async def handle(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        raise ZeroDivisionError("in the callback")

    async def main() -> None:
        contexts: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, ctx: contexts.append(ctx))
        async with serving(handle) as port:
            reader, writer = await ringloop.open_connection("127.0.0.1", port)
            assert await support.within(reader.read()) == b""
            await closed(writer)
        assert [type(context["exception"]) for context in contexts] == [ZeroDivisionError]
        assert contexts[0]["message"] == "Unhandled exception in client_connected_cb"

    run(main())


def test_unclosed_writer_warns(run: Run) -> None:
    async def main() -> None:
        ours, theirs = socket_pair()
        ours.setblocking(False)
        reader, writer = await ringloop.open_connection(sock=ours)
        with contextlib.closing(theirs), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            gone = weakref.ref(writer)
            del writer
            gc.collect()
            assert gone() is None
            # Since 3.11.5 and 3.12: before, the transport alone warns.
            theirs.settimeout(30)
            await support.wait_until(lambda: reader.at_eof())
        if hasattr(asyncio.StreamWriter, "__del__"):
            assert any(
                issubclass(one.category, ResourceWarning) and "unclosed" in str(one.message)
                for one in caught
            )

    run(main())


@pytest.mark.one_thread("asyncio has its names once a process")
def test_patching_asyncio_and_undoing_it(loop_factory: support.LoopFactory) -> None:
    names = ("open_connection", "start_server", "open_unix_connection", "start_unix_server")
    before = [getattr(place, name) for place in (asyncio, asyncio.streams) for name in names]
    ringloop.use_fast_streams()
    try:
        for name in names:
            assert getattr(asyncio, name) is getattr(asyncio.streams, name)
            assert getattr(asyncio, name) is getattr(ringloop, name)

        async def main() -> None:
            server = await asyncio.start_server(echo, "127.0.0.1", 0)
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            assert isinstance(reader, _native.StreamReader) is is_ours()
            writer.write(b"x")
            assert await reader.read(1) == b"x"
            await closed(writer)
            await until_alone()
            server.close()
            await server.wait_closed()

        loop = loop_factory()
        loop.run_until_complete(main())
        loop.close()
        ringloop.use_fast_streams()
    finally:
        ringloop.use_fast_streams(False)
    after = [getattr(place, name) for place in (asyncio, asyncio.streams) for name in names]
    assert after == before


def test_environment_turns_them_off(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with connected() as (reader, _writer, _peer):
            assert type(reader) is asyncio.StreamReader

    monkeypatch.setenv("RINGLOOP_FAST_STREAMS", "0")
    run(main())
    monkeypatch.setenv("RINGLOOP_FAST_STREAMS", "yes")

    async def refused() -> None:
        if is_ours():
            with pytest.raises(ValueError, match='RINGLOOP_FAST_STREAMS must be "1"'):
                await ringloop.open_connection("127.0.0.1", 1)

    run(refused())
