"""What the Python peers share: the command line, the data, how they report.

The contract is that of crates/ringloop-quic/examples/interop.rs. Runs in the peers' environment.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

ALPN = "interop"
BYTES = 1 << 20
# Few enough packets that no peer updates keys by itself: see quic-go in tests/interop/programs.py.
BYTES_V2 = 20_000
DATAGRAMS = 20
PATIENCE_SECONDS = 15


def pattern(size: int) -> bytes:
    """The data to send."""
    return bytes((at ^ (at >> 8) ^ (at >> 16)) & 0xFF for at in range(size))


def say(**what: Any) -> None:
    """Report to the parent process."""
    print(json.dumps(what), flush=True)


async def obey(run: Callable[[str, int, str], Awaitable[dict[str, Any]]], ca: str) -> None:
    """Run the cases from standard input, line by line."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        case, port, *_ = line.split()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                told = await run(case, int(port), ca)
        except Exception as error:
            say(ok=False, reason=f"{type(error).__name__}: {error}")
        else:
            say(ok=True, **told)


def main(
    arguments: list[str],
    serve: Callable[..., Awaitable[None]],
    run: Callable[[str, int, str], Awaitable[dict[str, Any]]],
) -> None:
    """Run as server or client."""

    async def work() -> None:
        match arguments:
            case ["server", address, cert, key, *rest]:
                await serve(address, cert, key, retry="retry" in rest)
            case ["client", ca]:
                await obey(run, ca)
            case _:
                sys.exit("see the first lines of the source")

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(work())
