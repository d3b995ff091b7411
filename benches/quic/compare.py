"""Compare QUIC stacks: the same work on each, interleaved, server and client in their own processes.

    python3 benches/quic/compare.py --quick            a first look, some minutes
    python3 benches/quic/compare.py                    everything, about an hour and a half
    python3 benches/quic/compare.py --only 'stream/*' --peers aiopquic,ringloop --seconds 3

The first use sets up (as --setup does): an environment .venv-bench/quic-VERSION with the peers of
requirements.txt and a release build of ringloop from this checkout. The ceilings are built each
time. Needs a Rust toolchain, a C compiler and CPython 3.12 or later (aiopquic does not install on
3.11). Tables go to standard output, progress to standard error.
"""

import argparse
import dataclasses
import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import report as writing
from contestants import CEILINGS, CONTESTANTS, REQUIREMENTS, Contestant, available, build
from running import Settings, make_certificates, measure
from tables import all_rows

from comparison import machine, paths, program
from comparison.disturbance import STOLEN_MAX, Patience
from comparison.environment import Environment, SetupError, commit, environment_for, set_up
from comparison.rows import Row, selected
from comparison.telling import say

QUICK = {"rounds": 3, "seconds": 2.0, "warmup": 1.0}
FULL = {"rounds": 5, "seconds": 10.0, "warmup": 2.0}
RESULTS = paths.BENCHES / "RESULTS-quic.md"


def main() -> None:
    """Run what the command line asks for."""
    options = parse_arguments()
    rows = selected(all_rows(), options.only)
    found = program.run(options, rows, lambda: compare(options, rows))
    if found is not None:
        write(found, options)


def compare(options: argparse.Namespace, rows: Sequence[Row]) -> writing.Report:
    """Set up, run everything and return the report."""
    if not rows:
        raise SetupError("--only matches no row; --list shows their names")
    environment = prepare(options)
    if not options.no_build:
        build(say)
    entered, absent = [], {}
    for one in options.peers:
        reason = available(environment, one) if one.is_python else None
        if reason is None:
            entered.append(one)
        else:
            absent[one.name] = reason
            say(f"not compared: {one.name}: {reason}")
    before = machine.describe()
    with tempfile.TemporaryDirectory() as folder:
        certificates = Path(folder)
        make_certificates(environment.python, certificates)
        settings = Settings(
            environment.python,
            certificates,
            options.rounds,
            options.warmup,
            options.seconds,
            Patience(options.patience * 60, options.stolen / 100),
            options.lock,
        )
        measured = measure(rows, entered, settings, say)
    described = environment.describe()
    return {
        **program.circumstances(),
        "commit": commit(),
        "machine": before,
        "python": described,
        "title": f"QUIC, CPython {described['version']}",
        "versions": {name: str(one) for name, one in environment.versions().items()},
        "settings": {name: getattr(options, name) for name in FULL},
        "stolen_max": options.stolen / 100,
        "absent": absent,
        "floors": [one.name for one in entered if not one.is_python],
        "loops": [one.name for one in entered if one.is_python],
        "contestants": {one.name: dataclasses.asdict(one) for one in entered},
        "rows": writing.row_results(rows, measured, entered),
    }


def prepare(options: argparse.Namespace) -> Environment:
    """Find or create the environment."""
    if options.as_is:
        return Environment(options.python, Path(options.python).parents[1])
    found = environment_for(options.python)
    place = found.directory.with_name(f"quic-{found.directory.name}")
    environment = dataclasses.replace(found, directory=place)
    if options.setup or not environment.is_set_up():
        set_up(environment, say, REQUIREMENTS)
    return environment


def write(report: writing.Report, options: argparse.Namespace) -> None:
    """Write the report to the requested places."""
    text = writing.render(report)
    print(text)
    if options.json:
        program.write_figures(report, options.json)
    if options.write_results:
        head = "# Results: QUIC\n\nHow to read and reproduce: [README.md](README.md#quic)."
        shows = "each stack as a share of the best of the others"
        program.write_results(report, RESULTS, head, shows, text)


def contestants(text: str) -> list[Contestant]:
    """Parse a list of contestants."""
    names = text.split(",")
    unknown = set(names) - {one.name for one in (*CONTESTANTS, *CEILINGS)}
    if unknown:
        raise argparse.ArgumentTypeError(f"not a contestant: {', '.join(sorted(unknown))}")
    return [one for one in (*CONTESTANTS, *CEILINGS) if one.name in names]


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    every = [*CONTESTANTS, *CEILINGS]
    names = ", ".join(one.name for one in every)
    program.add_common_arguments(parser)
    add(
        "--peers",
        type=contestants,
        default=every,
        metavar="A,B",
        help=f"contestants [all: {names}]",
    )
    add("--warmup", type=float, help="time before it, under load")
    add(
        "--patience",
        type=float,
        default=math.inf,
        metavar="MINUTES",
        help="for waits for the machine's host and runs made again, all in all [no bound]",
    )
    add(
        "--stolen",
        type=float,
        default=STOLEN_MAX * 100,
        metavar="PERCENT",
        help=f"what the host may take of a run's processors [{STOLEN_MAX:.1%}]".replace("%", "%%"),
    )
    add(
        "--lock",
        type=Path,
        metavar="FILE",
        help="hold a lock on this file (flock) during each run: other work takes turns",
    )
    add("--python", default=sys.executable, help="the interpreter [this one]")
    add("--setup", action="store_true", help="make the environment anew")
    add("--as-is", action="store_true", help="use --python with the packages that it has")
    add("--no-build", action="store_true", help="take the ceilings as they were built last")
    return program.parse(parser, QUICK, FULL)


if __name__ == "__main__":
    main()
