"""Sessions of WebTransport between headless Chromium and `ringloop.webtransport`.

Chromium takes the certificate by its hash, as a page gives it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Any

from ringloop import quic, webtransport
from tests.browser.chromium import Browser
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.browser.chromium import Page

    Run = Callable[[Any], Any]
    Handler = Callable[[webtransport.Session], Awaitable[object]]

# Each way, on each kind of stream; `RINGLOOP_BROWSER_BYTES=104857600 make browser` for more.
BYTES = int(os.environ.get("RINGLOOP_BROWSER_BYTES") or 4 << 20)
DATAGRAMS = 10_000

# `connect(path)`, and what the scripts of the tests share.
LIBRARY = """
const connect = async path => {
    const session = new WebTransport(`https://localhost:PORT/${path}`, OPTIONS)
    await session.ready
    return session
}
const pattern = (from, length) => new Uint8Array(length).map((_, at) => {
    at += from
    return at ^ at >> 8 ^ at >> 16
})
const sendPattern = async (writable, length) => {
    const writer = writable.getWriter()
    for (let at = 0; at < length; at += 65536)
        await writer.write(pattern(at, Math.min(65536, length - at)))
    await writer.close()
}
const readPattern = async readable => {
    let at = 0
    for await (const piece of readable) {
        const wanted = pattern(at, piece.length)
        if (!piece.every((byte, index) => byte === wanted[index])) throw new Error(`at ${at}`)
        at += piece.length
    }
    return at
}
const first = async streams => (await streams.getReader().read()).value
const text = async readable => await new Response(readable).text()
"""


async def echo(session: webtransport.Session) -> None:
    """Send back what comes: a peer's unidirectional stream on one of ours."""

    async def send_back(stream: Any) -> None:
        back = stream
        if not stream.is_bidirectional:
            back = await session.open_unidirectional_stream()
        async for piece in stream.chunks():
            await back.send(piece)
        back.finish()
        await back.acked()

    async def send_datagrams_back() -> None:
        while True:
            session.send_datagram(await session.receive_datagram())

    datagrams = asyncio.ensure_future(send_datagrams_back())
    try:
        async with asyncio.TaskGroup() as tasks:
            async for stream in session:
                tasks.create_task(send_back(stream))
    finally:
        datagrams.cancel()
        await asyncio.gather(datagrams, return_exceptions=True)


@contextlib.asynccontextmanager
async def page_of(handler: Handler) -> AsyncIterator[Page]:
    """Serve sessions, and open a page that can open them by `connect`."""
    made = webtransport.certificate_for_browsers("localhost")
    server = await webtransport.serve(
        handler, "127.0.0.1", 0, certificate=made.certificate, private_key=made.private_key
    )
    library = LIBRARY.replace("OPTIONS", made.javascript).replace("PORT", str(server.address[1]))
    try:
        async with empty_page() as address, Browser() as browser:
            page = await browser.open(address)
            await page.run(library)
            yield page
    finally:
        server.close()
        await within(server.wait_closed())


