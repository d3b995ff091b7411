"""Debug mode logs what asyncio's loop logs of a connection, on every kind of stream."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests import support

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.tls import Certificates

# Both ends of one connection, each of which reads until the other's end.
PHRASES = {
    "tcp": {"is serving": 1, "got a new connection from": 1, "connected to": 1, "received EOF": 2},
    "unix": {"got a new connection from": 1, "received EOF": 2},
    "tls": {
        "is serving": 1,
        "got a new connection from": 1,
        "connected to": 1,
        "starts SSL handshake": 2,
        "SSL handshake took": 2,
    },
}


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.readexactly(1))
    if writer.can_write_eof():
        await reader.read()
        writer.write_eof()
    writer.close()


async def converse(kind: str, tmp_path: Path, certificates: Certificates) -> None:
    """Make a connection, send a byte each way, and end it from both sides."""
    tls = kind == "tls"
    if kind == "unix":
        path = str(tmp_path / "server")
        server = await asyncio.start_unix_server(answer, path)
        reader, writer = await asyncio.open_unix_connection(path)
    else:
        server = await asyncio.start_server(
            answer, "127.0.0.1", 0, ssl=certificates.server() if tls else None
        )
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection(
            "127.0.0.1",
            port,
            ssl=certificates.client() if tls else None,
            server_hostname="localhost" if tls else None,
        )
    writer.write(b"x")
    if writer.can_write_eof():
        writer.write_eof()
    assert await reader.read() == b"x"
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("kind", PHRASES)
def test_life_of_a_connection_is_logged(
    loop: Any,
    kind: str,
    tmp_path: Path,
    certificates: Certificates,
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop.set_debug(True)
    with caplog.at_level(logging.DEBUG, "asyncio"):
        loop.run_until_complete(support.within(converse(kind, tmp_path, certificates)))
    loop.set_debug(False)
    # As they were then: their objects have changed.
    lines = [record.message for record in caplog.records if record.name == "asyncio"]
    phrases = PHRASES[kind]
    seen = Counter(phrase for line in lines for phrase in phrases if phrase in line)
    assert seen == phrases, lines
    (accepted,) = (line for line in lines if "got a new" in line)
    peer = "''" if kind == "unix" else r"\('127\.0\.0\.1', \d+\)"
    assert re.match(
        rf"<Server sockets=.* got a new connection from {peer}: <socket\.socket fd=", accepted
    )


def test_nothing_is_logged_outside_of_debug_mode(
    loop: Any, tmp_path: Path, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "asyncio"):
        loop.run_until_complete(support.within(converse("tcp", tmp_path, certificates)))
    lines = [record.message for record in caplog.records]
    assert not [line for line in lines if "connect" in line or "EOF" in line]


SLOW_SECONDS = 0.03


class Slow(asyncio.Protocol, asyncio.DatagramProtocol):
    """Takes long in one of its methods."""

    def __init__(self, method: str) -> None:
        self.method = method

    def called(self, method: str) -> None:
        if method == self.method:
            time.sleep(SLOW_SECONDS)

    def connection_made(self, _: asyncio.BaseTransport) -> None:
        self.called("connection_made")

    def data_received(self, _: bytes) -> None:
        self.called("received")

    def datagram_received(self, _data: bytes, _address: Any) -> None:
        self.called("received")

    def eof_received(self) -> None:
        self.called("eof_received")

    def connection_lost(self, _: Exception | None) -> None:
        self.called("connection_lost")


async def live(kind: str, method: str) -> None:
    """Make a transport with such a protocol, have it receive, and close it."""
    loop = asyncio.get_running_loop()
    transport: Any
    if kind == "pipe":
        read, write = os.pipe()
        transport, _ = await loop.connect_read_pipe(lambda: Slow(method), os.fdopen(read, "rb", 0))
        os.write(write, b"x")
        await asyncio.sleep(0.01)
        os.close(write)
    elif kind == "datagrams":
        address = ("127.0.0.1", 0)
        transport, _ = await loop.create_datagram_endpoint(lambda: Slow(method), local_addr=address)
        transport.sendto(b"x", transport.get_extra_info("sockname"))
    else:
        ours, theirs = socket.socketpair()
        transport, _ = await loop.create_connection(lambda: Slow(method), sock=ours)
        theirs.send(b"x")
        await asyncio.sleep(0.01)
        theirs.close()
    await asyncio.sleep(SLOW_SECONDS + 0.02)
    transport.close()
    await asyncio.sleep(SLOW_SECONDS + 0.02)


METHODS = ("connection_made", "received", "eof_received", "connection_lost")
LIVES = [(kind, method) for kind in ("stream", "pipe", "datagrams") for method in METHODS]
LIVES.remove(("datagrams", "eof_received"))


@pytest.mark.parametrize(("kind", "method"), LIVES)
def test_slow_method_of_a_protocol_is_logged(
    loop: Any, kind: str, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    loop.set_debug(True)
    loop.slow_callback_duration = SLOW_SECONDS
    with caplog.at_level(logging.WARNING, "asyncio"):
        loop.run_until_complete(support.within(live(kind, method)))
    loop.set_debug(False)
    lines = [record.message for record in caplog.records]
    slow = [line for line in lines if re.match(r"Executing <.*> took 0\.\d+ seconds", line)]
    assert slow, lines
    if method == "connection_made":
        assert any("Handle Slow.connection_made(<" in line for line in slow), lines
