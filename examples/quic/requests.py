"""Requests and responses: a stream each, a hundred at a time, and what one takes.

python examples/quic/requests.py serve cert.pem key.pem
python examples/quic/requests.py ask ca.pem
"""

from __future__ import annotations

import asyncio
import sys
import time

from ringloop import quic

HOST, PORT = "127.0.0.1", 4434


async def answer(stream: quic.Stream) -> None:
    try:
        request = await stream.read_to_end(limit=64 * 1024)
    except asyncio.LimitOverrunError:
        stream.stop(1)
        stream.reset(1)
        return
    stream.write(request.upper())


async def serve(certificate: str, key: str) -> None:
    async with await quic.serve(
        host=HOST,
        port=PORT,
        stream_handler=answer,
        certificate=certificate,
        private_key=key,
        alpn=["requests"],
        retry="auto",
    ):
        await asyncio.Event().wait()


async def ask(authority: str) -> None:
    async with quic.connect(
        HOST, PORT, server_name="localhost", ca_file=authority, alpn=["requests"]
    ) as connection:

        async def one(number: int) -> float:
            begun = time.perf_counter()
            # Waits where the server allows no more streams at a time.
            async with await connection.open_stream() as stream:
                stream.write(f"request {number}".encode())
                stream.finish()
                assert await stream.read_to_end() == f"REQUEST {number}".encode()
            return time.perf_counter() - begun

        times = sorted(await asyncio.gather(*map(one, range(100))))
        print(f"fastest {times[0] * 1e3:.2f} ms, slowest {times[-1] * 1e3:.2f} ms")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", certificate, key]:
            asyncio.run(serve(certificate, key))
        case ["ask", authority]:
            asyncio.run(ask(authority))
        case _:
            sys.exit(__doc__)
