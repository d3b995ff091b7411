"""One end of the HTTP/3 interop tests, by `ringloop.h3`; the contract is in contract.py."""

import asyncio
from collections.abc import Awaitable, Callable

from contract import (
    LARGE,
    LINK,
    PARALLEL,
    PIECE,
    PRIORITY,
    SMALL,
    TRAILER,
    WrongError,
    main,
    pattern,
    same,
)

from ringloop import h3, quic

cancelled = 0
stopping = asyncio.Event()


async def serve(host: str, port: int, cert: str, key: str) -> None:
    """Serve until asked to shut down."""
    server = await h3.serve(answer, host, port, certificate=cert, private_key=key)
    await stopping.wait()
    await server.shut_down(10)


async def answer(request: h3.Request) -> None:
    """Answer by the path."""
    match (request.path or "").split("/")[1:]:
        case ["small"]:
            # A response to HEAD has the same fields, and no body.
            await request.respond(200, {"content-length": str(len(SMALL))}, SMALL)
        case ["number", number]:
            await request.respond(200, {}, number.encode())
        case ["echo"]:
            request.start()
            async for piece in request:
                await request.send(piece)
            if request.trailers:
                request.send_trailers(request.trailers)
        case ["headers"]:
            await request.respond(200, {"x-large": field(request, "x-large")}, SMALL)
        case ["trailers"]:
            request.start()
            await request.send(SMALL)
            request.send_trailers([(TRAILER.encode(), b"42")])
        case ["interim"]:
            request.start(103, {"link": LINK})
            await request.respond(200, {}, SMALL)
        case ["priority"]:
            await request.respond(200, {}, field(request, "priority").encode())
        case ["cancelled"]:
            await request.respond(200, {}, str(cancelled).encode())
        case ["endless"]:
            await endless(request)
        case ["reset"]:
            request.start()
            await request.send(SMALL)
            request.cancel(0x102)
        case ["goaway"]:
            stopping.set()
            request.start()
            await request.send(pattern())
        case _:
            await request.respond(404)


async def endless(request: h3.Request) -> None:
    """Send until the client cancels, and count it."""
    global cancelled  # noqa: PLW0603
    request.start()
    try:
        while True:
            await request.send(PIECE)
    except (quic.StreamStoppedError, quic.StreamResetError):
        cancelled += 1
        raise


def field(message: h3.Request | h3.Response, name: str) -> str:
    """Return a field of a request or a response."""
    return dict(message.headers or []).get(name.encode(), b"").decode()


# --- the client -----------------------------------------------------------------------------------


async def get(
    client: h3.Client, path: str = "/small", wanted: bytes = SMALL, **fields: str
) -> h3.Response:
    """Send a request and compare the body of its response."""
    response = await client.request("GET", path, fields)
    same(response.status, 200)
    same(await response.read(), wanted)
    return response


async def post(client: h3.Client) -> None:
    """Send a body and receive it back."""
    data = pattern()
    response = await echo(client, data)
    same(response.status, 200)


async def echo(client: h3.Client, data: bytes, trailer: str = "") -> h3.Response:
    """Send a body while the same comes back."""
    trailers = {TRAILER: trailer} if trailer else None
    head = [(b":method", b"POST"), (b":scheme", b"https"), (b":path", b"/echo")]
    exchange = await client.open([*head, (b":authority", client.authority.encode())])

    async def send() -> None:
        await exchange.send(data, end=trailers is None)
        if trailers:
            exchange.send_trailers([(TRAILER.encode(), trailer.encode())])

    _, back = await asyncio.gather(send(), exchange.read())
    same(back, data)
    return exchange


async def parallel(client: h3.Client) -> None:
    """Have many requests under way at once."""
    await asyncio.gather(*(get(client, f"/number/{at}", b"%d" % at) for at in range(PARALLEL)))


async def headers(client: h3.Client) -> None:
    """Send a large field and receive it back."""
    response = await client.request("GET", "/headers", {"x-large": LARGE})
    same(field(response, "x-large"), LARGE)
    same(await response.read(), SMALL)


async def trailers(client: h3.Client) -> None:
    """Receive trailers."""
    response = await get(client, "/trailers", te="trailers")
    same(response.trailers, [(TRAILER.encode(), b"42")])


async def request_trailers(client: h3.Client) -> None:
    """Send trailers and receive them back."""
    response = await echo(client, SMALL, "7")
    same(response.trailers, [(TRAILER.encode(), b"7")])


async def interim(client: h3.Client) -> None:
    """Receive an interim response before the final one."""
    response = await get(client, "/interim")
    same([status for status, _ in response.take_interim()], [103])


async def head(client: h3.Client) -> None:
    """Receive a response without a body."""
    response = await client.request("HEAD", "/small")
    same(response.status, 200)
    same(field(response, "content-length"), str(len(SMALL)))
    same(await response.read(), b"")


async def priority(client: h3.Client) -> None:
    """Send a priority."""
    response = await client.request("GET", "/priority", {"priority": PRIORITY})
    same(await response.read(), PRIORITY.encode())


async def client_reset(client: h3.Client) -> None:
    """Cancel a response; the server and the connection take it well."""
    response = await client.request("GET", "/endless")
    await response.read(1)
    response.cancel()
    while await (await client.request("GET", "/cancelled")).read() != b"1":
        await asyncio.sleep(0.05)


async def server_reset(client: h3.Client) -> None:
    """A response is reset; the connection goes on."""
    try:
        await (await client.request("GET", "/reset")).read()
    except quic.StreamResetError:
        await get(client)
    else:
        raise WrongError("the response was complete")


async def goaway(client: h3.Client) -> None:
    """The server shuts down while it answers."""
    await get(client, "/goaway", pattern())
    while not client.is_going_away:
        if client.connection.is_closed:
            raise WrongError("the connection was closed without GOAWAY")
        await asyncio.sleep(0.01)


CASES: dict[str, Callable[[h3.Client], Awaitable[object]]] = {
    "get": get,
    "head": head,
    "post": post,
    "parallel": parallel,
    "headers": headers,
    "trailers": trailers,
    "request-trailers": request_trailers,
    "interim": interim,
    "priority": priority,
    "client-reset": client_reset,
    "server-reset": server_reset,
    "goaway": goaway,
}


async def run(case: str, port: int, ca: str) -> None:
    """Run one case on a connection of its own."""
    async with h3.connect("127.0.0.1", port, ca_file=ca, server_name="localhost") as client:
        await CASES[case](client)


if __name__ == "__main__":
    main(serve, run)
