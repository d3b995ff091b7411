"""The ASGI application of the HTTP/3 servers, and of WebTransport by ASGI.

Owns: nothing; the contract is in `contract`. Called by: the servers, as `app:app`.
"""

import asyncio
from typing import Any

from contract import GREETING, Counts, answer, chunks

PLAIN = [(b"content-type", b"text/plain")]
COUNTS = Counts()


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer one request, session or the lifespan."""
    match scope["type"]:
        case "http":
            await respond(scope, receive, send)
        case "lifespan":
            await live(receive, send)
        case "webtransport":
            await session(scope, receive, send)


async def patient(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """The same for hypercorn's family, which fails when a response overtakes the end of its request.

    The end comes in a packet of its own when the client is busy; `H3Protocol.handle` has forgotten
    the stream by then, and its KeyError ends the connection's other requests too.
    """
    if scope["type"] == "http" and scope["method"] != "POST":
        while (await receive()).get("more_body", False):
            pass
    await app(scope, receive, send)


async def respond(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answer a request."""
    if scope["method"] == "POST":
        received, more = 0, True
        while more:
            message = await receive()
            received += len(message.get("body", b""))
            more = message.get("more_body", False)
        body = b"%d" % received
    elif scope["path"] == "/":
        body = GREETING
    else:
        await send({"type": "http.response.start", "status": 200, "headers": PLAIN})
        for chunk in chunks(int(scope["path"][1:])):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        return
    await send({"type": "http.response.start", "status": 200, "headers": PLAIN})
    await send({"type": "http.response.body", "body": body})


async def live(receive: Any, send: Any) -> None:
    """Nothing is to be started."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def session(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Serve a session of WebTransport by peregrine-server's own adapter."""
    from peregrine.webtransport import WebTransportSession

    served = WebTransportSession(scope, receive, send)
    await served.accept()
    counting = asyncio.create_task(count(served))
    tasks = {counting}
    async for stream in served.incoming_streams():
        task = asyncio.create_task(reply(stream))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    counting.cancel()


async def reply(stream: Any) -> None:
    """Answer one stream of a session."""
    await answer(aiter(stream), stream.send, COUNTS)
    await stream.end()


async def count(served: Any) -> None:
    """Count the datagrams of a session."""
    async for _ in served.datagrams():
        COUNTS.datagrams += 1
