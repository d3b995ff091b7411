"""Echo: a server that sends back what comes on each stream, and a client.

python examples/quic/echo.py serve cert.pem key.pem
python examples/quic/echo.py send ca.pem "some words"
"""

from __future__ import annotations

import asyncio
import sys

from ringloop import quic

HOST, PORT = "127.0.0.1", 4433


async def echo(stream: quic.Stream) -> None:
    async for chunk in stream.chunks():
        stream.write(chunk)
        await stream.drain()


async def serve(certificate: str, key: str) -> None:
    async with await quic.serve(
        host=HOST,
        port=PORT,
        stream_handler=echo,
        certificate=certificate,
        private_key=key,
        alpn=["echo"],
    ) as server:
        print("serving on", server.address)
        await asyncio.Event().wait()


async def send(authority: str, words: str) -> None:
    async with quic.connect(
        HOST, PORT, server_name="localhost", ca_file=authority, alpn=["echo"]
    ) as connection:
        stream = await connection.open_stream()
        stream.write(words.encode())
        stream.finish()
        print((await stream.read_to_end()).decode())


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", certificate, key]:
            asyncio.run(serve(certificate, key))
        case ["send", authority, words]:
            asyncio.run(send(authority, words))
        case _:
            sys.exit(__doc__)
