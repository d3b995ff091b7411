"""A bulk transfer over a network that loses one per cent, with every byte compared.

`make quic-bulk` moves a gigabyte each way.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.quic.support import dialled, served
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ringloop import quic
    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]

# Bytes each way. `make quic-bulk` sets more; ordinary runs transfer at most this, on every loop.
ORDINARY = 16 << 20
TOTAL = int(
    os.environ.get("RINGLOOP_QUIC_BYTES")
    or min(int(os.environ.get("RINGLOOP_TEST_BYTES", ORDINARY)), ORDINARY)
)
PIECE = 256 << 10
# A prime length, so that no two parts of a gigabyte are equal.
NOISE = random.Random(7).randbytes(1_048_573)
NOISE += NOISE[:PIECE]


def piece(at: int) -> bytes:
    """The bytes at an offset."""
    start = at % 1_048_573
    return NOISE[start : start + min(PIECE, TOTAL - at)]


async def send(stream: quic.Stream) -> None:
    for at in range(0, TOTAL, PIECE):
        await stream.send(piece(at))
    stream.finish()


async def verify(stream: quic.Stream) -> None:
    for at in range(0, TOTAL, PIECE):
        wanted = piece(at)
        assert await stream.readexactly(len(wanted)) == wanted, f"at {at}"
    assert await stream.read(1) == b""


@asynccontextmanager
async def lossy(server: Any, loss: float) -> AsyncIterator[tuple[str, int]]:
    """A relay in a process of its own, which ends at EOF on its standard input."""
    program = (sys.executable, "-m", "tests.quic.relay", *map(str, server[:2]), str(loss), "9")
    process = await asyncio.create_subprocess_exec(
        *program, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin
    assert process.stdout
    try:
        yield "127.0.0.1", int(await within(process.stdout.readline(), 30))
    finally:
        process.stdin.close()
        await within(process.wait(), 30)


@pytest.mark.large
@pytest.mark.timeout(900)
@pytest.mark.one_thread("it starts a process, and is large")
def test_much_through_a_hundredth_of_loss(
    run: Run, certificates: Certificates, loop_name: str
) -> None:
    async def main() -> None:
        async def exchange(stream: quic.Stream) -> None:
            await asyncio.gather(send(stream), verify(stream))

        async with served(certificates, stream_handler=exchange) as server:
            async with lossy(server.address, 0.01) as address:
                async with dialled(certificates, address) as connection:
                    stream = await connection.open_stream()
                    began = time.perf_counter()
                    await asyncio.gather(send(stream), verify(stream))
                    took = time.perf_counter() - began
                    assert await within(stream.acked(), 30)
                    stats = connection.stats()
                    sys.stdout.write(
                        f"{loop_name}: {TOTAL >> 20} MiB each way in {took:.1f} s, "
                        f"{stats.packets_lost} of {stats.packets_sent} packets lost\n"
                    )
                    assert stats.packets_lost * 1000 > stats.packets_sent * 5

    run(main())
