"""Debug mode logs what asyncio's loop logs of a connection, on every kind of stream."""

from __future__ import annotations

import asyncio
import logging
import re
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
