"""One end of the WebTransport interop tests, by pywebtransport; see session_contract.py."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pywebtransport as wt
from contract import PIECE, SMALL, WrongError, main, pattern, same
from pywebtransport.types import EventType
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

Session = wt.WebTransportSession
closed = ""
tasks: set[asyncio.Task[None]] = set()


def start(work: Any) -> None:
    """Run something beside the rest."""
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


async def serve(host: str, port: int, cert: str, key: str) -> None:
    """Serve until killed."""
    config = wt.ServerConfig(bind_host=host, bind_port=port, certfile=cert, keyfile=key)
    async with wt.WebTransportServer(config=config) as server:
        await server.listen()
        async for connection in server.incoming_connections():
            start(on_connection(connection))


async def on_connection(connection: wt.WebTransportConnection) -> None:
    """Take the sessions of a connection."""
    async for session in connection.incoming_sessions():
        start(handle(session))


async def handle(session: Session) -> None:
    """Do what the path asks for, until the session is over."""
    global closed  # noqa: PLW0603
    path = session.path.partition("?")[0]
    if path not in SESSION_PATHS:
        await session.reject(status_code=404)
        return
    ending = asyncio.create_task(end_of(session))
    offers = PROTOCOL in (session.wt_available_protocols or ())
    await session.accept(wt_protocol=PROTOCOL if offers else None)
    start(on_datagrams(session))
    start(on_unidirectional(session))
    match path:
        case "/path":
            await tell(session, session.path.encode())
        case "/closed":
            await tell(session, closed.encode())
        case "/close":
            code, reason = await ending
            closed = f"{code} {reason}"
        case "/server-bidi":
            stream = await session.create_bidirectional_stream()
            start(stream.write_all(data=pattern(), end_stream=True))
            await tell(session, await stream.read_all())
    async for stream in session.incoming_bidirectional_streams():
        start(on_stream(session, path, stream))
    await ending


async def tell(session: Session, what: bytes) -> None:
    """Send on a stream of its own."""
    stream = await session.create_unidirectional_stream()
    await stream.write_all(data=what, end_stream=True)


async def on_datagrams(session: Session) -> None:
    """Send datagrams back."""
    while not session.is_closed:
        await session.send_datagram(data=await session.read_datagram())


async def on_unidirectional(session: Session) -> None:
    """Send back on a stream of its own."""
    async for stream in session.incoming_unidirectional_streams():
        await tell(session, await stream.read_all())


async def on_stream(session: Session, path: str, stream: Any) -> None:
    """Do what the session's path asks for."""
    if path == "/echo":
        async for piece in stream:
            await stream.write_all(data=piece)
        await stream.write(data=b"", end_stream=True)
        return
    same(await stream.readexactly(size=len(SMALL)), SMALL)
    match path:
        case "/reset":
            await stream.write_all(data=SMALL)
            await tell(session, str(await reset_of(stream)).encode())
        case "/stop":
            await tell(session, str(await stop_of(stream)).encode())
        case "/server-reset":
            await stream.reset(error_code=RESET)
        case "/server-stop":
            await stream.stop_receiving(error_code=STOP)
        case "/server-close":
            await session.close(error_code=CLOSE[0], reason=CLOSE[1])


async def reset_of(stream: Any) -> int:
    """Receive until the peer resets; return the code."""
    try:
        while await stream.read():
            pass
    except wt.StreamError as error:
        return error.error_code
    raise WrongError("the stream was complete")


async def stop_of(stream: Any) -> int:
    """Send until the peer stops that; return the code, which the failed write does not tell."""
    stopped = asyncio.create_task(
        stream.events.wait_for(event_type=EventType.STREAM_STOP_SENDING_RECEIVED)
    )
    with contextlib.suppress(wt.StreamError):
        while not stopped.done():
            await stream.write_all(data=PIECE)
    return int((await stopped).data["error_code"])


async def end_of(session: Session) -> tuple[int, str]:
    """Wait for the end of the session; return code and reason."""
    event = await session.events.wait_for(event_type=EventType.SESSION_CLOSED)
    data: dict[str, Any] = event.data or {}
    return data.get("error_code", 0), data.get("reason") or ""


