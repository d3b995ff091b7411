"""What the Python programs share: the data, and how they report.

A server answers by path:

    /small          six bytes                       /number/N     the digits of N
    /echo           the body, and its trailers      /headers      `x-large` as it came
    /trailers       a body and a trailer            /interim      103 with a `link`, then 200
    /priority       the value of `priority`         /reset        a part of a body, then a reset
    /endless        a body until it is cancelled    /cancelled    how many bodies were cancelled
    /goaway         begins to shut down, then a body

A client runs one case, named on its command line, and prints `{"ok": true}`, or a reason.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

SMALL = b"small\n"
BYTES = 1 << 20
PARALLEL = 100
LARGE = "x" * 12_000
LINK = "</style.css>; rel=preload"
PRIORITY = "u=1, i"
TRAILER = "x-checksum"
PIECE = bytes(16 << 10)
PATIENCE_SECONDS = 20


class WrongError(Exception):
    """What came is not what the contract says."""


def pattern(size: int = BYTES) -> bytes:
    """The data to send."""
    return bytes((at ^ (at >> 8) ^ (at >> 16)) & 0xFF for at in range(size))


def same(found: Any, wanted: Any) -> None:
    """Compare what came with what should."""
    if found != wanted:
        raise WrongError(f"{found!r:.80} came instead of {wanted!r:.80}")


def say(**what: Any) -> None:
    """Report to the parent process."""
    print(json.dumps(what), flush=True)


def main(
    serve: Callable[[str, int, str, str], Awaitable[None]],
    run: Callable[[str, int, str], Awaitable[None]],
) -> None:
    """Run as server or client."""

    async def client(ca: str, port: str, case: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await run(case, int(port), ca)
        except Exception as error:
            say(ok=False, reason=f"{type(error).__name__}: {error}")
        else:
            say(ok=True)

    async def work() -> None:
        match sys.argv[1:]:
            case ["server", port, cert, key]:
                await serve("127.0.0.1", int(port), cert, key)
            case ["client", ca, port, case]:
                await client(ca, port, case)
            case _:
                sys.exit("server PORT CERT KEY | client CA PORT CASE")

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(work())
