"""Compare QUIC stacks: the same work on each, interleaved, server and client in their own processes.

    python3 benches/quic/compare.py --quick            a first look, some minutes
    python3 benches/quic/compare.py                    everything, about an hour and a half
    python3 benches/quic/compare.py --only 'stream/*' --peers aiopquic,ringloop --seconds 3

The first use sets up (as --setup does): an environment .venv-bench/quic-VERSION with the peers of
requirements.txt and a release build of ringloop from this checkout. The ceilings are built each
time. Needs a Rust toolchain, a C compiler and CPython 3.12 or later (aiopquic does not install on
3.11). Tables go to standard output, progress to standard error.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from contestants import (
    CEILING,
    CEILINGS,
    CONTESTANTS,
    REQUIREMENTS,
    Contestant,
    available,
    build,
)
from tables import FIGURES, PEER, all_rows

from comparison import paths, suite
from comparison.pairs import Commands
from comparison.rows import Row


def main() -> None:
    """Run what the command line asks for."""
    suite.main(
        SUITE,
        paths.BENCHES / "RESULTS-quic.md",
        "# Results: QUIC\n\nHow to read and reproduce: [README.md](README.md#quic).",
        "each stack as a share of the best of the others",
    )


def takes_part(row: Row, one: Contestant) -> bool:
    """Plain UDP has no requests."""
    return one.stack != "udp" or row.has_floor


def commands(row: Row, one: Contestant, port: int, certificates: Path, python: Path) -> Commands:
    """Both command lines of a run."""
    has_server = one.stack != "udp"
    client = one.client(python, port, certificates, row.workload, *row.arguments)
    return Commands(
        one.server(python, port, certificates) if has_server else None, lambda _: client
    )


EVERY = (*CONTESTANTS, *CEILINGS)
SUITE = suite.Suite(
    name="quic",
    title="QUIC",
    doc=__doc__,
    rows=all_rows(),
    figures=FIGURES,
    contestants=EVERY,
    floors=[one.name for one in CEILINGS],
    references=(PEER, CEILING),
    shown=[one.name for one in CONTESTANTS if one.is_ours],
    requirements=REQUIREMENTS,
    shown_versions=("aioquic", "qh3", "aiopquic", "uvloop", "ringloop"),
    notes=["loops: " + ", ".join(f"{one.name} on {one.loop}" for one in CONTESTANTS)],
    takes_part=takes_part,
    commands=commands,
    build=build,
    available=available,
)

if __name__ == "__main__":
    main()