# --- the client -----------------------------------------------------------------------------------


async def told(session: Session) -> bytes:
    """Return what the server tells."""
    async for stream in session.incoming_unidirectional_streams():
        return await stream.read_all()
    raise WrongError("the session was closed")


async def asked(session: Session) -> wt.WebTransportBidirectionalStream:
    """Open a stream and send what begins it."""
    stream = await session.create_bidirectional_stream()
    await stream.write_all(data=SMALL)
    return stream


async def session(session: Session) -> None:
    """The server tells the path that came."""
    same(await told(session), PATH.encode())


async def protocol(session: Session) -> None:
    """The server has chosen one."""
    same(session.wt_protocol, PROTOCOL)


async def bidi(session: Session) -> None:
    """Send and receive on one stream."""
    await echo(session, pattern())


async def echo(session: Session, data: bytes) -> None:
    """Send while the same comes back."""
    stream = await session.create_bidirectional_stream()
    sending = stream.write_all(data=data, end_stream=True)
    _, back = await asyncio.gather(sending, stream.read_all())
    same(back, data)


async def uni(session: Session) -> None:
    """Send on one stream and receive on another."""
    stream = await session.create_unidirectional_stream()
    sending = stream.write_all(data=pattern(), end_stream=True)
    _, back = await asyncio.gather(sending, told(session))
    same(back, pattern())


async def server_bidi(session: Session) -> None:
    """The server opens a stream; what it has sent comes back to it, and again."""
    stream = await anext(session.incoming_bidirectional_streams())
    data = await stream.read_all()
    same(data, pattern())
    sending = stream.write_all(data=data, end_stream=True)
    _, back = await asyncio.gather(sending, told(session))
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
        while missing:
            for datagram in sorted(missing):
                await session.send_datagram(data=datagram)
            await asyncio.sleep(0.2)

    start(repeat())
    while missing:
        datagram = await session.read_datagram()
        same(datagram in DATAGRAMS, True)
        missing.discard(datagram)


async def reset(session: Session) -> None:
    """The server tells the code of a reset."""
    stream = await asked(session)
    same(await stream.readexactly(size=len(SMALL)), SMALL)
    await stream.reset(error_code=RESET)
    same(await told(session), str(RESET).encode())


async def server_reset(session: Session) -> None:
    """The server resets a stream."""
    same(await reset_of(await asked(session)), RESET)


async def stop(session: Session) -> None:
    """The server tells the code of STOP_SENDING."""
    stream = await asked(session)
    await stream.read(max_size=1)
    await stream.stop_receiving(error_code=STOP)
    same(await told(session), str(STOP).encode())


async def server_stop(session: Session) -> None:
    """The server stops a stream."""
    same(await stop_of(await asked(session)), STOP)


async def server_close(session: Session) -> None:
    """The server closes the session."""
    ending = asyncio.create_task(end_of(session))
    await asked(session)
    same(await ending, CLOSE)


CASES: dict[str, tuple[str, Callable[[Session], Awaitable[None]]]] = {
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
    async with wt.WebTransportClient(config=wt.ClientConfig(ca_certs=ca)) as client:

        async def opened(path: str) -> Session:
            offers = list(PROTOCOLS) if path == "/protocol" else None
            url = f"https://127.0.0.1:{port}{path}"
            return await client.connect(url=url, wt_available_protocols=offers)

        match case:
            case "reject":
                try:
                    await opened(MISSING)
                except wt.WebTransportError as error:
                    # Its word for each status that is not 2xx.
                    same(error.error_code, wt.ErrorCodes.H3_REQUEST_REJECTED)
                else:
                    raise WrongError("the session was accepted")
            case "close":
                first = await opened("/close")
                await first.close(error_code=CLOSE[0], reason=CLOSE[1])
                back = b""
                while not back:
                    back = await told(await opened("/closed"))
                same(back.decode(), CLOSE_TEXT)
            case _:
                path, play = CASES[case]
                await play(await opened(path))


if __name__ == "__main__":
    main(serve, run)
