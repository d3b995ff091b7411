"""Tasks: batches of 5,000 tasks, each suspended once, gathered.

One operation is one task: made, started, suspended, resumed, finished, awaited.
"""

import asyncio

from support.scheduling import measure

TASKS = 5_000


async def suspended_once() -> None:
    """Yield to the loop once."""
    await asyncio.sleep(0)


async def batch() -> None:
    """Gather one batch."""
    await asyncio.gather(*(suspended_once() for _ in range(TASKS)))


def one_round(loop: asyncio.AbstractEventLoop) -> int:
    """Run one batch of tasks."""
    loop.run_until_complete(batch())
    return TASKS


if __name__ == "__main__":
    measure(one_round)
