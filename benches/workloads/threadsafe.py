"""call_soon_threadsafe from another thread while the loop runs.

One operation is one call and its callback. Both threads share one CPU and, on ordinary builds, the
GIL; the loop sleeps while the other thread runs, so wake-ups are part of the cost.
"""

import asyncio
import threading

from support.scheduling import measure

CALLS = 20_000


def callback() -> None:
    """Do nothing."""


def one_round(loop: asyncio.AbstractEventLoop) -> int:
    """Run the loop while a second thread calls into it; the last call stops the loop."""

    def caller() -> None:
        call_soon_threadsafe = loop.call_soon_threadsafe
        for _ in range(CALLS):
            call_soon_threadsafe(callback)
        call_soon_threadsafe(loop.stop)

    thread = threading.Thread(target=caller)
    loop.call_soon(thread.start)
    loop.run_forever()
    thread.join()
    return CALLS


if __name__ == "__main__":
    measure(one_round)
