"""The tables of HTTP/3 and of WebTransport in docs/interop.md. Called by: `__main__`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.interop import page
from tests.interop.http3 import peers, session_peers
from tests.interop.http3.cases import CASES, SESSION_CASES, Cell
from tests.interop.page import MARKS, row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.interop.http3.processes import Peer

Cells = Mapping[tuple[str, str], Mapping[str, Cell]]


@dataclass(frozen=True)
class Part:
    """A part of the page: one protocol with its cases and participants."""

    title: str
    cases: Mapping[str, str]
    peers: Mapping[str, Callable[[], Peer]]
    ours: Callable[[], Peer]
    head: str
    found: str


def render(part: Part, there: Sequence[Peer], absent: Mapping[str, str], cells: Cells) -> str:
    """Write the part."""
    pairs = [(peer.name, role) for peer in there for role in peer.roles]
    lines = [part.head, row(["", *(" ".join(pair) for pair in pairs)])]
    lines.append(row(["---"] * (len(pairs) + 1)))
    for case, title in part.cases.items():
        lines.append(row([title, *(MARKS[cells[pair][case].outcome] for pair in pairs)]))
    lines += ["", f"### Why not in {part.title}", ""]
    for pair in pairs:
        reasons: dict[str, list[str]] = {}
        for case, cell in cells[pair].items():
            if cell.outcome == "cannot":
                reasons.setdefault(cell.detail, []).append(part.cases[case])
        for reason, titles in reasons.items():
            lines.append(f"- {' '.join(pair)}, {'; '.join(titles)}: {reason}")
    lines += failures(part, cells)
    lines += [f"- {name}: not run: {reason}" for name, reason in absent.items()]
    lines += [f"- {peer.name} is a {peer.roles[0]} only." for peer in there if len(peer.roles) == 1]
    lines += ["", part.found, f"### Versions in {part.title}", ""]
    lines += [f"- {peer.name} {peer.version}" for peer in there]
    return "\n".join(lines) + "\n"


def failures(part: Part, cells: Cells) -> list[str]:
    """One line for each failed cell."""
    return [
        f"- **{' '.join(pair)}, {part.cases[case]}**: {' '.join(cell.detail.split())}"
        for pair, results in cells.items()
        for case, cell in results.items()
        if cell.outcome == "fail"
    ]


HEAD = """`make interop-http3` runs `ringloop.h3` against other implementations, both ways, and writes
this part with `WRITE=1`. Server and client are processes of their own; each case has its own
connection, and the client compares what came. tests/interop/http3/programs/contract.py says what a
server answers.

*server* and *client* say what the **other** implementation is.
"""

FOUND = """### What was found on the way in HTTP/3

- `ringloop.h3` sent the body that a handler gave for a response to HEAD, which curl refused as
  malformed. It is dropped now, as with status 204 and 304.
- h3's server, by `shutdown(0)`, names the request that it is answering in GOAWAY as one that it does
  not process, and the client has to take it as rejected. Its program says `shutdown(1)`.
- curl opens a second connection when a hundred requests are under way on the first.
- hypercorn sends trailers only where `te: trailers` asks for them, and the stream never ends
  then; of a response whose application has failed it sends no more, and does not say so.
- What peregrine-server lacks was seen with aioquic's and quic-go's clients, too: no GOAWAY comes on
  its control stream, and the response of an application that has failed neither ends nor is reset.
"""

SESSIONS_HEAD = """`make interop-http3` runs `ringloop.webtransport` against others, both ways, and
writes this part with `WRITE=1`. Server and client are processes of their own, and each case has its
own session; tests/interop/http3/programs/session_contract.py says what they do.

*server* and *client* say what the **other** implementation is.
"""

SESSIONS_FOUND = """### What was found on the way in WebTransport

- webtransport-go's client closes the connection of a session behind the session itself, and the
  capsule with code and reason may not be sent before. Its program owns the connection.
- pywebtransport speaks drafts from 15 on alone, and does not announce `RESET_STREAM_AT`, which these
  require. `ringloop.webtransport` sends it the setting all the same, and takes plain resets.
- Our client closed its connection with the session's code and reason in the same breath, and
  web-transport-quinn's server told its application neither: quinn drops at a close what was not
  read. The end of the server's side is waited for now, at most a quarter of a second.
- aioquic's client shows what the peers' sessions end with: our capsule and the end of the stream,
  peregrine-server's end without a capsule, and no answer of web-transport-quinn's server to a
  session that its application rejects.
- aiopquic's client reads no close of ours, nor one of web-transport-quinn's server. Its server takes
  sessions at one path, and has no column.
"""

PARTS = (
    Part(page.HTTP3, CASES, peers.PEERS, peers.ours, HEAD, FOUND),
    Part(
        page.WEBTRANSPORT,
        SESSION_CASES,
        session_peers.PEERS,
        session_peers.ours,
        SESSIONS_HEAD,
        SESSIONS_FOUND,
    ),
)
