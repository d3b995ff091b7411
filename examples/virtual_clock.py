"""A service's retries, tested on a clock that jumps: an hour of back-off in milliseconds.

python examples/virtual_clock.py
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from ringloop.testing import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

# The call that is answered.
ANSWERS_AT = 12


async def with_retries(call: Callable[[], Awaitable[str]], attempts: int) -> str:
    """Call until it succeeds; wait 1, 2, 4 … seconds between."""
    for attempt in range(attempts):
        try:
            async with asyncio.timeout(10):
                return await call()
        except (OSError, TimeoutError):
            await asyncio.sleep(2**attempt)
    raise TimeoutError(f"no answer after {attempts} attempts")


async def main() -> None:
    """Let a service fail, hang, and answer at last."""
    loop = asyncio.get_running_loop()
    calls: list[float] = []

    async def service() -> str:
        calls.append(loop.time())
        if len(calls) % 2:
            raise ConnectionRefusedError
        if len(calls) < ANSWERS_AT:
            await asyncio.Event().wait()
        return "an answer"

    print(await with_retries(service, 20))
    print("calls at", calls)
    assert calls[:4] == [0.0, 1.0, 13.0, 17.0]
    assert len(calls) == ANSWERS_AT


if __name__ == "__main__":
    began = time.monotonic()
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())
        print(f"{runner.get_loop().time():g} virtual seconds in {time.monotonic() - began:.3f} s")
