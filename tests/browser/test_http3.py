"""Pages over HTTP/3 in headless Chromium, served by `ringloop.h3`."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.chromium import Browser, public_key_hash
from tests.h3.support import served
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ringloop import h3
    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]

PAGE = b"<!doctype html><title>first</title><script src=script.js></script><p>a page"
SCRIPT = b"document.title = 'loaded'"
PROTOCOLS = """performance.getEntriesByType('navigation').concat(
    performance.getEntriesByType('resource')).map(entry => entry.nextHopProtocol)"""
BYTES = 1 << 20


async def site(request: h3.Request) -> None:
    """A page with a script, and an echo."""
    match request.path:
        case "/echo":
            request.start(200, {"content-type": "application/octet-stream"})
            async for piece in request:
                await request.send(piece)
        case "/script.js":
            await request.respond(200, {"content-type": "text/javascript"}, SCRIPT)
        case "/favicon.ico":
            await request.respond(404)
        case "/number":
            await request.respond(200, {}, await request.read())
        case "/reset":
            request.start(200)
            await request.send(b"a part")
            request.cancel(0x102)
        case _:
            await request.respond(200, {"content-type": "text/html"}, PAGE)


def pins(certificates: Certificates, *switches: str) -> tuple[str, ...]:
    """The switches by which Chromium takes the test's certificate."""
    pin = public_key_hash(str(certificates.issue()[0]))
    return (f"--ignore-certificate-errors-spki-list={pin}", *switches)


@contextlib.asynccontextmanager
async def page_of_site(certificates: Certificates) -> AsyncIterator[Any]:
    """Serve the site and open it by forced QUIC."""
    async with served(certificates, site) as server:
        origin = f"localhost:{server.address[1]}"
        switches = pins(certificates, f"--origin-to-force-quic-on={origin}")
        async with Browser(*switches) as browser:
            yield await browser.open(f"https://{origin}/")


def test_page_and_its_script_load(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with page_of_site(certificates) as page:
            assert await page.run("document.title") == "loaded"
            assert await page.run(PROTOCOLS) == ["h3", "h3"]

    run(main())


def test_body_comes_back(run: Run, certificates: Certificates) -> None:
    script = f"""(async () => {{
        const sent = new Uint8Array({BYTES}).map((_, at) => at ^ at >> 8 ^ at >> 16)
        const response = await fetch('/echo', {{method: 'POST', body: sent}})
        const back = new Uint8Array(await response.arrayBuffer())
        return back.length === sent.length && back.every((byte, at) => byte === sent[at])
    }})()"""

    async def main() -> None:
        async with page_of_site(certificates) as page:
            assert await page.run(script) is True

    run(main())


def test_requests_in_parallel(run: Run, certificates: Certificates) -> None:
    script = """Promise.all(Array.from({length: 100}, async (_, at) => {
        const response = await fetch('/number', {method: 'POST', body: `${at}`})
        return await response.text() === `${at}`
    })).then(all => all.every(one => one))"""

    async def main() -> None:
        async with page_of_site(certificates) as page:
            assert await page.run(script) is True

    run(main())


def test_reset_response_is_an_error_of_that_request_alone(
    run: Run, certificates: Certificates
) -> None:
    script = """fetch('/reset').then(response => response.text()).then(
        () => 'no error', async error => (await fetch('/')).status)"""

    async def main() -> None:
        async with page_of_site(certificates) as page:
            assert await page.run(script) == 200

    run(main())


def test_alt_svc_leads_to_http_3(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with served(certificates, site) as server:
            port = server.address[1]
            async with over_tcp(certificates, port):
                # The name with another port: its certificates need no public authority with QUIC,
                # which Chromium asks of alternative services, and QUIC is not forced on this port.
                switches = pins(certificates, "--origin-to-force-quic-on=localhost:1")
                async with Browser(*switches) as browser:
                    page = await browser.open(f"https://localhost:{port}/")
                    assert await page.run(PROTOCOLS) == ["http/1.1"]
                    protocol = None

                    async def until_moved() -> None:
                        nonlocal protocol
                        while protocol != "h3":
                            await page.load(f"https://localhost:{port}/")
                            protocol = (await page.run(PROTOCOLS))[0]

                    await within(until_moved(), 60)

    run(main())


@contextlib.asynccontextmanager
async def over_tcp(certificates: Certificates, port: int) -> AsyncIterator[None]:
    """Serve a page by HTTP/1.1 and TLS, with the same port as alternative service."""
    head = (
        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 8\r\n"
        f'alt-svc: h3=":{port}"; ma=3600\r\nconnection: close\r\n\r\n'
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificates.issue())

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head.encode() + b"<p>a page"[:8])
            await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    try:
        tcp = await asyncio.start_server(answer, "127.0.0.1", port, ssl=context)
    except OSError as error:
        pytest.skip(f"the port is taken for TCP: {error}")
    async with tcp:
        yield