@contextlib.asynccontextmanager
async def empty_page() -> AsyncIterator[str]:
    """Serve a page: sessions need one with an origin."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 0\r\n")
            writer.write(b"connection: close\r\n\r\n")
            await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://localhost:{server.sockets[0].getsockname()[1]}/"


def test_bytes_come_back_on_bidirectional_stream(run: Run) -> None:
    script = f"""(async () => {{
        const stream = await (await connect('echo')).createBidirectionalStream()
        const sent = sendPattern(stream.writable, {BYTES})
        const length = await readPattern(stream.readable)
        await sent
        return length
    }})()"""

    async def main() -> None:
        async with page_of(echo) as page:
            assert await page.run(script) == BYTES

    run(main())


def test_bytes_come_back_on_unidirectional_streams(run: Run) -> None:
    script = f"""(async () => {{
        const session = await connect('echo')
        const sent = sendPattern(await session.createUnidirectionalStream(), {BYTES})
        const length = await readPattern(await first(session.incomingUnidirectionalStreams))
        await sent
        return length
    }})()"""

    async def main() -> None:
        async with page_of(echo) as page:
            assert await page.run(script) == BYTES

    run(main())


def test_datagrams_come_back(run: Run) -> None:
    # Few are under way at a time, and what was lost is sent again.
    script = f"""(async () => {{
        const session = await connect('echo')
        const writer = session.datagrams.writable.getWriter()
        const reader = session.datagrams.readable.getReader()
        const missing = new Set(Array.from({{length: {DATAGRAMS}}}, (_, number) => number))
        const waiting = new Set()
        const send = number => {{
            waiting.add(number)
            writer.write(new Uint8Array(new Uint32Array([number]).buffer))
        }}
        const fill = () => {{
            for (const number of missing) {{
                if (waiting.size >= 50) break
                if (!waiting.has(number)) send(number)
            }}
        }}
        const again = setInterval(() => {{ waiting.clear(); fill() }}, 1000)
        fill()
        while (missing.size) {{
            const {{value}} = await reader.read()
            const [number] = new Uint32Array(value.slice().buffer)
            missing.delete(number)
            waiting.delete(number)
            fill()
        }}
        clearInterval(again)
        return missing.size
    }})()"""

    async def main() -> None:
        async with page_of(echo) as page:
            assert await page.run(script) == 0

    run(main())


def test_close_of_page_reaches_server(run: Run) -> None:
    ended: list[Any] = []

    async def main() -> None:
        done = asyncio.Event()

        async def handler(session: webtransport.Session) -> None:
            ended.append(await session.wait_closed())
            done.set()

        async with page_of(handler) as page:
            await page.run("connect('').then(s => s.close({closeCode: 7, reason: 'bye'}))")
            await within(done.wait())
        code, reason, by_peer = ended[0]
        assert (code, reason, by_peer) == (7, "bye", True)

    run(main())


def test_close_of_server_reaches_page(run: Run) -> None:
    async def handler(session: webtransport.Session) -> None:
        session.close(0xFFFF_FFFF, "that is all")

    async def main() -> None:
        async with page_of(handler) as page:
            script = "connect('').then(s => s.closed).then(e => [e.closeCode, e.reason])"
            assert await page.run(script) == [0xFFFF_FFFF, "that is all"]

    run(main())


def test_two_sessions(run: Run) -> None:
    script = """(async () => {
        const sessions = [await connect('one'), await connect('two')]
        const texts = sessions.map(async (session, number) => {
            const stream = await session.createBidirectionalStream()
            const writer = stream.writable.getWriter()
            await writer.write(new TextEncoder().encode(`of ${number}`))
            await writer.close()
            return await text(stream.readable)
        })
        return await Promise.all(texts)
    })()"""

    async def main() -> None:
        async with page_of(echo) as page:
            assert await page.run(script) == ["of 0", "of 1"]

    run(main())


def test_streams_of_server(run: Run) -> None:
    script = """(async () => {
        const session = await connect('')
        const both = await first(session.incomingBidirectionalStreams)
        const one = await first(session.incomingUnidirectionalStreams)
        const writer = both.writable.getWriter()
        await writer.write(new TextEncoder().encode('answer'))
        await writer.close()
        return [await text(both.readable), await text(one)]
    })()"""

    async def main() -> None:
        answered: list[bytes] = []

        async def handler(session: webtransport.Session) -> None:
            both = await session.open_stream()
            await both.send(b"on both")
            both.finish()
            one = await session.open_unidirectional_stream()
            await one.send(b"on one")
            one.finish()
            answered.append(await both.read())
            await session.wait_closed()

        async with page_of(handler) as page:
            assert await page.run(script) == ["on both", "on one"]
            await page.run("0")
        assert answered == [b"answer"]

    run(main())


def test_codes_of_streams(run: Run) -> None:
    script = """(async () => {
        const session = await connect('')
        const stream = await session.createBidirectionalStream()
        const writer = stream.writable.getWriter()
        await writer.write(new Uint8Array(3))
        const reader = stream.readable.getReader()
        await reader.read()
        writer.abort(new WebTransportError({streamErrorCode: 5})).catch(() => 0)
        try {
            while (!(await reader.read()).done);
        } catch (error) {
            return error.streamErrorCode
        }
    })()"""

    async def main() -> None:
        codes: list[int] = []

        async def handler(session: webtransport.Session) -> None:
            stream = await session.accept_stream()
            await stream.send(b"abc")
            try:
                while await stream.read(10):
                    pass
            except quic.StreamResetError as error:
                codes.append(error.code)
            stream.reset(6)
            await session.wait_closed()

        async with page_of(handler) as page:
            assert await page.run(script) == 6
        assert codes == [5]

    run(main())
