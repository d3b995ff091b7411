"""Pre-scheduled callbacks: 100,000 `call_soon` first, then the loop runs them all.

One operation is one callback, scheduling included.
"""

import asyncio

from support.scheduling import measure

CALLBACKS = 100_000


def callback() -> None:
    """Do nothing."""


def one_round(loop: asyncio.AbstractEventLoop) -> int:
    """Schedule a batch and run it."""
    call_soon = loop.call_soon
    for _ in range(CALLBACKS):
        call_soon(callback)
    call_soon(loop.stop)
    loop.run_forever()
    return CALLBACKS


if __name__ == "__main__":
    measure(one_round)
