"""Connecting to a Unix listener with a full backlog waits for room."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import ORACLE, wait_until, within

if TYPE_CHECKING:
    from collections.abc import Iterator

Run = Any


@pytest.fixture(autouse=True)
def beyond_the_oracle(loop_name: str) -> None:
    if loop_name == ORACLE:
        pytest.skip("asyncio reports success on a socket that is not connected")


@pytest.fixture(params=[socket.SOCK_STREAM, socket.SOCK_SEQPACKET], ids=lambda kind: kind.name)
def full(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, str]]:
    """A listener with a full backlog, and its path."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as cleanup:
        path = f"{folder}/s"
        listener = cleanup.enter_context(socket.socket(socket.AF_UNIX, request.param))
        listener.bind(path)
        listener.listen(0)
        listener.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                client = cleanup.enter_context(socket.socket(socket.AF_UNIX, request.param))
                client.setblocking(False)
                client.connect(path)
        yield listener, path


def drained(listener: socket.socket) -> int:
    """Accept and close the pending connections; return their number."""
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            listener.accept()[0].close()
            count += 1
    return count


def client_of(listener: socket.socket) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, listener.type)
    client.setblocking(False)
    return client


def test_connect_waits_for_room_in_the_backlog(loop: Any, run: Run, full: Any) -> None:
    async def main() -> None:
        listener, path = full
        with client_of(listener) as client:
            connecting = asyncio.ensure_future(loop.sock_connect(client, path))
            done, _ = await asyncio.wait([connecting], timeout=0.02)
            assert not done
            assert drained(listener)
            await within(connecting)
            assert client.getpeername() == path

    run(main())


def test_cancelled_connect_leaves_the_socket_unchanged(loop: Any, run: Run, full: Any) -> None:
    async def main() -> None:
        listener, path = full
        with client_of(listener) as client:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(loop.sock_connect(client, path), 0.01)
            drained(listener)
            with pytest.raises(OSError, match="not connected"):
                client.getpeername()
            await within(loop.sock_connect(client, path))
            assert client.getpeername() == path

    run(main())


def test_closed_listener_ends_the_wait(loop: Any, run: Run, full: Any) -> None:
    async def main() -> None:
        listener, path = full
        with client_of(listener) as client:
            connecting = asyncio.ensure_future(loop.sock_connect(client, path))
            await asyncio.sleep(0)
            listener.close()
            with pytest.raises(ConnectionRefusedError):
                await within(connecting)

    run(main())


def test_more_clients_than_the_backlog_are_all_served(loop: Any, run: Run) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        await writer.drain()
        writer.close()

    async def ask(path: str, number: int) -> None:
        reader, writer = await asyncio.open_unix_connection(path)
        assert writer.get_extra_info("peername") == path
        writer.write(b"%d\n" % number)
        assert await reader.readline() == b"%d\n" % number
        writer.close()
        await writer.wait_closed()

    async def main() -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/s"
            server = await asyncio.start_unix_server(greet, path, backlog=1)
            await within(asyncio.gather(*(ask(path, number) for number in range(30))))
            server.close()
            await server.wait_closed()

    run(main())


def test_create_unix_connection_waits_for_room(loop: Any, run: Run, full: Any) -> None:
    async def main() -> None:
        listener, path = full
        if listener.type != socket.SOCK_STREAM:
            pytest.skip("create_unix_connection makes streams")
        making = asyncio.ensure_future(loop.create_unix_connection(asyncio.Protocol, path))
        done, _ = await asyncio.wait([making], timeout=0.02)
        assert not done
        await wait_until(lambda: drained(listener) or making.done())
        transport, _ = await within(making)
        assert transport.get_extra_info("peername") == path
        transport.abort()
        await asyncio.sleep(0)

    run(main())
