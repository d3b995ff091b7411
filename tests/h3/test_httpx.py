"""`ringloop.h3.HTTPTransport` with httpx and httpx2 themselves."""

from __future__ import annotations

import asyncio
import importlib
import json
import ssl
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import h3, quic
from tests.h3.support import echo, served, silent_port
from tests.support import wait_until, within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]

LONG = 3 << 20
# No server of the tests has it.
CLOSED_PORT = 1


@pytest.fixture(params=["httpx", "httpx2"])
def library(request: pytest.FixtureRequest) -> Any:
    """The library under test."""
    return importlib.import_module(request.param)


@asynccontextmanager
async def clients(
    library: Any,
    certificates: Certificates,
    handler: Callable[[h3.Request], Awaitable[object]],
    **keywords: Any,
) -> AsyncIterator[Any]:
    """Open a client of the library for a server of HTTP/3."""
    async with served(certificates, handler) as server:
        transport = h3.HTTPTransport(ca_file=certificates.authority, **keywords)
        url = f"https://localhost:{server.address[1]}"
        async with library.AsyncClient(transport=transport, base_url=url) as client:
            client.server = server
            yield client


async def describe(request: h3.Request) -> None:
    body = await request.read()
    fields = [[name.decode(), value.decode()] for name, value in request.headers or ()]
    told = {
        "method": request.method,
        "authority": request.authority,
        "path": request.path,
        "fields": fields,
        "len": len(body),
    }
    content = b"" if request.method == "HEAD" else json.dumps(told).encode()
    await request.respond(201, {"content-type": "application/json"}, content)


def test_requests_and_responses(run: Run, certificates: Certificates, library: Any) -> None:
    async def main() -> None:
        async with clients(library, certificates, describe) as client:
            response = await within(client.get("/a b?c=é", headers={"X-One": "1"}))
            assert response.status_code == 201
            assert response.http_version == "HTTP/3"
            told = response.json()
            assert (told["method"], told["path"]) == ("GET", "/a%20b?c=%C3%A9")
            assert ["x-one", "1"] in told["fields"]
            names = {name for name, _ in told["fields"]}
            assert not names & {"host", "connection", "transfer-encoding"}
            response = await within(client.post("/", json={"a": 1}))
            assert response.json()["len"] == len(response.request.content)
            assert response.json()["authority"] == client.base_url.netloc.decode()
            response = await within(client.get("/", headers={"Host": "other.example"}))
            assert response.json()["authority"] == "other.example"
            response = await within(client.head("/"))
            assert response.content == b""

    run(main())


def test_bodies_stream_both_ways(run: Run, certificates: Certificates, library: Any) -> None:
    async def main() -> None:
        async def pieces() -> AsyncIterator[bytes]:
            for number in range(LONG >> 16):
                yield bytes([number]) * (1 << 16)

        expected = b"".join([piece async for piece in pieces()])
        async with clients(library, certificates, echo) as client:
            for body in (pieces(), expected):
                async with client.stream("POST", "/", content=body) as response:
                    got = [piece async for piece in response.aiter_raw()]
                assert len(got) > 1
                assert b"".join(got) == expected

    run(main())


def test_abandoned_response_is_cancelled(
    run: Run, certificates: Certificates, library: Any
) -> None:
    async def main() -> None:
        codes: list[int] = []

        async def endless(request: h3.Request) -> None:
            request.start()
            try:
                while True:
                    await request.send(bytes(1 << 16))
            except quic.StreamStoppedError as error:
                codes.append(error.code)
                raise

        async with clients(library, certificates, endless) as client:
            async with client.stream("GET", "/") as response:
                async for _ in response.aiter_raw():
                    break
            await wait_until(lambda: codes == [0x10C])

    run(main())


@pytest.mark.parametrize("phase", ["connect", "pool", "read", "body", "write"])
def test_timeouts_are_the_librarys(
    run: Run, certificates: Certificates, library: Any, phase: str
) -> None:
    kinds = {"connect": "ConnectTimeout", "pool": "PoolTimeout", "write": "WriteTimeout"}

    async def main() -> None:
        ended = asyncio.Event()

        async def handler(request: h3.Request) -> None:
            if phase == "body":
                request.start()
                await request.send(b"part")
            await ended.wait()
            if phase == "pool":
                await request.respond(200)
            else:
                request.cancel()

        timeout = library.Timeout(None, **{"read" if phase == "body" else phase: 0.05})
        windows = {"max_stream_data": 1 << 16}
        async with served(certificates, handler, max_streams_bidi=1, **windows) as server:
            port = server.address[1]
            with silent_port() as silent:
                if phase == "connect":
                    port = silent
                transport = h3.HTTPTransport(ca_file=certificates.authority)
                async with library.AsyncClient(transport=transport) as client:
                    url = f"https://localhost:{port}"
                    body = bytes(LONG) if phase == "write" else None
                    first: list[asyncio.Future[Any]] = []
                    if phase == "pool":
                        asking = client.get(url, timeout=None)
                        first = [asyncio.ensure_future(asking)]
                        await wait_until(lambda: server.stats().completed == 1)
                        await wait_until(lambda: server._tasks)
                    with pytest.raises(getattr(library, kinds.get(phase, "ReadTimeout"))) as error:
                        await within(client.request("POST", url, content=body, timeout=timeout))
                    assert str(error.value.request.url) == url
                    ended.set()
                    for response in await within(asyncio.gather(*first)):
                        assert response.status_code == 200

    run(main())


