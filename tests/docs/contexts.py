"""What stands around a block of the documentation: the names that it uses, the peers that it talks to.

Each is an asynchronous context manager that gets the names of the block's program and fills them; what
follows its `yield` looks at what the block has left there.
"""

from __future__ import annotations

import contextlib
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Names = dict[str, Any]

# Keywords of a server for localhost; the authority of that certificate is in authority.pem.
LOCALHOST: dict[str, Any] = {"certificate": "localhost.pem", "private_key": "localhost.key"}


def _trust(authority: str = "authority.pem") -> None:
    os.environ["SSL_CERT_FILE"] = str(Path(authority).resolve())


@contextlib.asynccontextmanager
async def nothing(_names: Names) -> AsyncIterator[None]:
    """The block needs nothing."""
    yield


@contextlib.asynccontextmanager
async def http3_example_org(_names: Names) -> AsyncIterator[None]:
    """An HTTP/3 server that clients reach as example.org; httpx gets no other answer than by it."""
    import httpx

    from ringloop import h3
    from ringloop.h3 import _client, _pool
    from tests.h3.support import echo

    _trust()
    really_opened = _client.opened
    async with await h3.serve(
        echo, "127.0.0.1", certificate="example.org.pem", private_key="example.org.key"
    ) as server:
        port = server.address[1]

        async def opened(host: str, _port: int, **keywords: Any) -> h3.Client:
            assert host == "example.org"
            keywords["server_name"] = host
            return await really_opened("127.0.0.1", port, **keywords)

        for module in (_client, _pool):
            module.opened = opened  # type: ignore[attr-defined]

        def answered(request: Any) -> Any:
            return httpx.Response(200, request=request)

        httpx.AsyncHTTPTransport = partial(httpx.MockTransport, answered)  # type: ignore[assignment,misc]
        yield


@contextlib.asynccontextmanager
async def quic_echo(names: Names) -> AsyncIterator[None]:
    """`fetch(host, request)` of the block gets back from an echo server what it has sent."""
    from ringloop import quic

    async def echo(stream: Any) -> None:
        stream.write(await stream.read_to_end())
        stream.finish()

    _trust()
    port = int(os.environ["PORT_OF_QUIC"])
    async with await quic.serve(
        host="localhost",
        port=port,
        stream_handler=echo,
        alpn=["echo"],
        **LOCALHOST,
    ):
        yield
        assert await names["fetch"]("localhost", b"twice") == b"twice"


@contextlib.asynccontextmanager
async def webtransport_server(names: Names) -> AsyncIterator[None]:
    """The names of a page whose first block imports them, and the keywords of a certificate."""
    from ringloop import h3, webtransport

    names.update(h3=h3, webtransport=webtransport, handler=print)
    names["certificate"] = LOCALHOST
    try:
        yield
    finally:
        names["server"].close()


@contextlib.asynccontextmanager
async def webtransport_client(names: Names) -> AsyncIterator[None]:
    """`webtransport`, and a server that sends streams back."""
    from ringloop import webtransport

    async def echo(session: webtransport.Session) -> None:
        async for stream in session:
            await stream.send(await stream.read())
            stream.finish()

    names["webtransport"] = webtransport
    port = int(os.environ["PORT_OF_QUIC"])
    async with await webtransport.serve(echo, "localhost", port, paths=["/echo"], **LOCALHOST):
        yield


@contextlib.asynccontextmanager
async def quic_handler(names: Names) -> AsyncIterator[None]:
    """`quic`, a handler that waits for the end of a connection, a port, and settings of a server."""
    from ringloop import quic

    async def handler(connection: Any) -> None:
        await connection.wait_closed()

    names.update(quic=quic, handler=handler, number=0, settings={**LOCALHOST, "alpn": ["echo"]})
    names["port"] = int(os.environ["PORT_OF_QUIC"])
    yield
    for name in ("server", "worker"):
        if name in names:
            names[name].close()


CONTEXTS = {
    "": nothing,
    "an HTTP/3 server": http3_example_org,
    "a QUIC echo server": quic_echo,
    "a QUIC handler": quic_handler,
    "WebTransport": webtransport_server,
    "a WebTransport server": webtransport_client,
}
