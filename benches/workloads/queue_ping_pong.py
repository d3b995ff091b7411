"""Queue ping-pong: two tasks pass one item back and forth through two asyncio queues.

One operation is one hand-over: a put, a get that had to wait, and the task switch between them.
"""

import asyncio

from support.scheduling import measure

ROUND_TRIPS = 5_000


async def ping_pong() -> None:
    """Play one game."""
    there: asyncio.Queue[int] = asyncio.Queue()
    back: asyncio.Queue[int] = asyncio.Queue()

    async def partner() -> None:
        for _ in range(ROUND_TRIPS):
            await back.put(await there.get())

    playing = asyncio.ensure_future(partner())
    for number in range(ROUND_TRIPS):
        await there.put(number)
        await back.get()
    await playing


def one_round(loop: asyncio.AbstractEventLoop) -> int:
    """Run one game."""
    loop.run_until_complete(ping_pong())
    return 2 * ROUND_TRIPS


if __name__ == "__main__":
    measure(one_round)
