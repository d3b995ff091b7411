"""Shared by the tests of the ASGI server: one on the loop under test, and its clients."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ringloop import h3
from ringloop.serve import Server, Settings
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.tls import Certificates

Scope = dict[str, Any]


def settings(certificates: Certificates, **others: Any) -> Settings:
    certificate, key = certificates.issue()
    # A port of UDP that is free may not be so of TCP.
    defaults = {"bind": ("127.0.0.1", 0), "quic_bind": ("127.0.0.1", 0)}
    return Settings(**{"certificate": certificate, "private_key": key, **defaults, **others})


@asynccontextmanager
async def served(
    certificates: Certificates, application: Any, **others: Any
) -> AsyncIterator[Server]:
    """Serve on the loop under test."""
    server = Server(application, settings(certificates, **others))
    await within(server.start())
    try:
        yield server
    finally:
        server.shut_down()
        await within(server.wait_closed())


@asynccontextmanager
async def client_of(
    certificates: Certificates, server: Server, **keywords: Any
) -> AsyncIterator[h3.Client]:
    given = {"ca_file": certificates.authority, "server_name": "localhost", **keywords}
    opening = h3.open_client(*server.quic_address, **given)
    async with await within(opening) as client:
        yield client


@asynccontextmanager
async def both(
    certificates: Certificates, application: Any, **others: Any
) -> AsyncIterator[h3.Client]:
    """Open a client of HTTP/3 of a server with this application, and close both at the end."""
    async with served(certificates, application, **others) as server:
        async with client_of(certificates, server) as client:
            yield client


async def fetched(client: h3.Client, method: str, path: str, **others: Any) -> tuple[int, bytes]:
    """Return status and body of a response."""
    response = await within(client.request(method, path, **others))
    assert response.status is not None
    return response.status, await within(response.read())


async def fetched_over_tcp(
    certificates: Certificates, server: Server, path: str = "/", name: str = "localhost"
) -> tuple[dict[str, str], bytes, bytes]:
    """Ask by HTTP/1.1; return the response's headers and body, and the server's certificate."""
    assert server.tcp_address is not None
    reader, writer = await within(
        asyncio.open_connection(
            *server.tcp_address, ssl=certificates.client(), server_hostname=name
        )
    )
    writer.write(f"GET {path} HTTP/1.1\r\nhost: {name}\r\nconnection: close\r\n\r\n".encode())
    head, _, body = (await within(reader.read())).partition(b"\r\n\r\n")
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await within(writer.wait_closed())
    lines = head.decode().split("\r\n")
    return dict(line.split(": ", 1) for line in lines[1:]), body, certificate


async def plain(scope: Scope, receive: Any, send: Any) -> None:
    """Answer every request of HTTP with its path and protocol; takes part in the lifespan."""
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    assert scope["type"] == "http"
    body = f"{scope['path']} by {scope['http_version']}".encode()
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
