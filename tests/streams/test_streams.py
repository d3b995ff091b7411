"""`ringloop.open_connection` and its kin, on every loop: on asyncio's own they are asyncio's."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import random
import socket
import weakref
from collections import abc
from typing import TYPE_CHECKING, Any

import pytest

import ringloop
from ringloop import _native
from tests import support
from tests.support.streams import closed, connected, echo, is_ours, serving, until_alone
from tests.support.tcp import pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from tests.support.tls import Certificates

    Run = Callable[[Coroutine[Any, Any, Any]], Any]
    Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]

SEED = int(os.environ.get("RINGLOOP_TEST_SEED", str(random.SystemRandom().randrange(1 << 32))))


def test_classes_are_asyncios(run: Run) -> None:
    async def main() -> None:
        async with connected() as (reader, writer, _peer):
            assert isinstance(reader, asyncio.StreamReader)
            assert isinstance(writer, asyncio.StreamWriter)
            assert isinstance(writer._protocol, asyncio.StreamReaderProtocol)
            assert (type(reader) is _native.StreamReader) is is_ours()
            assert (type(writer) is _native.StreamWriter) is is_ours()
            assert reader._transport is writer.transport is writer._protocol._transport
            assert writer.transport.get_protocol() is writer._protocol
            assert reader._loop is writer._loop is asyncio.get_running_loop()
            assert repr(reader).startswith("<StreamReader transport=<")
            assert repr(writer).startswith("<StreamWriter transport=<")

    run(main())


def test_echo_over_tcp(run: Run) -> None:
    async def main() -> None:
        async with serving(echo) as port:
            reader, writer = await ringloop.open_connection("127.0.0.1", port)
            for size in (1, 100, 5_000, 300_000, 3 << 20):
                data = pattern(size)
                writer.write(data)
                received, _ = await asyncio.gather(reader.readexactly(size), writer.drain())
                assert received == data
                assert type(received) is bytes
            writer.write_eof()
            assert await reader.read() == b""
            assert reader.at_eof()
            await closed(writer)

    run(main())


def test_echo_over_unix(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "socket"
        server = await ringloop.start_unix_server(echo, path)
        reader, writer = await ringloop.open_unix_connection(path)
        writer.writelines([b"one\n", bytearray(b"two\n"), memoryview(b"three")])
        writer.write_eof()
        assert [line async for line in reader] == [b"one\n", b"two\n", b"three"]
        await closed(writer)
        await until_alone()
        server.close()
        await server.wait_closed()

    run(main())


def test_echo_over_tls(run: Run, certificates: Certificates, tls_engine: str) -> None:
    async def main() -> None:
        async with serving(echo, ssl=certificates.server()) as port:
            reader, writer = await ringloop.open_connection(
                "127.0.0.1", port, ssl=certificates.client(), server_hostname="localhost"
            )
            for size in (1, 100, 5_000, 300_000, 3 << 20):
                data = pattern(size)
                writer.write(data)
                received, _ = await asyncio.gather(reader.readexactly(size), writer.drain())
                assert received == data
            writer.write(b"a line\n")
            assert await reader.readline() == b"a line\n"
            assert writer.get_extra_info("ssl_object").version() is not None
            await closed(writer)

    run(main())


def test_start_tls_on_both_sides(run: Run, certificates: Certificates, tls_engine: str) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readline() == b"STARTTLS\n"
        writer.write(b"go\n")
        await writer.start_tls(certificates.server())
        await echo(reader, writer)

    async def main() -> None:
        async with serving(handle) as port:
            reader, writer = await ringloop.open_connection("127.0.0.1", port)
            writer.write(b"STARTTLS\n")
            assert await reader.readline() == b"go\n"
            await writer.start_tls(certificates.client(), server_hostname="localhost")
            data = pattern(500_000)
            writer.write(data)
            received, _ = await asyncio.gather(reader.readexactly(len(data)), writer.drain())
            assert received == data
            assert writer.get_extra_info("sslcontext") is not None
            await closed(writer)

    run(main())


def plan(chance: random.Random, data: bytes) -> list[tuple[str, tuple[Any, ...], bytes]]:
    """Return calls that read `data` to its end, each with its result."""
    calls: list[tuple[str, tuple[Any, ...], bytes]] = []
    at = 0
    while at < len(data):
        name = chance.choice(["readexactly", "readexactly", "readline", "readuntil"])
        if name == "readexactly":
            count = min(len(data) - at, int(2 ** chance.uniform(0, 18)))
            calls.append((name, (count,), data[at : at + count]))
            at += count
            continue
        separator = b"\n" if name == "readline" else chance.choice([b"\n", b"\n\x01", b"\x07\x08"])
        found = data.find(separator, at)
        if found < 0:
            break
        arguments = () if name == "readline" else (separator,)
        end = found + len(separator)
        calls.append((name, arguments, data[at:end]))
        at = end
    calls.append(("read", (-1,), data[at:]))
    return calls


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_random_calls_over_sockets(run: Run, certificates: Certificates, secure: bool) -> None:
    async def main() -> None:
        chance = random.Random(f"{SEED} {secure}")
        texts = [bytes(chance.choices(range(12), k=chance.randrange(1, 600_000))) for _ in range(4)]

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            text = texts[int(await reader.readline())]
            cuts = random.Random(f"{SEED} cuts")
            at = 0
            while at < len(text):
                size = int(2 ** cuts.uniform(0, 17))
                writer.write(text[at : at + size])
                at += size
                if cuts.random() < 0.3:
                    await writer.drain()
                if cuts.random() < 0.2:
                    await asyncio.sleep(0)
            await closed(writer)

        server: dict[str, Any] = {"ssl": certificates.server()} if secure else {}
        client: dict[str, Any] = {}
        if secure:
            client = {"ssl": certificates.client(), "server_hostname": "localhost"}
        async with serving(handle, **server) as port:
            for number, text in enumerate(texts):
                reader, writer = await ringloop.open_connection(
                    "127.0.0.1", port, limit=1 << 20, **client
                )
                writer.write(b"%d\n" % number)
                for name, arguments, wanted in plan(chance, text):
                    found = await getattr(reader, name)(*arguments)
                    assert found == wanted, f"RINGLOOP_TEST_SEED={SEED} {name}{arguments}"
                await closed(writer)

    run(main())


def test_half_close_and_abort(run: Run) -> None:
    async def main() -> None:
        async with connected() as (reader, writer, peer):
            await peer.send(b"last words")
            peer.shut_down()
            assert await reader.read() == b"last words"
            writer.write(b"still open")
            await writer.drain()
            assert await peer.receive(10) == b"still open"
            assert writer.can_write_eof()
            writer.write_eof()
            assert await peer.receive_all() == b""
        async with connected() as (reader, writer, peer):
            waiting = asyncio.ensure_future(reader.readexactly(10))
            await asyncio.sleep(0)
            await peer.send(b"12345")
            peer.shut_down()
            with pytest.raises(asyncio.IncompleteReadError) as caught:
                await waiting
            assert (caught.value.partial, caught.value.expected) == (b"12345", 10)
        async with connected() as (reader, writer, peer):
            waiting = asyncio.ensure_future(reader.read(10))
            await asyncio.sleep(0)
            peer.reset()
            with pytest.raises(ConnectionResetError):
                await waiting
            with pytest.raises(ConnectionResetError):
                await writer.drain()
            with pytest.raises(ConnectionResetError):
                await reader.readline()
            assert isinstance(reader.exception(), ConnectionResetError)
            with pytest.raises(ConnectionResetError):
                await writer.wait_closed()

    run(main())


@pytest.mark.parametrize("again", [("readexactly", 20_000), ("readexactly", 5), ("read", 5)])
def test_read_after_one_that_was_woken_and_cancelled(run: Run, again: tuple[str, int]) -> None:
    """What the first waited for is not what the second waits for."""

    async def main() -> None:
        async with connected() as (reader, _writer, peer):
            waiting = asyncio.ensure_future(reader.readexactly(200_000))
            await support.wait_until(lambda: reader._waiter is not None)
            reader._wakeup_waiter()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            name, count = again
            second = asyncio.ensure_future(getattr(reader, name)(count))
            await support.wait_until(lambda: reader._waiter is not None)
            await peer.send(pattern(count))
            assert await support.within(second) == pattern(count)

    run(main())


@pytest.mark.parametrize("count", [10, 200_000])
def test_cancelled_read_loses_no_byte(run: Run, count: int) -> None:
    async def main() -> None:
        async with connected() as (reader, _writer, peer):
            data = pattern(count)
            sent = 0
            for part in range(4):
                waiting = asyncio.ensure_future(reader.readexactly(count))
                await asyncio.sleep(0)
                end = count * (part + 1) // 5
                await peer.send(data[sent:end])
                sent = end
                await asyncio.sleep(0)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(waiting, 0.02)
            rest = asyncio.ensure_future(peer.send(data[sent:]))
            assert await reader.readexactly(count) == data
            await rest
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.readline(), 0.01)
            await peer.send(b"line\n")
            assert await support.within(reader.readline()) == b"line\n"

    run(main())


def test_cancelled_read_to_the_end_gives_back_what_it_has(run: Run) -> None:
    """Asyncio's loses that."""

    async def main() -> None:
        if not is_ours():
            return
        async with connected(limit=4) as (reader, _writer, peer):
            waiting = asyncio.ensure_future(reader.read())
            await asyncio.sleep(0)
            await peer.send(b"first")
            await support.wait_until(lambda: reader._waiter is not None)
            await peer.send(b"second")
            await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            peer.shut_down()
            assert await reader.read() == b"firstsecond"

    run(main())


