"""A game's tick: positions as datagrams, thirty times a second; only the newest counts.

python examples/quic/game.py serve cert.pem key.pem
python examples/quic/game.py play ca.pem
"""

from __future__ import annotations

import asyncio
import struct
import sys
import time

from ringloop import quic

HOST, PORT = "127.0.0.1", 4435
TICK = 1 / 30
STATE = struct.Struct("!Idd")


async def room(connection: quic.Connection) -> None:
    """Send every position back, with the time that it was sent at."""
    while True:
        for datagram in await connection.receive_datagrams():
            # What waits longer than a tick is of no use.
            await connection.send_datagram(datagram, "drop_oldest", expires=TICK)


async def serve(certificate: str, key: str) -> None:
    async with await quic.serve(
        room, HOST, PORT, certificate=certificate, private_key=key, alpn=["game"]
    ):
        await asyncio.Event().wait()


async def play(authority: str) -> None:
    async with quic.connect(
        HOST, PORT, server_name="localhost", ca_file=authority, alpn=["game"]
    ) as connection:
        seen = asyncio.create_task(watch(connection))
        for tick in range(90):
            await connection.send_datagram(STATE.pack(tick, tick * 0.5, time.monotonic()))
            await asyncio.sleep(TICK)
        seen.cancel()
        print(connection.stats())


async def watch(connection: quic.Connection) -> None:
    while True:
        tick, x, sent = STATE.unpack((await connection.receive_datagrams())[-1])
        print(f"tick {tick}: x = {x}, {(time.monotonic() - sent) * 1e3:.2f} ms", end="\r")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", certificate, key]:
            asyncio.run(serve(certificate, key))
        case ["play", authority]:
            asyncio.run(play(authority))
        case _:
            sys.exit(__doc__)
