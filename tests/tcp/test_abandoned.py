"""Transports without references: paused ones are collected with a warning, reading ones stay alive.

asyncio's selector references a transport only while it reads or writes.
"""

from __future__ import annotations

import asyncio
import os
import socket
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.collected import is_collected, warnings_until_collected

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

KINDS = ["tcp", "unix", "buffered", "datagram"]

pytestmark = pytest.mark.one_thread("collection, warnings and descriptors are the process's")


class Plain(asyncio.Protocol):
    """Keeps its transport, as most protocols do: a reference cycle."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport


class Buffered(asyncio.BufferedProtocol):
    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return bytearray(100)


class Messages(asyncio.DatagramProtocol):
    def connection_made(self, transport: Any) -> None:
        self.transport = transport


def sockets(kind: str) -> tuple[socket.socket, socket.socket]:
    if kind == "tcp":
        with socket.create_server(("127.0.0.1", 0)) as listener:
            ours = socket.create_connection(listener.getsockname())
            theirs, _ = listener.accept()
    else:
        type_ = socket.SOCK_DGRAM if kind == "datagram" else socket.SOCK_STREAM
        ours, theirs = socket.socketpair(type=type_)
    ours.setblocking(False)
    theirs.setblocking(False)
    return ours, theirs


async def made(kind: str, ours: socket.socket) -> Any:
    loop = asyncio.get_running_loop()
    if kind == "datagram":
        return (await loop.create_datagram_endpoint(Messages, sock=ours))[0]
    factory = Buffered if kind == "buffered" else Plain
    return (await loop.create_connection(factory, sock=ours))[0]


async def warned(seen: weakref.ref[Any]) -> None:
    texts = await warnings_until_collected(seen)
    assert any("unclosed transport" in text for text in texts)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("when", ["at once", "later", "with bytes", "again"])
def test_paused_transport_is_collected(run: Run, kind: str, when: str) -> None:
    async def main() -> None:
        ours, theirs = sockets(kind)
        number = ours.fileno()
        transport = await made(kind, ours)
        if when != "at once":
            await asyncio.sleep(0.005)
        transport.pause_reading()
        if when == "again":
            await asyncio.sleep(0.005)
            transport.resume_reading()
            await asyncio.sleep(0.005)
            transport.pause_reading()
        if when == "with bytes":
            theirs.send(b"bytes")
        await asyncio.sleep(0.005)
        seen = weakref.ref(transport)
        del transport, ours
        await warned(seen)
        assert number not in support.open_descriptors()
        theirs.close()

    run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_transport_that_reads_again_is_kept(run: Run, kind: str) -> None:
    async def main() -> None:
        ours, theirs = sockets(kind)
        transport = await made(kind, ours)
        transport.pause_reading()
        await asyncio.sleep(0.005)
        transport.resume_reading()
        seen = weakref.ref(transport)
        del transport, ours
        for _ in range(3):
            await asyncio.sleep(0.002)
            assert not is_collected(seen)
        kept: Any = seen()
        number = kept.get_extra_info("socket").fileno()
        kept.abort()
        await support.wait_until(lambda: number not in support.open_descriptors(), "the end")
        theirs.close()

    run(main())


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_paused_transport_is_kept_until_its_bytes_are_sent(run: Run, kind: str) -> None:
    async def main() -> None:
        ours, theirs = sockets(kind)
        loop = asyncio.get_running_loop()
        transport = await made(kind, ours)
        transport.pause_reading()
        transport.write(bytes(8 << 20))
        assert transport.get_write_buffer_size()
        seen = weakref.ref(transport)
        del transport, ours
        await asyncio.sleep(0.005)
        assert not is_collected(seen)
        left = 8 << 20
        while left:
            left -= len(await loop.sock_recv(theirs, 1 << 20))
        await warned(seen)
        assert await loop.sock_recv(theirs, 1) == b""
        theirs.close()

    run(main())


def test_paused_pipe_is_collected(run: Run) -> None:
    async def main() -> None:
        reads, writes = os.pipe()
        loop = asyncio.get_running_loop()
        transport = (await loop.connect_read_pipe(Plain, os.fdopen(reads, "rb", 0)))[0]
        transport.pause_reading()
        await asyncio.sleep(0.005)
        seen = weakref.ref(transport)
        del transport
        await warned(seen)
        os.close(writes)

    run(main())