async def misbehave(request: h3.Request) -> None:
    match request.path:
        case "/reset":
            request.cancel(0x102)
        case "/part":
            request.start()
            await request.send(b"part")
            request.cancel(0x102)
        case "/stop":
            request.stop(0x102)
            await request.receive_datagram()
        case "/close":
            request.connection.close(0x102)


def test_errors_are_the_librarys(run: Run, certificates: Certificates, library: Any) -> None:
    async def main() -> None:
        async def endless() -> AsyncIterator[bytes]:
            while True:
                yield bytes(1 << 16)

        async def fails() -> AsyncIterator[bytes]:
            yield b"x"
            raise FileNotFoundError("of the body")

        async with clients(library, certificates, misbehave) as client:
            for path, kind, body in [
                ("/reset", library.RemoteProtocolError, None),
                ("/part", library.RemoteProtocolError, None),
                ("/stop", library.WriteError, endless()),
                ("/close", library.RemoteProtocolError, None),
                ("/", FileNotFoundError, fails()),
            ]:
                with pytest.raises(kind):
                    await within(client.post(path, content=body))

    run(main())


def test_requests_that_cannot_be_sent(run: Run, certificates: Certificates, library: Any) -> None:
    async def main() -> None:
        async with clients(library, certificates, describe) as client:
            with pytest.raises(library.LocalProtocolError):
                await within(client.get("/", headers={"a b": "c"}))
            with pytest.raises(library.UnsupportedProtocol, match="fallback="):
                await within(client.get("http://localhost/"))
            with pytest.raises(library.ConnectError):
                await within(client.get(f"https://localhost:{CLOSED_PORT}/"))
            url = str(client.base_url)
            transport = h3.HTTPTransport(ca_file=certificates.issue("other-host", "DNS:other")[0])
            async with library.AsyncClient(transport=transport) as stranger:
                with pytest.raises(library.ConnectError, match="certificate"):
                    await within(stranger.get(url))

    run(main())


@asynccontextmanager
async def over_tcp(
    certificates: Certificates, alt_svc: Callable[[], str]
) -> AsyncIterator[asyncio.Server]:
    """Serve HTTP/1.1 over TLS, naming an alternative."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n"
                    b"alt-svc: " + alt_svc().encode() + b"\r\n\r\ntcp"
                )
        except asyncio.IncompleteReadError:
            writer.close()

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificates.issue())
    server = await asyncio.start_server(serve, "127.0.0.1", ssl=context)
    try:
        yield server
    finally:
        server.close()
        await within(server.wait_closed())


def test_fallback_until_the_alternative_is_connected(
    run: Run, certificates: Certificates, library: Any
) -> None:
    async def main() -> None:
        async with served(certificates, describe) as server:
            field = f'h3=":{server.address[1]}"; ma=60'
            async with over_tcp(certificates, lambda: field) as tcp:
                url = f"https://localhost:{tcp.sockets[0].getsockname()[1]}/"
                context = ssl.create_default_context(cafile=certificates.authority)
                transport = h3.HTTPTransport(
                    fallback=library.AsyncHTTPTransport(verify=context),
                    ca_file=certificates.authority,
                )
                async with library.AsyncClient(transport=transport) as client:
                    response = await within(client.get(url))
                    assert response.http_version == "HTTP/1.1"
                    # It does not wait for the connection that it begins.
                    response = await within(client.get(url))
                    assert response.http_version == "HTTP/1.1"
                    (place,) = transport._pool._places.values()
                    await wait_until(lambda: place.client is not None)
                    response = await within(client.get(url))
                    assert response.http_version == "HTTP/3"
                    fields = response.json()["fields"]
                    assert ["alt-used", f"localhost:{server.address[1]}"] in fields

    run(main())


def test_fallback_goes_on_where_the_alternative_fails(
    run: Run, certificates: Certificates, library: Any
) -> None:
    async def main() -> None:
        async with over_tcp(certificates, lambda: f'h3=":{CLOSED_PORT}"') as tcp:
            port = tcp.sockets[0].getsockname()[1]
            context = ssl.create_default_context(cafile=certificates.authority)
            transport = h3.HTTPTransport(
                fallback=library.AsyncHTTPTransport(verify=context),
                ca_file=certificates.authority,
            )
            async with library.AsyncClient(transport=transport) as client:
                for _ in range(2):
                    response = await within(client.get(f"https://localhost:{port}/"))
                    assert response.text == "tcp"
                (place,) = transport._pool._places.values()
                await wait_until(lambda: place.opening is None)
                assert transport._pool.alternatives.find(("localhost", port)) == []
                response = await within(client.get(f"https://localhost:{port}/"))
                assert response.text == "tcp"
                assert place.opening is None

    run(main())


def printed(program: str) -> str:
    """Run a program in an interpreter of its own, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_package_needs_neither_library() -> None:
    program = """if True:
        import sys
        sys.modules["httpx"] = sys.modules["httpx2"] = None
        from ringloop import h3
        from ringloop.h3 import *
        try:
            h3.HTTPTransport
        except ImportError as error:
            print("refused", error)
    """
    assert printed(program).startswith("refused")


def test_transport_needs_one_library() -> None:
    program = """if True:
        import sys
        sys.modules["httpx"] = None
        import httpx2
        from ringloop import h3
        print(issubclass(h3.HTTPTransport, httpx2.AsyncBaseTransport))
    """
    assert printed(program) == "True\n"
