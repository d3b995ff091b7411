"""The server's half of session_contract.py as an application of peregrine-server, which tells and
sends neither resets nor STOP_SENDING."""

import asyncio
from typing import Any

from contract import pattern
from session_contract import CLOSE, PROTOCOL, SESSION_PATHS

closed = ""


async def serve(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Serve one session by the server's own adapter."""
    from peregrine.webtransport import WebTransportSession

    session = WebTransportSession(scope, receive, send)
    if session.path not in SESSION_PATHS:
        await session.close(404)
        return
    offered = dict(session.headers).get(b"wt-available-protocols", b"").decode()
    chosen = f'"{PROTOCOL}"'
    await session.accept([("wt-protocol", chosen)] if chosen in offered else None)
    tasks = {asyncio.ensure_future(begin(session)), asyncio.ensure_future(datagrams(session))}
    async for stream in session.incoming_streams():
        tasks.add(asyncio.ensure_future(on_stream(session, stream)))
    if session.path == "/close":
        global closed  # noqa: PLW0603
        closed = f"{session.close_code} {session.close_reason}"
    for task in tasks:
        task.cancel()


async def begin(session: Any) -> None:
    """Do what the path asks for before a stream comes."""
    match session.path:
        case "/path":
            await tell(session, session.path.encode() + b"?" + session.scope["query_string"])
        case "/closed":
            await tell(session, closed.encode())
        case "/server-bidi":
            stream = await session.create_stream()
            sending = asyncio.ensure_future(stream.send(pattern(), end=True))
            await tell(session, await stream.read())
            await sending


async def tell(session: Any, what: bytes) -> None:
    """Send on a stream of its own."""
    stream = await session.create_stream(bidirectional=False)
    await stream.send(what, end=True)


async def datagrams(session: Any) -> None:
    """Send datagrams back."""
    async for datagram in session.datagrams():
        await session.send_datagram(datagram)


async def on_stream(session: Any, stream: Any) -> None:
    """Do what the path asks for with a stream."""
    match session.path:
        case "/server-close":
            await session.close(*CLOSE)
        case "/echo" if stream.bidirectional:
            async for piece in stream:
                await stream.send(piece)
            await stream.end()
        case "/echo":
            await tell(session, await stream.read())
