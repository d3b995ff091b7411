"""Datagram endpoints of the tests: a recording protocol, and an endpoint that is closed at the end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, None]], None]

# Both since 3.13: "Changed in version 3.13" of DatagramTransport.sendto.
SENDS_EMPTY = sys.version_info >= (3, 13)
HEADER_LEN = 8 if SENDS_EMPTY else 0
LARGEST = 65507  # an IPv4 datagram's payload
BURST = 10_000


class Recorder(asyncio.DatagramProtocol):
    """Records the callbacks."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.calls: list[str] = []
        self.received: list[tuple[bytes, Any]] = []
        self.errors: list[Exception] = []
        self.lost: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.calls.append("made")
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.received.append((data, addr))

    def error_received(self, exc: Exception) -> None:
        self.errors.append(exc)

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, exc: BaseException | None) -> None:
        self.calls.append("lost")
        self.lost.set_result(exc)

    @property
    def data(self) -> list[bytes]:
        return [data for data, _ in self.received]


class Echo(Recorder):
    def datagram_received(self, data: bytes, addr: Any) -> None:
        super().datagram_received(data, addr)
        self.transport.sendto(data, addr)


@contextlib.asynccontextmanager
async def endpoint(factory: type[Recorder] = Recorder, **options: Any) -> AsyncIterator[Any]:
    """An endpoint, closed at the end; on 127.0.0.1 unless the options say otherwise."""
    if not options:
        options["local_addr"] = ("127.0.0.1", 0)
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_datagram_endpoint(factory, **options)
    try:
        yield protocol
    finally:
        if not protocol.lost.done():
            transport.abort()
        await within(asyncio.shield(protocol.lost))


def name_of(protocol: Recorder) -> Any:
    return protocol.transport.get_extra_info("sockname")


_numbers = itertools.count()


def unix_pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets with names: asyncio ignores peers without a name."""
    pair = [socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2)]
    for sock in pair:
        sock.bind(b"\0ringloop-pair-%d-%d" % (os.getpid(), next(_numbers)))
    left, right = pair
    left.connect(right.getsockname())
    right.connect(left.getsockname())
    return left, right


def fill(transport: Any, until: Callable[[], bool]) -> int:
    """Send 100 bytes repeatedly; return how often."""
    for count in range(BURST):
        if until():
            return count
        transport.sendto(bytes(100))
    pytest.fail("the socket never filled up")
