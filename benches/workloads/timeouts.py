"""Time-outs that are not reached: `asyncio.timeout` and `asyncio.wait_for` around a step that is quick.

One operation is one guarded step: a time-out armed, one `sleep(0)`, the time-out disarmed. Half of
them are `async with asyncio.timeout(30)`, the other half `wait_for` of a coroutine.
"""

import asyncio

from support.scheduling import measure

STEPS = 2_500
TIMEOUT_SECONDS = 30.0


async def quick() -> None:
    """Yield to the loop once."""
    await asyncio.sleep(0)


async def guarded() -> None:
    """Guard each step in both ways."""
    for _ in range(STEPS):
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await quick()
        await asyncio.wait_for(quick(), TIMEOUT_SECONDS)


def one_round(loop: asyncio.AbstractEventLoop) -> int:
    """Run one task that guards many steps."""
    loop.run_until_complete(guarded())
    return 2 * STEPS


if __name__ == "__main__":
    measure(one_round)
