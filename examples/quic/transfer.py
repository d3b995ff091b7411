"""Send a file, with a bar that tells how much of it the peer's program has taken.

python examples/quic/transfer.py receive cert.pem key.pem FOLDER
python examples/quic/transfer.py send ca.pem FILE
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from pathlib import Path

from ringloop import quic

HOST, PORT = "127.0.0.1", 4436
PIECE = 256 * 1024


async def receive(certificate: str, key: str, folder: str) -> None:
    async def store(stream: quic.Stream) -> None:
        name = Path((await stream.readline()).decode().rstrip("\n")).name
        digest = hashlib.sha256()
        with Path(folder, name).open("wb") as file:
            async for chunk in stream.chunks(PIECE):
                digest.update(chunk)
                await asyncio.to_thread(file.write, chunk)
        stream.write(digest.digest())

    async with await quic.serve(
        host=HOST,
        port=PORT,
        stream_handler=store,
        certificate=certificate,
        private_key=key,
        alpn=["transfer"],
    ):
        await asyncio.Event().wait()


async def send(authority: str, path: Path) -> None:
    async with quic.connect(
        HOST, PORT, server_name="localhost", ca_file=authority, alpn=["transfer"]
    ) as connection:
        stream = await connection.open_stream()
        stream.write(path.name.encode() + b"\n")
        digest, sent, total = hashlib.sha256(), 0, path.stat().st_size
        with path.open("rb") as file:
            while piece := file.read(PIECE):
                digest.update(piece)
                stream.write(piece)
                # Waits for the network and, in the end, for the disk of the other side.
                await stream.drain()
                sent += len(piece)
                done = 40 * sent // max(total, 1)
                print(f"\r[{'#' * done:40}] {100 * sent // max(total, 1)} %", end="")
        stream.finish()
        stored = await stream.read_to_end()
        print(" stored" if stored == digest.digest() else " DIFFERS")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["receive", certificate, key, folder]:
            asyncio.run(receive(certificate, key, folder))
        case ["send", authority, path]:
            asyncio.run(send(authority, Path(path)))
        case _:
            sys.exit(__doc__)
