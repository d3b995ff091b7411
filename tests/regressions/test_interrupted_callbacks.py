"""An exception that leaves the loop between a completed step and its follow-up.

`tests/injection` found connections that waited forever: TLS whose `get_buffer` or `connection_made` was
interrupted, with undelivered records or an unsent answer and no further input; and a pipe or a datagram
endpoint that was closing when `resume_writing` was interrupted. asyncio's own wait there, too.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from tests.support.tls import Certificates

OURS = [name for name in support.LOOPS if name != support.ORACLE]
EACH_OF_OURS = pytest.mark.parametrize("loop_name", OURS, indirect=True)


def run_again(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any]) -> int:
    """Run until `work` is done, again after each interrupt; return the number of interrupts."""
    task = loop.create_task(work)
    interrupts = 0
    while not task.done():
        try:
            loop.run_until_complete(task)
        except KeyboardInterrupt:
            interrupts += 1
    task.result()
    return interrupts


class Fragile:
    """Raises in the first call of one callback; records when the connection is lost."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls: list[str] = []
        self.data = bytearray()
        self.buffer = bytearray(100)
        self.transport: Any = None

    def step(self, name: str) -> None:
        self.calls.append(name)
        if name == self.name:
            self.name = ""
            raise KeyboardInterrupt

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.step("connection_made")

    def eof_received(self) -> None:
        self.step("eof_received")

    def connection_lost(self, error: Exception | None) -> None:
        assert error is None
        self.step("connection_lost")

    def pause_writing(self) -> None:
        self.step("pause_writing")

    def resume_writing(self) -> None:
        self.step("resume_writing")


class FragileData(Fragile, asyncio.Protocol):
    def data_received(self, data: bytes) -> None:
        self.data += data
        self.step("data_received")


class FragileBuffer(Fragile, asyncio.BufferedProtocol):
    def get_buffer(self, sizehint: int) -> bytearray:
        self.step("get_buffer")
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self.buffer[:nbytes]
        self.step("buffer_updated")


async def lost(*protocols: Fragile) -> None:
    await support.wait_until(
        lambda: all("connection_lost" in protocol.calls for protocol in protocols), "the end"
    )


@EACH_OF_OURS
@pytest.mark.parametrize("which", ["client", "server"])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(
            (FragileData, name)
            for name in ("data_received", "connection_made", "eof_received", "connection_lost")
        ),
        *((FragileBuffer, name) for name in ("get_buffer", "buffer_updated")),
    ],
)
def test_tls_continues_after_an_interrupted_callback(
    loop: asyncio.AbstractEventLoop,
    certificates: Certificates,
    kind: Callable[[str], Any],
    name: str,
    which: str,
) -> None:
    client = kind(name if which == "client" else "")
    served = kind(name if which == "server" else "")
    data = pattern(2000)

    async def talk() -> None:
        server = await loop.create_server(lambda: served, "127.0.0.1", 0, ssl=certificates.server())
        await loop.create_connection(
            lambda: client,
            *server.sockets[0].getsockname(),
            ssl=certificates.client(),
            server_hostname="localhost",
        )
        await support.wait_until(lambda: served.transport is not None, "the server's side")
        client.transport.write(data)
        served.transport.write(data)
        await support.wait_until(lambda: client.data == data and served.data == data, "all bytes")
        # The other side answers the close_notify.
        (served if which == "client" else client).transport.close()
        await lost(client, served)
        server.close()

    assert run_again(loop, talk()) == 1
    assert client.data == data
    assert served.data == data
    for protocol in (client, served):
        for once in ("connection_made", "eof_received", "connection_lost"):
            assert protocol.calls.count(once) <= 1, protocol.calls


@EACH_OF_OURS
def test_pipe_closes_after_an_interrupted_resume(loop: asyncio.AbstractEventLoop) -> None:
    protocol, reading = FragileData("resume_writing"), FragileData("")
    reads, writes = os.pipe()

    async def write() -> None:
        transport, _ = await loop.connect_write_pipe(lambda: protocol, os.fdopen(writes, "wb", 0))
        transport.write(pattern(1 << 20))
        transport.close()
        await loop.connect_read_pipe(lambda: reading, os.fdopen(reads, "rb", 0))
        await lost(protocol, reading)

    assert run_again(loop, write()) == 1
    assert reading.data == pattern(1 << 20)


@EACH_OF_OURS
def test_datagram_endpoint_closes_after_an_interrupted_resume(
    loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    class Messages(FragileData, asyncio.DatagramProtocol):
        pass

    protocol = Messages("resume_writing")
    # asyncio sends only to peers that have a name.
    ours, theirs = (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2))
    theirs.bind(str(tmp_path / "theirs"))
    ours.connect(str(tmp_path / "theirs"))
    ours.setblocking(False)
    theirs.setblocking(False)

    async def send() -> None:
        transport, _ = await loop.create_datagram_endpoint(lambda: protocol, sock=ours)
        transport.set_write_buffer_limits(high=0)
        sent = 0
        while not transport.get_write_buffer_size():
            assert not transport.is_closing()
            transport.sendto(b"m" * 1000)
            sent += 1
        transport.close()
        while sent:
            await loop.sock_recv(theirs, 1000)
            sent -= 1
        await lost(protocol)

    assert run_again(loop, send()) == 1
    theirs.close()
