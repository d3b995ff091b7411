"""Sockets of the loop in Rust futures of another extension, and the buffers of their operations."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import native_threads, wait_until, within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from ringloop import Loop

    Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def send_back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve as an echo server."""
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


@contextlib.asynccontextmanager
async def serving(serve: Serve = send_back) -> AsyncIterator[str]:
    """Serve on this loop; the address. At the end connections that are open are closed."""
    tasks: set[asyncio.Task[Any]] = set()

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if task := asyncio.current_task():
            tasks.add(task)
        try:
            # 3.11 reports a task of its streams that ends by a cancel.
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await serve(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(served, "127.0.0.1")
    try:
        yield "{}:{}".format(*server.sockets[0].getsockname())
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


@pytest.mark.one_thread("counts the process's threads")
def test_client_in_rust_needs_no_thread(ring: Loop, echo: Any) -> None:
    async def main() -> None:
        async with serving() as address:
            before = native_threads()
            client = await echo.connect(address)
            for size in (1, 100, 65_536, 1_000_000):
                data = os.urandom(size)
                assert await within(client.echo(data)) == data
            assert await within(client.echo_often(b"again", 100)) == b"again"
            # One of an earlier test may have ended meanwhile.
            assert native_threads() <= before
            del client
            gc.collect()

    ring.run_until_complete(main())


def test_several_clients_at_once(ring: Loop, echo: Any) -> None:
    async def client(address: str, number: int) -> None:
        client = await echo.connect(address)
        for count in range(20):
            data = b"%d %d" % (number, count)
            assert await client.echo(data) == data

    async def main() -> None:
        async with serving() as address:
            await within(asyncio.gather(*(client(address, number) for number in range(20))))

    ring.run_until_complete(main())


def test_vectors_are_bytes(ring: Loop, probe: Any) -> None:
    async def main() -> None:
        async with serving() as address:
            assert await within(probe.fetch(address, b"request")) == b"request"

    ring.run_until_complete(main())


def test_errors_are_pythons(ring: Loop, echo: Any) -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            address = "{}:{}".format(*closed.getsockname())
        with pytest.raises(ConnectionRefusedError, match="Connection refused"):
            await within(echo.connect(address))
        with pytest.raises(OSError, match=r"invalid socket address|invalid port|lookup"):
            await within(echo.connect("no port"))
        async with serving(hang_up) as address:
            client = await echo.connect(address)
            with pytest.raises(OSError, match="unexpected end of file"):
                await within(client.echo(b"x"))
            # The error's traceback has this frame: a collection in another thread would find it there.
            del client

    ring.run_until_complete(main())


def test_name_is_looked_up(ring: Loop, echo: Any) -> None:
    async def main() -> None:
        async with serving() as address:
            client = await echo.connect("localhost:" + address.rpartition(":")[2])
            assert await within(client.echo(b"by name")) == b"by name"

    ring.run_until_complete(main())


def test_cancelled_read_takes_its_operation_along(ring: Loop, echo: Any) -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def main() -> None:
        async with serving(say_nothing) as address:
            client = await echo.connect(address)
            for _ in range(100):
                task = asyncio.ensure_future(client.echo(b"x"))
                await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            del client, task
            gc.collect()

    ring.run_until_complete(within(main()))


@pytest.mark.one_thread("counts the buffers of the process")
def test_buffer_of_a_dropped_write_is_freed_once_it_has_ended(ring: Loop, probe: Any) -> None:
    received = bytearray()
    ended = asyncio.Event()

    async def read_slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.1)
        while data := await reader.read(1 << 16):
            received.extend(data)
        ended.set()

    async def main() -> None:
        async with serving(read_slowly) as address:
            await within(probe.start("write and drop", address))
            await within(wait_until(lambda: probe.live() == 0))
            await within(ended.wait())

    ring.run_until_complete(main())
    # What the peer has got is what was written, not what the memory was used for later.
    assert len(received) < 16 << 20
    assert set(received) == {0x55}


def test_memory_of_a_dropped_read_is_not_used_for_anything_else(ring: Loop, probe: Any) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(4):
            writer.write(b"\x55" * 4096)

    async def main() -> None:
        async with serving(answer) as address:
            assert await within(probe.start("read and drop", address)) == 0

    ring.run_until_complete(main())


def test_other_descriptors_by_their_readiness(ring: Loop, probe: Any) -> None:
    async def main() -> None:
        assert await within(probe.start("datagram", None)) == b"second"
        assert await within(probe.start("accept", None)) == b"hello"

    ring.run_until_complete(main())


def test_close_ends_what_is_in_flight(ring: Loop, echo: Any) -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read() == b"x"

    async def main() -> None:
        async with serving(say_nothing) as address:
            client = await echo.connect(address)
            in_flight = client.echo(b"x")
            await asyncio.sleep(0)
            client.close()
            with pytest.raises(OSError, match="unexpected end of file"):
                await within(in_flight)
            with pytest.raises(BrokenPipeError):
                await within(client.echo(b"y"))
            del client

    ring.run_until_complete(main())


def test_client_may_outlive_the_loop(ring: Loop, echo: Any) -> None:
    async def main(address: str) -> tuple[Any, Any]:
        client = await echo.connect(address)
        in_flight = client.echo(b"x")
        await asyncio.sleep(0)
        return client, in_flight

    # Nothing accepts: the reply never comes.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = "{}:{}".format(*listener.getsockname())
        client, in_flight = ring.run_until_complete(main(address))
        ring.close()
        assert not in_flight.done()
        with pytest.raises(RuntimeError, match="no event loop runs"):
            client.echo(b"x")
        with listener.accept()[0] as served:
            assert served.recv(100) == b"x"
            del client, in_flight
            gc.collect()
            served.settimeout(10)
            assert served.recv(100) == b""
