"""One end of the WebTransport interop tests, by `ringloop.webtransport`; see session_contract.py."""

import asyncio
from collections.abc import Awaitable, Callable

from contract import PIECE, SMALL, WrongError, main, pattern, same
from session_contract import (
    CLOSE,
    CLOSE_TEXT,
    DATAGRAMS,
    MISSING,
    PATH,
    PROTOCOL,
    PROTOCOLS,
    RESET,
    SESSION_PATHS,
    STOP,
    STREAMS,
    STREAMS_AT_ONCE,
)

from ringloop import h3, quic, webtransport

closed = ""


async def serve(host: str, port: int, cert: str, key: str) -> None:
    """Serve until killed."""
    await webtransport.serve(handle, host, port, accepts=accepts, certificate=cert, private_key=key)
    await asyncio.Event().wait()


async def accepts(request: h3.Request) -> webtransport.Session | None:
    """Take a session at the paths that there are."""
    path = (request.path or "").partition("?")[0]
    if path not in SESSION_PATHS:
        await request.respond(404)
        return None
    offers = PROTOCOL in webtransport.offered_protocols(request)
    return await webtransport.accept(request, protocol=PROTOCOL if offers else None)


async def handle(session: webtransport.Session) -> None:
    """Do what the path asks for, until the session is over."""
    global closed  # noqa: PLW0603
    match session.path.partition("?")[0]:
        case "/path":
            await tell(session, session.path)
        case "/closed":
            await tell(session, closed)
        case "/close":
            end = await session.wait_closed()
            closed = f"{end.code} {end.reason}"
        case "/server-bidi":
            stream = await session.open_stream()
            _, back = await asyncio.gather(send(stream, pattern()), stream.read())
            await tell(session, back)
        case "/server-close":
            await session.accept_stream()
            session.close(*CLOSE)
    async with asyncio.TaskGroup() as tasks:
        returning = tasks.create_task(return_datagrams(session))
        async for stream in session:
            tasks.create_task(on_stream(session, stream))
        returning.cancel()


async def tell(session: webtransport.Session, what: str | bytes) -> None:
    """Send on a stream of its own."""
    stream = await session.open_unidirectional_stream()
    await send(stream, what.encode() if isinstance(what, str) else what)


async def send(stream: quic.Stream, data: bytes) -> None:
    """Send all that a stream has."""
    await stream.send(data)
    stream.finish()


async def return_datagrams(session: webtransport.Session) -> None:
    """Send datagrams back."""
    async for datagram in session.datagrams():
        session.send_datagram(datagram)


async def on_stream(session: webtransport.Session, stream: quic.Stream) -> None:
    """Do what the session's path asks for."""
    if not stream.is_bidirectional:
        await tell(session, await stream.read())
        return
    if session.path == "/echo":
        async for piece in stream:
            await stream.send(piece)
        stream.finish()
        return
    same(await stream.readexactly(len(SMALL)), SMALL)
    match session.path:
        case "/reset":
            await stream.send(SMALL)
            await tell(session, str(await reset_of(stream)))
        case "/stop":
            await tell(session, str(await stop_of(stream)))
        case "/server-reset":
            stream.reset(RESET)
        case "/server-stop":
            stream.stop(STOP)
            await session.wait_closed()


async def reset_of(stream: quic.Stream) -> int:
    """Receive until the peer resets; return the code."""
    try:
        while await stream.read(1 << 16):
            pass
    except quic.StreamResetError as error:
        return error.code or 0
    raise WrongError("the stream was complete")


async def stop_of(stream: quic.Stream) -> int:
    """Send until the peer stops that; return the code."""
    try:
        while True:
            await stream.send(PIECE)
    except quic.StreamStoppedError as error:
        return error.code or 0


# --- the client -----------------------------------------------------------------------------------

Session = webtransport.Session


async def told(session: Session) -> bytes:
    """Return what the server tells."""
    return await (await session.accept_unidirectional_stream()).read()


async def asked(session: Session) -> quic.Stream:
    """Open a stream and send what begins it."""
    stream = await session.open_stream()
    await stream.send(SMALL)
    return stream


async def session(session: Session) -> None:
    """The server tells the path that came."""
    same(await told(session), PATH.encode())