def test_calls_are_coroutines(run: Run) -> None:
    async def main() -> None:
        async with connected() as (reader, writer, peer):
            await peer.send(b"abcdefgh\nij\n")
            call = reader.read(1)
            assert asyncio.iscoroutine(call)
            assert isinstance(call, abc.Coroutine)
            assert call.__qualname__ == "StreamReader.read"
            assert repr(asyncio.ensure_future(reader.read(0))).startswith("<Task pending")
            await asyncio.sleep(0)
            assert await asyncio.create_task(call) == b"a"
            with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
                await call
            assert await asyncio.ensure_future(reader.readexactly(2)) == b"bc"
            assert await asyncio.wait_for(reader.readuntil(b"e"), 30) == b"de"
            assert await asyncio.shield(reader.read(1)) == b"f"
            first, second = await asyncio.gather(reader.readline(), reader.__anext__())
            assert (first, second) == (b"gh\n", b"ij\n")
            async with asyncio.timeout(30), asyncio.TaskGroup() as group:
                reading = group.create_task(reader.read(5))
                drained = group.create_task(writer.drain())
                await peer.send(b"12")
            assert (reading.result(), drained.result()) == (b"12", None)
            # Closed without a step, it takes nothing.
            unused = reader.read(5)
            unused.close()
            await peer.send(b"3")
            assert await reader.read(5) == b"3"
            # A task that is cancelled before its first step takes nothing either.
            task = asyncio.create_task(reader.read(5))
            await peer.send(b"4")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await reader.read(5) == b"4"

    run(main())


