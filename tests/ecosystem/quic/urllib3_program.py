"""Query an HTTP/3 server with urllib3-future: PROGRAM qh3|ringloop FOLDER."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from tests.ecosystem.quic import shim

shim.install("aioquic")
if sys.argv[1] == "ringloop":
    shim.install("qh3")

import urllib3
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from urllib3 import HttpVersion

from ringloop.quic.asyncio import QuicConnectionProtocol, serve
from ringloop.quic.configuration import QuicConfiguration

FOLDER = sys.argv[2]


class Server(QuicConnectionProtocol):
    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.http = H3Connection(self._quic)
        self.sizes: dict[int, int] = {}

    def quic_event_received(self, event: Any) -> None:
        for part in self.http.handle_event(event):
            if isinstance(part, HeadersReceived | DataReceived):
                size = len(part.data) if isinstance(part, DataReceived) else 0
                self.sizes[part.stream_id] = self.sizes.get(part.stream_id, 0) + size
                if part.stream_ended:
                    self.http.send_headers(part.stream_id, [(b":status", b"200")])
                    body = b"%08d" % self.sizes.pop(part.stream_id) + bytes(300_000)
                    self.http.send_data(part.stream_id, body, end_stream=True)
        self.transmit()


def ask(port: int) -> None:
    with urllib3.PoolManager(
        ca_certs=f"{FOLDER}/authority.pem",
        disabled_svn={HttpVersion.h11, HttpVersion.h2},
        timeout=20,
        retries=False,
    ) as pool:
        for size in (0, 500_000, 10):
            response = pool.request("POST", f"https://localhost:{port}/", body=bytes(size))
            assert response.version == 30, response.version
            assert response.status == 200
            assert response.data == b"%08d" % size + bytes(300_000)


async def main() -> None:
    configuration = QuicConfiguration(
        alpn_protocols=H3_ALPN, is_client=False, max_datagram_frame_size=65536
    )
    configuration.load_cert_chain(f"{FOLDER}/certificate.pem", f"{FOLDER}/key.pem")
    async with await serve(
        "127.0.0.1", 0, configuration=configuration, create_protocol=Server
    ) as server:
        await asyncio.to_thread(ask, server.sockname[1])
    print("done")


asyncio.run(main())
