"""0-RTT: the second connection's request travels with its first packet.

    python examples/quic/early.py serve cert.pem key.pem
    python examples/quic/early.py ask ca.pem

Early data may be sent again by whoever has recorded it: ask only for what may happen twice.
"""

from __future__ import annotations

import asyncio
import sys
import time

from ringloop import quic

HOST, PORT = "127.0.0.1", 4437


async def answer(stream: quic.Stream) -> None:
    stream.write(await stream.read_to_end(limit=1024))


async def serve(certificate: str, key: str) -> None:
    async with await quic.serve(
        host=HOST,
        port=PORT,
        stream_handler=answer,
        certificate=certificate,
        private_key=key,
        alpn=["early"],
        early_data=True,
    ):
        await asyncio.Event().wait()


async def ask(authority: str) -> None:
    # Sessions are kept in the configuration: use the same one again.
    configuration = quic.ClientConfig(ca_file=authority, alpn=["early"])
    for attempt in ("first", "second"):
        begun = time.perf_counter()
        async with quic.connect(
            HOST, PORT, server_name="localhost", configuration=configuration, early_data=True
        ) as connection:
            stream = await connection.open_stream()
            stream.write(b"what time is it?")
            stream.finish()
            await stream.read_to_end()
            took = time.perf_counter() - begun
            await connection.wait_connected()
            how = "early" if connection.early_data_accepted else "after the handshake"
            print(f"{attempt}: answered {took * 1e3:.2f} ms after the start, asked {how}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", certificate, key]:
            asyncio.run(serve(certificate, key))
        case ["ask", authority]:
            asyncio.run(ask(authority))
        case _:
            sys.exit(__doc__)
