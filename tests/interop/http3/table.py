"""The tables of HTTP/3 in docs/interop.md. Called by: `__main__`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tests.interop.http3.cases import CASES, Cell
from tests.interop.page import MARKS, row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.interop.http3.processes import Peer

Cells = Mapping[tuple[str, str], Mapping[str, Cell]]

HEAD = """`make interop-http3` runs `ringloop.h3` against other implementations, both ways, and writes
this part with `WRITE=1`. Server and client are processes of their own; each case has its own
connection, and the client compares what came. tests/interop/http3/programs/contract.py says what a
server answers.

*server* and *client* say what the **other** implementation is.
"""


def render(there: Sequence[Peer], absent: Mapping[str, str], cells: Cells) -> str:
    """Write the part."""
    pairs = [(peer.name, role) for peer in there for role in peer.roles]
    lines = [HEAD, row(["", *(" ".join(pair) for pair in pairs)]), row(["---"] * (len(pairs) + 1))]
    for case, title in CASES.items():
        lines.append(row([title, *(MARKS[cells[pair][case].outcome] for pair in pairs)]))
    lines += ["", "### Why not in HTTP/3", ""]
    for pair in pairs:
        reasons: dict[str, list[str]] = {}
        for case, cell in cells[pair].items():
            if cell.outcome == "cannot":
                reasons.setdefault(cell.detail, []).append(CASES[case])
        for reason, titles in reasons.items():
            lines.append(f"- {' '.join(pair)}, {'; '.join(titles)}: {reason}")
    lines += failures(cells)
    lines += [f"- {name}: not run: {reason}" for name, reason in absent.items()]
    lines += [f"- {peer.name} is a {peer.roles[0]} only." for peer in there if len(peer.roles) == 1]
    lines += ["", FOUND, "### Versions in HTTP/3", ""]
    lines += [f"- {peer.name} {peer.version}" for peer in there]
    return "\n".join(lines) + "\n"


def failures(cells: Cells) -> list[str]:
    """One line for each failed cell."""
    return [
        f"- **{' '.join(pair)}, {CASES[case]}**: {' '.join(cell.detail.split())}"
        for pair, results in cells.items()
        for case, cell in results.items()
        if cell.outcome == "fail"
    ]


FOUND = """### What was found on the way in HTTP/3

- `ringloop.h3` sent the body that a handler gave for a response to HEAD, which curl refused as
  malformed. It is dropped now, as with status 204 and 304.
- h3's server, by `shutdown(0)`, names the request that it is answering in GOAWAY as one that it does
  not process, and the client has to take it as rejected. Its program says `shutdown(1)`.
- curl opens a second connection when a hundred requests are under way on the first.
- hypercorn sends trailers only where `te: trailers` asks for them, and the stream never ends
  then; of a response whose application has failed it sends no more, and does not say so.
"""
