"""Pipes of child processes: 12 children at once, each copies 4 MiB from its input to its output.

One operation is one mebibyte sent to a child and received back. With --cpu the
children share the loop's CPU, so that the rate counts the time of both.
"""

import asyncio
from asyncio.subprocess import PIPE

from support.scheduling import measure

CHILDREN = 12
MEBIBYTES = 4
DATA = bytes(MEBIBYTES << 20)


async def child() -> None:
    """Send the data through one child."""
    process = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)
    out, _ = await process.communicate(DATA)
    assert len(out) == len(DATA), len(out)


async def children() -> None:
    """Send the data through all children at once."""
    await asyncio.gather(*(child() for _ in range(CHILDREN)))


def one_round(loop: asyncio.AbstractEventLoop) -> int:
    """Run all of them."""
    loop.run_until_complete(children())
    return CHILDREN * MEBIBYTES


if __name__ == "__main__":
    measure(one_round)
