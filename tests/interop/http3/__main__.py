"""Our HTTP/3 and WebTransport with the others: python -m tests.interop.http3 [--peers A,B] [--write]

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

from ringloop import quic
from tests.interop import page
from tests.interop.http3 import table
from tests.interop.http3.cases import Cell
from tests.interop.http3.processes import Files, free_port
from tests.interop.installing import UnavailableError

if TYPE_CHECKING:
    from tests.interop.http3.processes import Peer

PAIRS_AT_A_TIME = 3
STARTS_MAX = 3


def main() -> int:
    """Run what the command line asks for."""
    known = list(dict.fromkeys(name for part in table.PARTS for name in part.peers))
    parser = argparse.ArgumentParser(
        prog="python -m tests.interop.http3",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--peers", default=",".join(known))
    parser.add_argument("--cases", default="", help="all by default")
    parser.add_argument("--write", action="store_true", help=f"rewrite {page.PAGE.name}")
    options = parser.parse_args()
    names = options.peers.replace(",", " ").split()
    if unknown := set(names) - set(known):
        parser.error(f"no such peers: {', '.join(unknown)}")
    results = [run_part(part, names, options) for part in table.PARTS if part.peers.keys() & names]
    return 0 if all(results) else 1


def run_part(part: table.Part, names: list[str], options: argparse.Namespace) -> bool:
    """Run one part with these peers; return whether all went well."""
    began = time.monotonic()
    there: list[Peer] = []
    absent: dict[str, str] = {}
    for name in part.peers:
        if name not in names:
            continue
        try:
            there.append(part.peers[name]())
        except UnavailableError as reason:
            absent[name] = str(reason)
            print(f"skipped: {name}: {reason}")
    wanted = options.cases.replace(",", " ").split() or part.cases
    cells = asyncio.run(run(part, there, [case for case in part.cases if case in wanted]))
    if options.write:
        page.write(part.title, table.render(part, there, absent, cells))
    failed = table.failures(part, cells)
    print("\n".join(failed))
    passed = sum(cell.outcome == "pass" for pair in cells.values() for cell in pair.values())
    print(
        f"{part.title} interop: {passed} passed, {len(failed)} failed, {len(absent)} programs"
        f" skipped, {time.monotonic() - began:.0f} s"
    )
    return not failed and passed > 0


async def run(part: table.Part, there: list[Peer], cases: list[str]) -> table.Cells:
    """Run every pair, several concurrently."""
    gate = asyncio.Semaphore(PAIRS_AT_A_TIME)
    own = part.ours()
    with tempfile.TemporaryDirectory(prefix="ringloop-http3-") as name:
        made = quic.make_certificate("localhost", "127.0.0.1", directory=name)
        files = Files(Path(name), str(made.ca_file), str(made.certificate), str(made.private_key))
        files.write()

        async def one(peer: Peer, role: str) -> dict[str, Cell]:
            server, client = (peer, own) if role == "server" else (own, peer)
            async with gate:
                return await pair(server, client, cases, files)

        keys = [(peer, role) for peer in there for role in peer.roles]
        done = await asyncio.gather(*(one(peer, role) for peer, role in keys))
    return {(peer.name, role): result for (peer, role), result in zip(keys, done, strict=True)}


async def pair(server: Peer, client: Peer, cases: list[str], files: Files) -> dict[str, Cell]:
    """Run the cases with this server and this client."""
    failure = ""
    # Another program may take the port before the server does.
    for _ in range(STARTS_MAX):
        port = free_port()
        try:
            async with server.serving(files, port):
                return {case: await one_case(server, client, case, port, files) for case in cases}
        except OSError as error:
            failure = f"{type(error).__name__}: {error}"
    return dict.fromkeys(cases, Cell("fail", failure))


async def one_case(server: Peer, client: Peer, case: str, port: int, files: Files) -> Cell:
    """Run a case with a server that is there."""
    reason = client.cannot.get(("client", case)) or server.cannot.get(("server", case))
    if reason:
        return Cell("cannot", reason)
    try:
        reason = await client.run(case, port, files)
    except (OSError, TimeoutError) as error:
        reason = f"{type(error).__name__}: {error}"
    return Cell("fail", reason) if reason else Cell("pass")


if __name__ == "__main__":
    sys.exit(main())
