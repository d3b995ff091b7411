"""Bursts of datagrams: each callback sends 64 of 1,200 bytes to one peer.

One operation is one datagram sent. The peer's socket is never read; once its buffer is full the kernel
drops the datagrams, after the sender has paid for them.
"""

import asyncio
import socket

from support.scheduling import measure

BURST = 64
BURSTS = 200
DATA = bytes(1200)


def one_round(loop: asyncio.AbstractEventLoop) -> int:
    """Send the bursts, one per iteration of the loop."""

    async def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            peer.bind(("127.0.0.1", 0))
            transport, _ = await loop.create_datagram_endpoint(
                asyncio.DatagramProtocol, remote_addr=peer.getsockname()
            )
            sendto = transport.sendto
            for _ in range(BURSTS):
                for _ in range(BURST):
                    sendto(DATA)
                await asyncio.sleep(0)
            transport.close()
            await asyncio.sleep(0)

    loop.run_until_complete(send())
    return BURST * BURSTS


if __name__ == "__main__":
    measure(one_round)
