"""Child processes: `/bin/true` started and waited for, 64 at once or one after the other.

One operation is one child: started, ended, reaped, its exit code awaited. Most of the cost is the
kernel's exec and exit, the same for every loop. With --cpu the
children share the loop's CPU, so that the rate counts the time of both.
"""

import asyncio

from support.scheduling import measure

AT_ONCE = 64
IN_SERIES = 16


async def child() -> None:
    """Run one child to its end."""
    process = await asyncio.create_subprocess_exec("/bin/true")
    code = await process.wait()
    assert code == 0, code


async def children() -> None:
    """Run some in series, then many at once."""
    for _ in range(IN_SERIES):
        await child()
    await asyncio.gather(*(child() for _ in range(AT_ONCE)))


def one_round(loop: asyncio.AbstractEventLoop) -> int:
    """Run all of them."""
    loop.run_until_complete(children())
    return AT_ONCE + IN_SERIES


if __name__ == "__main__":
    measure(one_round)
