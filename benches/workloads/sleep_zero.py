"""sleep(0): one task that yields repeatedly.

One operation is one `await asyncio.sleep(0)`.
"""

import asyncio

from support.scheduling import measure

SLEEPS = 20_000


async def sleeper() -> None:
    """Yield many times."""
    sleep = asyncio.sleep
    for _ in range(SLEEPS):
        await sleep(0)


def one_round(loop: asyncio.AbstractEventLoop) -> int:
    """Run one sleeper."""
    loop.run_until_complete(sleeper())
    return SLEEPS


if __name__ == "__main__":
    measure(one_round)
