"""HTTP/3 and WebTransport in aioquic's shape: PROGRAM aioquic|ringloop|ringloop-http3 FOLDER.

A server with a protocol a connection and handlers of requests and sessions, and a client that makes
requests and opens a session; both with aioquic's names alone.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from tests.ecosystem.quic import shim

if sys.argv[1] != "aioquic":
    shim.install("aioquic", http3=sys.argv[1] == "ringloop-http3")

from aioquic.asyncio import QuicConnectionProtocol, connect, serve
from aioquic.h3.connection import H3_ALPN, ErrorCode, H3Connection
from aioquic.h3.events import (
    DatagramReceived,
    DataReceived,
    HeadersReceived,
    WebTransportStreamDataReceived,
)
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ProtocolNegotiated, StreamReset

FOLDER = sys.argv[2]
BODY = bytes(range(256)) * 400


class Server(QuicConnectionProtocol):
    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.http: Any = None
        self.bodies: dict[int, bytearray] = {}

    def quic_event_received(self, event: Any) -> None:
        if isinstance(event, ProtocolNegotiated):
            self.http = H3Connection(self._quic, enable_webtransport=True)
        if self.http is not None:
            for told in self.http.handle_event(event):
                self.told(told)
            self.transmit()

    def told(self, event: Any) -> None:
        if isinstance(event, HeadersReceived):
            fields = dict(event.headers)
            if fields.get(b":protocol") == b"webtransport":
                headers = [(b":status", b"200"), (b"sec-webtransport-http3-draft", b"draft02")]
                self.http.send_headers(event.stream_id, headers)
                return
            self.bodies[event.stream_id] = bytearray()
        if isinstance(event, DataReceived) and event.stream_id in self.bodies:
            self.bodies[event.stream_id] += event.data
        if isinstance(event, HeadersReceived | DataReceived) and event.stream_ended:
            self.answer(event.stream_id)
        if isinstance(event, DatagramReceived):
            self.http.send_datagram(event.stream_id, event.data)
        if isinstance(event, WebTransportStreamDataReceived):
            # Of a stream that it has opened itself, aioquic tells nothing.
            stream_id = self.http.create_webtransport_stream(
                event.session_id, is_unidirectional=True
            )
            self._quic.send_stream_data(stream_id, event.data, event.stream_ended)

    def answer(self, stream_id: int) -> None:
        body = bytes(self.bodies.pop(stream_id))
        if body == b"reset":
            self._quic.reset_stream(stream_id, ErrorCode.H3_INTERNAL_ERROR)
            return
        headers = [
            (b":status", b"200"),
            (b"server", b"s"),
            (b"set-cookie", b"a"),
            (b"set-cookie", b"b"),
        ]
        self.http.send_headers(stream_id, headers)
        self.http.send_data(stream_id, body + BODY, end_stream=False)
        self.http.send_headers(stream_id, [(b"sum", b"1")], end_stream=True)


class Client(QuicConnectionProtocol):
    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.http = H3Connection(self._quic, enable_webtransport=True)
        self.told: asyncio.Queue[Any] = asyncio.Queue()

    def quic_event_received(self, event: Any) -> None:
        for told in self.http.handle_event(event):
            self.told.put_nowait(told)
        if isinstance(event, StreamReset):
            self.told.put_nowait(event)

    def request(self, method: bytes, *more: tuple[bytes, bytes]) -> int:
        stream_id: int = self._quic.get_next_available_stream_id()
        headers = [
            (b":method", method),
            (b":scheme", b"https"),
            (b":authority", b"localhost"),
            (b":path", b"/"),
            *more,
        ]
        self.http.send_headers(stream_id, headers)
        return stream_id

    async def until(self, kind: type, stream_id: int | None = None) -> Any:
        """Wait for an event of a kind that ends its stream; that, and the data until then."""
        data = bytearray()
        while True:
            event = await asyncio.wait_for(self.told.get(), 10)
            assert stream_id in (None, event.stream_id)
            if isinstance(event, DataReceived | WebTransportStreamDataReceived):
                data += event.data
            if isinstance(event, kind) and getattr(event, "stream_ended", True):
                return event, bytes(data)


async def requests(client: Client) -> None:
    stream_id = client.request(b"POST", (b"content-length", b"3"))
    client.http.send_data(stream_id, b"abc", end_stream=True)
    client.transmit()
    first = await asyncio.wait_for(client.told.get(), 10)
    assert [value for name, value in first.headers if name == b"set-cookie"] == [b"a", b"b"]
    last, data = await client.until(HeadersReceived, stream_id)
    assert last.headers == [(b"sum", b"1")]
    assert data == b"abc" + BODY
    stream_id = client.request(b"POST")
    client.http.send_data(stream_id, b"reset", end_stream=True)
    client.transmit()
    event, _data = await client.until(StreamReset, stream_id)
    assert event.error_code == ErrorCode.H3_INTERNAL_ERROR


async def session(client: Client) -> None:
    session_id = client.request(b"CONNECT", (b":protocol", b"webtransport"))
    client.transmit()
    answer = await asyncio.wait_for(client.told.get(), 10)
    assert answer.headers[0] == (b":status", b"200")
    client.http.send_datagram(session_id, b"datagram")
    client.transmit()
    event, _data = await client.until(DatagramReceived, session_id)
    assert event.data == b"datagram"
    for is_unidirectional in (False, True):
        stream_id = client.http.create_webtransport_stream(session_id, is_unidirectional)
        client._quic.send_stream_data(stream_id, b"end", end_stream=True)
        client.transmit()
        event, data = await client.until(WebTransportStreamDataReceived)
        assert event.session_id == session_id
        assert event.stream_id % 4 == 3
        assert data == b"end"


async def main() -> None:
    server_side = QuicConfiguration(
        alpn_protocols=H3_ALPN, is_client=False, max_datagram_frame_size=65536
    )
    server_side.load_cert_chain(f"{FOLDER}/certificate.pem", f"{FOLDER}/key.pem")
    client_side = QuicConfiguration(
        alpn_protocols=H3_ALPN, server_name="localhost", max_datagram_frame_size=65536
    )
    client_side.load_verify_locations(f"{FOLDER}/authority.pem")
    server = await serve("127.0.0.1", 0, configuration=server_side, create_protocol=Server)
    port = server._transport.get_extra_info("sockname")[1]
    async with connect(
        "127.0.0.1", port, configuration=client_side, create_protocol=Client
    ) as client:
        await requests(client)
        await session(client)
        assert client.http.received_settings[0x33] == 1
    server.close()
    print("done")


asyncio.run(main())
