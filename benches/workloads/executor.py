"""run_in_executor round trips, one at a time, through the loop's default executor.

One operation is one `await loop.run_in_executor(None, nothing)`: the call handed to a thread, its
result handed back, the task resumed. Loop and thread share one CPU and, on ordinary builds, the GIL.
"""

import asyncio

from support.scheduling import measure

CALLS = 2_000


def nothing() -> None:
    """Do nothing, in the executor's thread."""


async def calls(loop: asyncio.AbstractEventLoop) -> None:
    """Await one call after the other."""
    for _ in range(CALLS):
        await loop.run_in_executor(None, nothing)


def one_round(loop: asyncio.AbstractEventLoop) -> int:
    """Run one task that makes many calls."""
    loop.run_until_complete(calls(loop))
    return CALLS


if __name__ == "__main__":
    measure(one_round)
