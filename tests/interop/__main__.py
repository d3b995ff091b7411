"""Run our QUIC against the others: python -m tests.interop [--peers A,B] [--ours rust] [--write]

Peers that cannot be installed are skipped with the reason; a run without any peer fails, and so does
one with a failed case.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.interop import matrix, page, programs
from tests.interop.installing import UnavailableError
from tests.interop.running import Cell, Files, pair

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.interop.programs import Program

PAIRS_AT_A_TIME = 3


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.interop",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--peers", default=",".join(programs.PEERS))
    parser.add_argument("--ours", default=",".join(programs.OURS))
    parser.add_argument("--write", action="store_true", help=f"rewrite {page.PAGE.name}")
    options = parser.parse_args()
    began = time.monotonic()
    ours, absent = found(programs.OURS, options.ours.replace(",", " ").split())
    peers, more = found(programs.PEERS, options.peers.replace(",", " ").split())
    absent |= more
    for name, reason in absent.items():
        print(f"skipped: {name}: {reason}")
    if not ours or not peers:
        print("interop: nothing could be run", file=sys.stderr)
        return 1
    cells = asyncio.run(run(ours, peers))
    if options.write:
        page.write(page.QUIC, matrix.render(ours, peers, absent, cells))
    failed = [line for line in matrix.reasons(ours, peers, cells) if line.startswith("- **")]
    passed = sum(cell.outcome == "pass" for pairs in cells.values() for cell in pairs.values())
    print("\n".join(failed))
    print(
        f"interop: {passed} passed, {len(failed)} failed, {len(absent)} programs skipped, "
        f"{time.monotonic() - began:.0f} s"
    )
    return 1 if failed or not passed else 0


def found(
    known: Mapping[str, Callable[[], Program]], names: list[str]
) -> tuple[list[Program], dict[str, str]]:
    """Install the requested peers; return the available ones, and why the others are not."""
    there: list[Program] = []
    absent: dict[str, str] = {}
    for name in names:
        try:
            there.append(known[name]())
        except UnavailableError as reason:
            absent[name] = str(reason)
    return there, absent


async def run(ours: list[Program], peers: list[Program]) -> matrix.Cells:
    """Run every pair, several concurrently."""
    gate = asyncio.Semaphore(PAIRS_AT_A_TIME)
    with tempfile.TemporaryDirectory(prefix="ringloop-interop-") as folder:
        files = Files(Path(folder))
        programs.make_certificates(files.folder)
        files.write()

        async def one(own: Program, peer: Program, *, is_server: bool) -> Mapping[str, Cell]:
            server, client = (peer, own) if is_server else (own, peer)
            async with gate:
                return await pair(server, client, files)

        keys = [
            (own, peer, is_server) for own in ours for peer in peers for is_server in (True, False)
        ]
        done = await asyncio.gather(
            *(one(own, peer, is_server=is_server) for own, peer, is_server in keys)
        )
    return {
        (own.name, peer.name, is_server): cells
        for (own, peer, is_server), cells in zip(keys, done, strict=True)
    }


if __name__ == "__main__":
    sys.exit(main())
