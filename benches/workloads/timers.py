"""Timers: half of them complete, half are cancelled while far from due.

One operation is one `call_later`, with its callback or its `cancel`. The completing ones are due
within a millisecond in mixed order, which is less than scheduling them takes: the loop never waits
for them. The cancelled ones stand for time-outs that are not reached.
"""

import asyncio

from support.scheduling import measure

COMPLETED = 10_000
CANCELLED = 10_000
DUE_WITHIN_SECONDS = 1e-3
TIMEOUT_SECONDS = 30.0
# Not a divisor of the count, so that deadlines come in no simple order.
STRIDE = 7_919


def one_round(loop: asyncio.AbstractEventLoop) -> int:
    """Schedule all, cancel one half, run the other."""
    left = COMPLETED

    def due() -> None:
        nonlocal left
        left -= 1
        if not left:
            loop.stop()

    call_later = loop.call_later
    timeouts = [call_later(TIMEOUT_SECONDS + n, due) for n in range(CANCELLED)]
    for n in range(COMPLETED):
        call_later(n * STRIDE % COMPLETED * (DUE_WITHIN_SECONDS / COMPLETED), due)
    for timeout in timeouts:
        timeout.cancel()
    loop.run_forever()
    return COMPLETED + CANCELLED


if __name__ == "__main__":
    measure(one_round)