def test_call_that_is_never_awaited_warns(run: Run) -> None:
    async def main() -> None:
        async with connected() as (reader, _writer, _peer):
            with pytest.warns(RuntimeWarning, match=r"'StreamReader.readline' was never awaited"):
                reader.readline()
                gc.collect()

    run(main())


def test_wait_that_is_dropped_frees_the_reader(run: Run) -> None:
    async def main() -> None:
        async with connected() as (reader, _writer, peer):
            call = reader.readexactly(100_000)
            call.send(None)
            with pytest.raises(RuntimeError, match="another coroutine is already waiting"):
                await reader.read(1)
            await peer.send(b"x")
            await support.wait_until(lambda: "1 bytes" in repr(reader))
            del call
            gc.collect()
            assert await reader.read(10) == b"x"

    run(main())


def test_reading_is_paused_and_resumed_by_the_limit(run: Run) -> None:
    async def main() -> None:
        async with connected(limit=1000) as (reader, writer, peer):
            data = pattern(2 << 20)
            sending = asyncio.ensure_future(peer.send(data))
            await support.wait_until(lambda: not writer.transport.is_reading())
            assert not sending.done()
            assert reader._paused
            assert len(reader._buffer) > 2000
            received = bytearray()
            while len(received) < len(data):
                received += await reader.read(700)
            assert received == data
            await sending
            assert writer.transport.is_reading()

    run(main())


