"""The server's half of the contract as an ASGI application: for hypercorn, peregrine-server, and
behind nginx.

Environment: SIGNAL, a signal's name, and PID (a number, or a file with it): what `/goaway` signals.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import peregrine_sessions
from contract import LINK, PIECE, SMALL, TRAILER, pattern

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]
cancelled = 0


async def site(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Answer by the path."""
    if scope["type"] == "webtransport":
        await peregrine_sessions.serve(scope, receive, send)
    if scope["type"] != "http":
        return
    fields = dict(scope["headers"])
    match scope["path"].split("/")[1:]:
        case ["small"]:
            await respond(send, SMALL, [(b"content-length", b"%d" % len(SMALL))])
        case ["number", number]:
            await respond(send, number.encode())
        case ["echo"]:
            await echo(receive, send)
        case ["headers"]:
            await respond(send, SMALL, [(b"x-large", fields[b"x-large"])])
        case ["trailers"]:
            await start(send, trailers=True)
            await send({"type": "http.response.body", "body": SMALL})
            await send({"type": "http.response.trailers", "headers": [(TRAILER.encode(), b"42")]})
        case ["interim"]:
            hint = {"type": "http.response.early_hint", "links": [LINK.encode()]}
            await send(hint)
            await respond(send, SMALL)
        case ["priority"]:
            await respond(send, fields.get(b"priority", b""))
        case ["cancelled"]:
            await respond(send, b"%d" % cancelled)
        case ["endless"]:
            await endless(receive, send)
        case ["reset"]:
            await start(send, [(b"content-length", b"1000")])
            await send({"type": "http.response.body", "body": SMALL, "more_body": True})
            await asyncio.sleep(0.1)
            raise RuntimeError("the response is to be reset")
        case ["goaway"]:
            pid = os.environ["PID"]
            number = int(pid) if pid.isdigit() else int(Path(pid).read_text())
            os.kill(number or os.getpid(), signal.Signals[os.environ["SIGNAL"]])
            await respond(send, pattern())
        case _:
            await start(send, status=404)
            await send({"type": "http.response.body"})


async def start(
    send: Send,
    headers: list[tuple[bytes, bytes]] | None = None,
    status: int = 200,
    *,
    trailers: bool = False,
) -> None:
    """Begin a response."""
    more = {"trailers": True} if trailers else {}
    await send({"type": "http.response.start", "status": status, "headers": headers or [], **more})


async def respond(
    send: Send, body: bytes, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    """Send a whole response."""
    await start(send, headers)
    await send({"type": "http.response.body", "body": body})


async def echo(receive: Receive, send: Send) -> None:
    """Send the body back as it comes."""
    await start(send)
    while True:
        event = await receive()
        more = event.get("more_body", False)
        await send(
            {"type": "http.response.body", "body": event.get("body", b""), "more_body": more}
        )
        if not more:
            return


async def endless(receive: Receive, send: Send) -> None:
    """Send until the client cancels, and count it."""
    global cancelled  # noqa: PLW0603
    await start(send)
    await receive()
    gone = asyncio.ensure_future(receive())
    while not gone.done():
        await send({"type": "http.response.body", "body": PIECE, "more_body": True})
        await asyncio.sleep(0.02)
    cancelled += 1
