"""Compare servers of HTTP/3 and WebTransport: the same load on each, interleaved.

    python3 benches/http3/compare.py --quick           a first look, a quarter of an hour
    python3 benches/http3/compare.py                   everything, about an hour and a half
    python3 benches/http3/compare.py --only 'requests/*' --peers peregrine,ringloop --seconds 3

The first use sets up (as --setup does): an environment .venv-bench/http3-VERSION with the peers of
requirements.txt and a release build of ringloop from this checkout; Debian's nginx is unpacked into
a cache folder. The load generator is built each time: it needs Go. Tables go to standard output,
progress to standard error.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from contestants import (
    CONTESTANTS,
    REQUIREMENTS,
    available,
    build,
    commands,
    takes_part,
    versions,
)
from tables import AIOPQUIC, FIGURES, HYPERCORN, PEREGRINE, STREAMS, all_rows

from comparison import paths, suite

# No Python server: for context, and not among the peers that the best is taken from.
CONTEXT = ("nginx", "quic-go")
SHOWN_VERSIONS = (
    *("peregrine-server", "hypercorn", "anycorn", "aioquic", "nginx", "quic-go", "aiopquic"),
    *("pywebtransport", "uvloop", "uvicorn", "ringloop"),
)
NOTES = (
    (
        "client: our load generator on quic-go, for every server; rates include its cost when both "
        "share the processors, so compare the server's CPU time, which is that of all its processes"
    ),
    (
        "hypercorn on uvloop, anycorn and the peers of WebTransport on asyncio, peregrine on its own "
        "loop; nginx serves files; `QUIC streams` is ringloop.quic without HTTP"
    ),
)


def main() -> None:
    """Run what the command line asks for."""
    suite.main(
        SUITE,
        paths.BENCHES / "RESULTS-http3.md",
        "# Results: HTTP/3 and WebTransport\n\n"
        "How to read and reproduce: [README.md](README.md#http3-and-webtransport).",
        "each server as a share of the best of the others",
    )


SUITE = suite.Suite(
    name="http3",
    title="HTTP/3 and WebTransport",
    doc=__doc__,
    rows=all_rows(),
    figures=FIGURES,
    contestants=CONTESTANTS,
    floors=(STREAMS, *CONTEXT),
    references=(PEREGRINE, HYPERCORN, AIOPQUIC, STREAMS),
    shown=("ringloop", "ringloop-asgi", "ringloop-wt"),
    requirements=REQUIREMENTS,
    shown_versions=SHOWN_VERSIONS,
    notes=NOTES,
    takes_part=takes_part,
    commands=commands,
    build=build,
    available=available,
    further_versions=versions,
)

if __name__ == "__main__":
    main()
