"""One end of the HTTP/3 interop tests, by aioquic; the contract is in contract.py.

aioquic sends and receives neither interim responses nor GOAWAY, and takes no reset of a server as an
event of HTTP/3.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.asyncio import serve as serve_quic
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, H3Event, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import QuicEvent, StopSendingReceived, StreamReset
from contract import (
    LARGE,
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

Fields = list[tuple[bytes, bytes]]
STREAM_BYTES_MAX = 4 << 20


class Message:
    """What has come on a stream."""

    def __init__(self) -> None:
        self.sections: list[Fields] = []
        self.body = bytearray()
        self.has_begun = asyncio.Event()
        self.has_ended = asyncio.Event()
        self.was_reset = False
        self.was_stopped = False


class Peer(QuicConnectionProtocol):
    """A connection of either role."""

    cancelled = 0

    def __init__(self, *words: Any, **more: Any) -> None:
        super().__init__(*words, **more)
        self.http = H3Connection(self._quic)
        self.messages: dict[int, Message] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    def quic_event_received(self, event: QuicEvent) -> None:
        """Take an event of QUIC."""
        if isinstance(event, (StreamReset, StopSendingReceived)):
            message = self.messages.setdefault(event.stream_id, Message())
            if isinstance(event, StreamReset):
                message.was_reset = True
            else:
                message.was_stopped = True
            message.has_begun.set()
            message.has_ended.set()
        for one in self.http.handle_event(event):
            self.take(one)

    def take(self, event: H3Event) -> None:
        """Take an event of HTTP/3."""
        if not isinstance(event, (HeadersReceived, DataReceived)):
            return
        is_new = event.stream_id not in self.messages
        message = self.messages.setdefault(event.stream_id, Message())
        if isinstance(event, HeadersReceived):
            message.sections.append(event.headers)
        else:
            message.body += event.data
        message.has_begun.set()
        if event.stream_ended:
            message.has_ended.set()
        if is_new and not self._quic.configuration.is_client:
            task = asyncio.ensure_future(self.answer(event.stream_id, message))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    def send(self, stream: int, fields: Fields, body: bytes | None, trailers: Fields = ()) -> None:
        """Send a message."""
        self.http.send_headers(stream, fields, end_stream=body is None)
        if body is not None:
            self.http.send_data(stream, body, end_stream=not trailers)
        if trailers:
            self.http.send_headers(stream, trailers, end_stream=True)
        self.transmit()

    async def answer(self, stream: int, message: Message) -> None:
        """Answer by the path."""
        fields = dict(message.sections[0])
        ok = [(b":status", b"200")]
        match fields[b":path"].decode().split("/")[1:]:
            case ["small"]:
                length = (b"content-length", b"%d" % len(SMALL))
                is_head = fields[b":method"] == b"HEAD"
                self.send(stream, [*ok, length], None if is_head else SMALL)
            case ["number", number]:
                self.send(stream, ok, number.encode())
            case ["echo"]:
                await message.has_ended.wait()
                more = message.sections[1] if len(message.sections) > 1 else []
                self.send(stream, ok, bytes(message.body), more)
            case ["headers"]:
                self.send(stream, [*ok, (b"x-large", fields[b"x-large"])], SMALL)
            case ["trailers"]:
                self.send(stream, ok, SMALL, [(TRAILER.encode(), b"42")])
            case ["priority"]:
                self.send(stream, ok, fields[b"priority"])
            case ["cancelled"]:
                self.send(stream, ok, b"%d" % Peer.cancelled)
            case ["endless"]:
                self.http.send_headers(stream, ok)
                while not (message.was_stopped or message.was_reset):
                    self.http.send_data(stream, PIECE, end_stream=False)
                    self.transmit()
                    await asyncio.sleep(0.02)
                Peer.cancelled += 1
            case ["reset"]:
                self.http.send_headers(stream, ok)
                self.http.send_data(stream, SMALL, end_stream=False)
                self.transmit()
                self._quic.reset_stream(stream, 0x102)
                self.transmit()
            case _:
                self.send(stream, [(b":status", b"404")], None)

    # --- the client

    def ask(
        self,
        method: str,
        path: str,
        more: Fields = (),
        body: bytes | None = None,
        trailers: Fields = (),
    ) -> tuple[int, Message]:
        """Send a request."""
        stream = self._quic.get_next_available_stream_id()
        message = self.messages[stream] = Message()
        head = [(b":method", method.encode()), (b":scheme", b"https")]
        head += [(b":authority", b"localhost"), (b":path", path.encode())]
        self.send(stream, [*head, *more], body, trailers)
        return stream, message

    async def fetch(self, *words: Any, **more: Any) -> Message:
        """Send a request and wait for the end of the response."""
        _, message = self.ask(*words, **more)
        await message.has_ended.wait()
        if message.was_reset:
            raise WrongError("the response was reset")
        same(dict(message.sections[0])[b":status"], b"200")
        return message


async def serve(host: str, port: int, cert: str, key: str) -> None:
    """Serve until killed."""
    configuration = QuicConfiguration(
        is_client=False, alpn_protocols=H3_ALPN, max_stream_data=STREAM_BYTES_MAX
    )
    configuration.load_cert_chain(cert, key)
    await serve_quic(host, port, configuration=configuration, create_protocol=Peer)
    await asyncio.Event().wait()


async def get(peer: Peer) -> None:
    same((await peer.fetch("GET", "/small")).body, SMALL)


async def head(peer: Peer) -> None:
    message = await peer.fetch("HEAD", "/small")
    same(dict(message.sections[0])[b"content-length"], b"%d" % len(SMALL))
    same(message.body, b"")


async def post(peer: Peer) -> None:
    data = pattern()
    same((await peer.fetch("POST", "/echo", body=data)).body, data)


async def parallel(peer: Peer) -> None:
    async def one(number: int) -> None:
        same((await peer.fetch("GET", f"/number/{number}")).body, b"%d" % number)

    await asyncio.gather(*map(one, range(PARALLEL)))


async def headers(peer: Peer) -> None:
    message = await peer.fetch("GET", "/headers", [(b"x-large", LARGE.encode())])
    same(dict(message.sections[0])[b"x-large"].decode(), LARGE)


async def trailers(peer: Peer) -> None:
    message = await peer.fetch("GET", "/trailers")
    same(message.sections[1:], [[(TRAILER.encode(), b"42")]])


async def request_trailers(peer: Peer) -> None:
    sent = [(TRAILER.encode(), b"7")]
    message = await peer.fetch("POST", "/echo", body=SMALL, trailers=sent)
    same(message.sections[1:], [sent])


async def priority(peer: Peer) -> None:
    message = await peer.fetch("GET", "/priority", [(b"priority", PRIORITY.encode())])
    same(message.body, PRIORITY.encode())


async def client_reset(peer: Peer) -> None:
    stream, message = peer.ask("GET", "/endless")
    await message.has_begun.wait()
    peer._quic.stop_stream(stream, 0x10C)
    peer.transmit()
    while (await peer.fetch("GET", "/cancelled")).body != b"1":
        await asyncio.sleep(0.05)


async def server_reset(peer: Peer) -> None:
    _, message = peer.ask("GET", "/reset")
    await message.has_ended.wait()
    same(message.was_reset, True)
    await get(peer)


async def goaway(peer: Peer) -> None:
    data = pattern()
    same((await peer.fetch("GET", "/goaway")).body, data)


CASES: dict[str, Callable[[Peer], Awaitable[None]]] = {
    "get": get,
    "head": head,
    "post": post,
    "parallel": parallel,
    "headers": headers,
    "trailers": trailers,
    "request-trailers": request_trailers,
    "priority": priority,
    "client-reset": client_reset,
    "server-reset": server_reset,
    "goaway": goaway,
}


async def run(case: str, port: int, ca: str) -> None:
    """Run one case on a connection of its own."""
    configuration = QuicConfiguration(
        alpn_protocols=H3_ALPN, server_name="localhost", max_stream_data=STREAM_BYTES_MAX
    )
    configuration.load_verify_locations(ca)
    async with connect("127.0.0.1", port, configuration=configuration, create_protocol=Peer) as it:
        await CASES[case](it)


if __name__ == "__main__":
    main(serve, run)