def test_line_longer_than_the_limit(run: Run) -> None:
    async def main() -> None:
        async with connected(limit=10) as (reader, _writer, peer):
            await peer.send(b"0123456789abcdef\nnext\n")
            with pytest.raises(ValueError, match="chunk is longer than limit"):
                await reader.readline()
            assert await reader.readline() == b"next\n"
            await peer.send(b"x" * 30)
            with pytest.raises(asyncio.LimitOverrunError) as caught:
                await reader.readuntil(b"!")
            assert caught.value.consumed > 10

    run(main())


def test_drain_waits_for_the_peer(run: Run) -> None:
    async def main() -> None:
        async with connected() as (_reader, writer, peer):
            data = pattern(4 << 20)
            writer.write(data)
            draining = [asyncio.ensure_future(writer.drain()) for _ in range(3)]
            await asyncio.sleep(0.01)
            assert not any(task.done() for task in draining)
            assert await peer.receive(len(data)) == data
            await support.within(asyncio.gather(*draining))
            writer.write(data)
            waiting = asyncio.ensure_future(writer.drain())
            await asyncio.sleep(0)
            peer.reset()
            with pytest.raises(ConnectionResetError):
                await support.within(waiting)
            with pytest.raises(ConnectionResetError):
                await writer.drain()

    run(main())


def test_writer_is_closing_and_closed(run: Run) -> None:
    async def main() -> None:
        async with connected() as (reader, writer, peer):
            assert not writer.is_closing()
            writer.write(b"goodbye")
            writer.close()
            assert writer.is_closing()
            await writer.wait_closed()
            assert await peer.receive_all() == b"goodbye"
            assert await reader.read() == b""
            with pytest.raises(ConnectionResetError, match="Connection lost"):
                await writer.drain()

    run(main())


def test_reader_that_is_gone_takes_nothing(run: Run) -> None:
    async def main() -> None:
        async with connected(limit=100) as (reader, writer, peer):
            gone = weakref.ref(reader)
            writer._reader = None
            del reader
            gc.collect()
            if gone() is None:
                # More than the kernel's buffers: somebody takes it.
                await support.within(peer.send(pattern(1 << 20)))

    run(main())


def test_readers_without_a_loop_of_ours() -> None:
    """A native reader works on any loop."""

    async def main() -> None:
        reader = _native.StreamReader(limit=10)
        waiting = asyncio.ensure_future(reader.readexactly(30_000))
        await asyncio.sleep(0)
        reader.feed_data(b"x" * 20_000)
        reader.feed_data(b"y" * 20_000)
        assert await waiting == b"x" * 20_000 + b"y" * 10_000
        reader.feed_eof()
        assert await reader.read() == b"y" * 10_000
        with pytest.raises(AssertionError, match="feed_data after feed_eof"):
            reader.feed_data(b"z")
        with pytest.raises(ValueError, match="Limit cannot be <= 0"):
            _native.StreamReader(limit=0)

    loop = asyncio.SelectorEventLoop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


def test_many_connections_at_once(run: Run) -> None:
    async def talk(port: int, number: int) -> None:
        chance = random.Random(number)
        reader, writer = await ringloop.open_connection("127.0.0.1", port)
        for _ in range(10):
            data = pattern(chance.randrange(1, 40_000))
            writer.write(data)
            await writer.drain()
            assert await reader.readexactly(len(data)) == data
        await closed(writer)

    async def main() -> None:
        async with serving(echo, backlog=100) as port:
            await asyncio.gather(*map(functools.partial(talk, port), range(60)))

    run(main())


def test_connection_refused(run: Run) -> None:
    async def main() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            with pytest.raises(ConnectionRefusedError):
                await ringloop.open_connection(*unused.getsockname())

    run(main())
