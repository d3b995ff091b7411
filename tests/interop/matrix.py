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
processes of their own with a relay between them, which sees what is in the clear: versions,
Retry, 0-RTT packets; it also changes the client's port during a transfer. A cell says
*yes* when client, server and relay agree that it happened; tests/interop/cases.py has the proofs.

*server* and *client* say what the **other** implementation is. Ours are the crate (`rust`) and
the Python package, by its own API (`python`) and by aioquic's (`python-aioquic`).
"""

FOUND = """### What was found on the way

- quic-go derives the keys after a key update with version 1's label in version 2 as well (`quic
  ku`; RFC 9369 §3.3.2 names `quicv2 ku`), and changes keys by itself after a hundred packets:
  longer transfers in version 2 end there, with aioquic as with ours. The case moves 20 kB.
- qh3 derives them so too, and our servers and clients change keys by themselves once, after a random
  number of packets between 10 and 1,000: where that falls into the case's few, these two's clients wait
  in vain (qh3's in 2 of 100 runs), as qh3's does with aioquic's server when that asks for an update, and
  ours with their servers. In
  version 1 qh3 follows, but may then refuse the next update of its own ("invalid key phase"). These
  cases are tried up to four times with them.
- aioquic updates keys when it is told to, even before it has answered an update of the peer's: it then
  skips a key phase, and its packets cannot be read (RFC 9001 §6.1 asks for an acknowledgement
  first). Its client waits for one here.
- Key updates of quic-go and aiopquic, as clients, are started by them after so
  many packets.
- aiopquic neither sends nor tells the reason of a close, and its client does not tell whether
  early data was taken: codes, 0-RTT packets and the resumption have to do.
- GnuTLS (ngtcp2's server) refuses early data by tickets that are older by the client's word than
  by its own; rustls tells their age in whole seconds. The case is tried several times there.
- With ngtcp2's server, close codes are looked at one way: the client's.
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
