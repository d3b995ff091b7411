"""Ready chain: one callback that schedules itself again; nothing else is ready.

One operation is one link: the loop makes one iteration for each, so this shows the cost of an iteration.
"""

import asyncio

from support.scheduling import measure

LINKS = 20_000


class Chain:
    """A callback that re-schedules itself until its links are used up."""

    def __init__(self, loop: asyncio.AbstractEventLoop, links: int) -> None:
        """Prepare a chain of `links` callbacks."""
        self.loop = loop
        self.left = links

    def link(self) -> None:
        """Schedule the next link, or stop the loop."""
        self.left -= 1
        if self.left:
            self.loop.call_soon(self.link)
        else:
            self.loop.stop()


def one_round(loop: asyncio.AbstractEventLoop) -> int:
    """Run one chain."""
    loop.call_soon(Chain(loop, LINKS).link)
    loop.run_forever()
    return LINKS


if __name__ == "__main__":
    measure(one_round)
