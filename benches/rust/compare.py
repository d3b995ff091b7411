"""Compare Rust runtimes: the same work on each, interleaved, one process per run.

    python3 benches/rust/compare.py --quick            a first look, some minutes
    python3 benches/rust/compare.py                    everything
    python3 benches/rust/compare.py --only 'echo/*/64' --rounds 9
    python3 benches/rust/compare.py --peers tokio,ringloop-uring --only spawn

Each run builds the contestants and the floor servers first (cargo, cc). The tables go to standard
output, progress to standard error. Needs a Rust toolchain, a C compiler and CPython 3.11 or later,
and matplotlib for the picture.
"""

import argparse
import dataclasses
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from contestants import CONTESTANTS, build, versions
from running import REFERENCE, Settings, measure
from tables import AVERAGED, all_rows

from comparison import machine, markdown, paths, program
from comparison.disturbance import disturbed
from comparison.environment import SetupError, build_native, commit
from comparison.results import CLOSE, Report, row_results
from comparison.rows import selected
from comparison.telling import say


@dataclasses.dataclass(frozen=True)
class Suite:
    """What differs between this comparison and the ones built on it."""

    title: str = "Rust runtimes"
    anchor: str = "rust-runtimes"
    results: Path = paths.BENCHES / "RESULTS-rust.md"
    description: str | None = __doc__
    averaged: str = "the executor's rows"


QUICK = {"rounds": 3, "seconds": 0.4}
FULL = {"rounds": 5, "seconds": 1.0}


def main(suite: Suite | None = None) -> None:
    """Run what the command line asks for."""
    suite = suite or Suite()
    options = parse_arguments(suite)
    rows = selected(all_rows(), options.only)
    report = program.run(options, rows, lambda: compare(options, rows, suite))
    if report is not None:
        write(report, options, suite)


def compare(options: argparse.Namespace, rows: Sequence, suite: Suite) -> Report:
    """Build, run everything and return the report."""
    if not rows:
        raise SetupError("--only matches no row; --list shows their names")
    floors = {} if options.no_floor else build_native(say)
    build(say)
    server_cpu, load_cpu = machine.choose_cpus(None, None)
    settings = Settings(
        options.rounds, options.more, options.seconds, server_cpu, load_cpu, options.lock
    )
    before = machine.describe()
    measured = measure(rows, options.peers, floors, settings, say)
    return {
        **program.circumstances(),
        "commit": commit(),
        "machine": before,
        "python": {},
        "title": suite.title,
        "reference": REFERENCE,
        "versions": versions(),
        "settings": {
            "rounds": settings.rounds,
            "more": settings.more,
            "seconds": settings.seconds,
            "server_cpu": server_cpu,
            "load_cpu": load_cpu,
        },
        "absent": {},
        "floors": list(floors),
        "loops": options.peers,
        "rows": row_results(rows, measured, list(floors), REFERENCE),
    }


def write(report: Report, options: argparse.Namespace, suite: Suite) -> None:
    """Write the report to the requested places."""
    text = render(report, suite)
    print(text)
    if options.json:
        program.write_figures(report, options.json)
    if options.write_results:
        link = f"[README.md](README.md#{suite.anchor})"
        head = f"# Results: {suite.title}\n\nHow to read and reproduce: {link}."
        shows = "each runtime as a share of the best other one"
        program.write_results(report, suite.results, head, shows, text)


def render(report: Report, suite: Suite) -> str:
    """Write the whole report as Markdown."""
    lines = [
        *circumstances(report),
        *(line for table in markdown.tables(report) for line in table),
        *means(report, suite),
        *markdown.verdict(report),
    ]
    return "\n".join(lines).rstrip() + "\n"


def circumstances(report: Report) -> Iterator[str]:
    """Describe what was measured, where and how."""
    settings = report["settings"]
    yield f"- date: {report['date']}, ringloop at commit {report['commit']}"
    yield f"- command: `{report['command']}`"
    yield "- versions: " + ", ".join(f"{name} {one}" for name, one in report["versions"].items())
    yield "- machine: " + ", ".join(f"{name} {one}" for name, one in report["machine"].items())
    further = (
        f"{settings['more']} more for ours, {REFERENCE} and contestants within "
        f"{1 - CLOSE:.0%} of a row's best; "
        if settings["more"]
        else ""
    )
    yield (
        f"- runs: {settings['rounds']} rounds per contestant and row, one process a run, taking turns; "
        f"{further}servers {settings['seconds']} s on CPU {settings['server_cpu']}, load generator on "
        f"CPU {settings['load_cpu']}; the executor's rows on CPU {settings['server_cpu']}, the "
        "cross-thread wake and the files on both"
    )
    yield from disturbed(entry for row in report["rows"] for entry in row["entries"].values())
    yield ""
    yield (
        "Cells are operations per second (cat: bytes), median of the rounds; the best of a row is bold. "
        "`÷` columns are medians of the ratios within a round: to the best peer, and to our own "
        f"server on raw io_uring ({REFERENCE}). † = the load generator was busier than the server, "
        f"so that the figure is a lower bound. Below: {markdown.BETWEEN}."
    )
    yield ""


def means(report: Report, suite: Suite) -> Iterator[str]:
    """Write the geometric mean of the averaged rows."""
    rows = [row for row in report["rows"] if AVERAGED is None or row["name"] in AVERAGED]
    ours = [name for name in report["loops"] if name.startswith("ringloop-")]
    shares = {
        name: [row["entries"][name]["to_best_peer"] for row in rows if name in row["entries"]]
        for name in ours
    }
    for name, values in shares.items():
        known = [value for value in values if value]
        if len(known) > 1 and len(known) == len(values):
            mean = math.exp(statistics.fmean(math.log(value) for value in known))
            yield f"{name}, geometric mean of {suite.averaged}: {mean:.2f} of the best peer of each."
            yield ""


def peer_names(text: str) -> list[str]:
    """Parse a list of contestants."""
    names = text.split(",")
    unknown = set(names) - set(CONTESTANTS)
    if unknown:
        raise argparse.ArgumentTypeError(f"not a contestant: {', '.join(sorted(unknown))}")
    return [name for name in CONTESTANTS if name in names]


def parse_arguments(suite: Suite) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=suite.description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    program.add_common_arguments(parser)
    parser.add_argument(
        "--peers",
        type=peer_names,
        default=list(CONTESTANTS),
        metavar="A,B",
        help=f"contestants [all: {', '.join(CONTESTANTS)}]",
    )
    parser.add_argument(
        "--more",
        type=int,
        default=0,
        metavar="ROUNDS",
        help="further rounds of a row for ours and who came near its best; decides rows on a noisy "
        "machine [0]",
    )
    parser.add_argument(
        "--lock",
        type=Path,
        metavar="FILE",
        help="hold a lock on this file (flock) during each row: other timed work takes turns",
    )
    parser.add_argument("--no-floor", action="store_true", help="leave the floor servers out")
    return program.parse(parser, QUICK, FULL)


if __name__ == "__main__":
    main()