async def protocol(session: Session) -> None:
    """The server has chosen one."""
    same(session.protocol, PROTOCOL)


async def bidi(session: Session) -> None:
    """Send and receive on one stream."""
    await echo(session, pattern())


async def echo(session: Session, data: bytes) -> None:
    """Send while the same comes back."""
    stream = await session.open_stream()
    _, back = await asyncio.gather(send(stream, data), stream.read())
    same(back, data)


async def uni(session: Session) -> None:
    """Send on one stream and receive on another."""
    stream = await session.open_unidirectional_stream()
    _, back = await asyncio.gather(send(stream, pattern()), told(session))
    same(back, pattern())


async def server_bidi(session: Session) -> None:
    """The server opens a stream; what it has sent comes back to it, and again."""
    stream = await session.accept_stream()
    data = await stream.read()
    same(data, pattern())
    _, back = await asyncio.gather(send(stream, data), told(session))
    same(back, data)


async def parallel(session: Session) -> None:
    """Have several streams under way at once."""
    gate = asyncio.Semaphore(STREAMS_AT_ONCE)

    async def one(number: int) -> None:
        async with gate:
            await echo(session, b"%d" % number)

    await asyncio.gather(*map(one, range(STREAMS)))


async def datagrams(session: Session) -> None:
    """Send each until it has come back: datagrams may be lost."""
    missing = set(DATAGRAMS)

    async def repeat() -> None:
        while True:
            for datagram in sorted(missing):
                session.send_datagram(datagram)
            await asyncio.sleep(0.2)

    sending = asyncio.create_task(repeat())
    while missing:
        datagram = await session.receive_datagram()
        same(datagram in DATAGRAMS, True)
        missing.discard(datagram)
    sending.cancel()


async def reset(session: Session) -> None:
    """The server tells the code of a reset."""
    stream = await asked(session)
    same(await stream.readexactly(len(SMALL)), SMALL)
    stream.reset(RESET)
    same(await told(session), str(RESET).encode())


async def server_reset(session: Session) -> None:
    """The server resets a stream."""
    same(await reset_of(await asked(session)), RESET)


async def stop(session: Session) -> None:
    """The server tells the code of STOP_SENDING."""
    stream = await asked(session)
    await stream.readexactly(1)
    stream.stop(STOP)
    same(await told(session), str(STOP).encode())


async def server_stop(session: Session) -> None:
    """The server stops a stream."""
    same(await stop_of(await asked(session)), STOP)


async def server_close(session: Session) -> None:
    """The server closes the session."""
    await asked(session)
    end = await session.wait_closed()
    same((end.code, end.reason, end.by_peer), (*CLOSE, True))


CASES: dict[str, tuple[str, Callable[[Session], Awaitable[object]]]] = {
    "session": (PATH, session),
    "protocol": ("/protocol", protocol),
    "bidi": ("/echo", bidi),
    "uni": ("/echo", uni),
    "server-bidi": ("/server-bidi", server_bidi),
    "parallel": ("/echo", parallel),
    "datagrams": ("/echo", datagrams),
    "reset": ("/reset", reset),
    "server-reset": ("/server-reset", server_reset),
    "stop": ("/stop", stop),
    "server-stop": ("/server-stop", server_stop),
    "server-close": ("/server-close", server_close),
}


async def run(case: str, port: int, ca: str) -> None:
    """Run one case on a session of its own."""

    def opened(path: str) -> Awaitable[Session]:
        return webtransport.open_session(
            f"https://127.0.0.1:{port}{path}",
            ca_file=ca,
            server_name="localhost",
            protocols=PROTOCOLS if path == "/protocol" else (),
        )

    match case:
        case "reject":
            try:
                await opened(MISSING)
            except webtransport.SessionRejected as error:
                same(error.status, 404)
            else:
                raise WrongError("the session was accepted")
        case "close":
            async with await opened("/close") as first:
                first.close(*CLOSE)
            back = b""
            while not back:
                async with await opened("/closed") as second:
                    back = await told(second)
            same(back.decode(), CLOSE_TEXT)
        case _:
            path, play = CASES[case]
            async with await opened(path) as session:
                await play(session)


if __name__ == "__main__":
    main(serve, run)
