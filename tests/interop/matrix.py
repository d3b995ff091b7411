"""Writes the tables of QUIC in docs/interop.md from the results of a run.

Owns: how the matrix looks. Called by: `__main__`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.interop.cases import CASES
from tests.interop.page import MARKS, row

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.interop.programs import Program
    from tests.interop.running import Cell

    Cells = Mapping[tuple[str, str, bool], Mapping[str, Cell]]

HEAD = """`make interop` runs our QUIC against other implementations, both ways, and writes this part
with `WRITE=1` (`python -m tests.interop --help` for the rest). Each pair is a server and a client in
separate processes with a relay between them, which sees everything unencrypted: versions, Retry,
0-RTT packets; it also changes the client's port during a transfer. A cell says *yes* if client,
server and relay agree that it happened; tests/interop/cases.py has the checks.

*server* and *client* give the role of the **other** implementation. Ours are the crate (`rust`)
and the Python package, with its own API (`python`) and with aioquic's (`python-aioquic`).
"""

FOUND = """### Findings

- After a key update in version 2, quic-go still derives keys with version 1's label (`quic ku`;
  RFC 9369 §3.3.2 requires `quicv2 ku`), and it updates keys by itself after a hundred packets:
  longer transfers in version 2 end there, with aioquic as with ours. The case transfers 20 kB.
- qh3 derives them the same way. Our servers and clients update keys by themselves once, after a random
  number of packets between 10 and 1,000: if that falls within the few packets of the case, clients of
  these two wait in vain (qh3's in 2 of 100 runs), as qh3's does if aioquic's server starts an update,
  and ours with their servers. In version 1 qh3 follows the update, but may then refuse the next one of
  its own ("invalid key phase"). These cases are tried up to four times with them.
- aioquic updates keys on request, even before it has acknowledged an update by the peer: it then skips
  a key phase, and its packets cannot be read (RFC 9001 §6.1 requires an acknowledgement first). Its
  client waits for one here.
- As clients, quic-go and aiopquic start key updates themselves after a number of packets.
- aiopquic neither sends nor reports the reason of a close, and its client does not report whether
  early data was accepted: codes, 0-RTT packets and the resumption have to do.
- GnuTLS (ngtcp2's server) refuses early data if the ticket's age reported by the client exceeds its
  own measurement; rustls reports the age in whole seconds. The case is tried several times there.
- With ngtcp2's server, only the client's close codes are checked.
"""


def render(
    ours: Sequence[Program],
    peers: Sequence[Program],
    absent: Mapping[str, str],
    cells: Cells,
) -> str:
    """Write the part."""
    lines = [HEAD]
    for own in ours:
        heads = [f"{peer.name} {role}" for peer in peers for role in ("server", "client")]
        lines += [f"### {own.name}", ""]
        lines += [row(["", *heads]), row(["---"] * (len(heads) + 1))]
        for case in CASES:
            marks = [
                MARKS[cells[own.name, peer.name, is_server][case.name].outcome]
                for peer in peers
                for is_server in (True, False)
            ]
            lines.append(row([case.title, *marks]))
        lines.append("")
    lines += ["### Why not", ""]
    lines += list(dict.fromkeys(reasons(ours, peers, cells))) or ["Nothing is missing."]
    lines += [f"- {name}: not run: {reason}" for name, reason in absent.items()]
    lines += ["", FOUND, "### Versions", ""]
    lines += [f"- {one.name} {one.version}".rstrip() for one in peers]
    return "\n".join(lines) + "\n"


def reasons(ours: Sequence[Program], peers: Sequence[Program], cells: Cells) -> list[str]:
    """One line for each cell that is not a yes; one for a whole pair with the same reason."""
    found = []
    for own in ours:
        for peer in peers:
            for is_server in (True, False):
                name = f"{peer.name} {'server' if is_server else 'client'}"
                pair = cells[own.name, peer.name, is_server]
                if len({(cell.outcome, cell.detail) for cell in pair.values()}) == 1:
                    found += told(own.name, name, "all", next(iter(pair.values())))
                    continue
                for case in CASES:
                    found += told(own.name, name, case.title, pair[case.name])
    return found


def told(own: str, peer: str, title: str, cell: Cell) -> list[str]:
    """The line of a cell; `None` for a yes."""
    if cell.outcome == "cannot":
        return [f"- {peer}, {title}: {cell.detail}"]
    if cell.outcome == "fail":
        return [f"- **{own} with {peer}, {title}**: {cell.detail}"]
    return []
