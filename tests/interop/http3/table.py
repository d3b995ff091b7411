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
this part with `WRITE=1`. Server and client are separate processes; each case uses a new
connection, and the client compares what it received. tests/interop/http3/programs/contract.py
defines the server's responses.

*server* and *client* give the role of the **other** implementation.
"""

FOUND = """### Findings in HTTP/3

- `ringloop.h3` sent the body that a handler gave for a response to HEAD, which curl refused as
  malformed. It is dropped now, as with status 204 and 304.
- With `shutdown(0)`, h3's server lists the request that it is answering in GOAWAY as not processed,
  and the client has to treat it as rejected. Its program calls `shutdown(1)`.
- curl opens a second connection when a hundred requests are open on the first.
- hypercorn sends trailers only if `te: trailers` asks for them, and the stream then never ends; if the
  application fails during a response, it sends nothing more and does not signal the failure.
- The gaps of peregrine-server also show with aioquic's and quic-go's clients: no GOAWAY arrives on
  its control stream, and the response of a failed application neither ends nor is reset.
"""

SESSIONS_HEAD = """`make interop-http3` runs `ringloop.webtransport` against others, both ways, and
writes this part with `WRITE=1`. Server and client are separate processes, and each case uses a new
session; tests/interop/http3/programs/session_contract.py defines what they do.

*server* and *client* give the role of the **other** implementation.
"""

SESSIONS_FOUND = """### Findings in WebTransport

- webtransport-go's client closes a session's connection right after the session, possibly before the
  capsule with code and reason is sent. Therefore its program owns the connection.
- pywebtransport supports only drafts from 15 on, and does not announce `RESET_STREAM_AT`, which these
  require. `ringloop.webtransport` sends it the setting anyway, and accepts plain resets.
- Our client closed its connection at the same time as it sent the session's code and reason, and
  web-transport-quinn's server reported neither to its application: at a close, quinn drops unread
  data. The client now waits for the end of the server's side, at most a quarter of a second.
- aioquic's client shows how the peers end sessions: ours with the capsule and the end of the stream,
  peregrine-server without a capsule, and web-transport-quinn's server sends no response to a session
  that its application rejects.
- aiopquic's client does not read a close of ours, nor of web-transport-quinn's server. Its server
  accepts sessions at one path only, and has no column.
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
