"""A comparison of stacks whose server and client are processes of their own.

Owns: the command line, the order of the steps, the report's frame. Called by: `compare` of QUIC and
of HTTP/3, which say what is compared.
"""

import argparse
import dataclasses
import math
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

from comparison import figures, machine, program
from comparison.disturbance import STOLEN_MAX, Patience
from comparison.environment import (
    Environment,
    Say,
    SetupError,
    commit,
    environment_for,
    set_up,
)
from comparison.pairs import C, Commands, Settings, make_certificates, measure
from comparison.rows import Row, selected
from comparison.telling import say


@dataclass(frozen=True)
class Suite(Generic[C]):
    """What is compared."""

    name: str
    title: str
    doc: str
    rows: Sequence[Row]
    figures: Mapping[str, Sequence[figures.Figure]]
    # In the order of the columns; the floors are no products.
    contestants: Sequence[C]
    floors: Sequence[str]
    # What ratios refer to, and those of ours that have them.
    references: Sequence[str]
    shown: Sequence[str]
    requirements: Path
    shown_versions: Sequence[str]
    notes: Sequence[str]
    takes_part: Callable[[Row, C], bool]
    # The row, the contestant, the port, the certificates, and the interpreter.
    commands: Callable[[Row, C, int, Path, Path], Commands]
    build: Callable[[Say], None]
    # `None`, or why a contestant cannot be compared.
    available: Callable[[Environment, C], str | None]
    # Versions of what is no Python package.
    further_versions: Callable[[], dict[str, str]] = dict
    quick: Mapping[str, object] = dataclasses.field(
        default_factory=lambda: {"rounds": 3, "seconds": 2.0, "warmup": 1.0}
    )
    full: Mapping[str, object] = dataclasses.field(
        default_factory=lambda: {"rounds": 5, "seconds": 10.0, "warmup": 2.0}
    )


def main(suite: Suite[C], results: Path, head: str, shows: str) -> None:
    """Run what the command line asks for; `head` and the picture go into the file of results."""
    options = parse_arguments(suite)
    rows = selected(suite.rows, options.only)
    report = program.run(options, rows, lambda: compare(suite, options, rows))
    if report is None:
        return
    text = figures.render(report)
    print(text)
    if options.json:
        program.write_figures(report, options.json)
    if options.write_results:
        program.write_results(report, results, head, shows, text)


def compare(suite: Suite[C], options: argparse.Namespace, rows: Sequence[Row]) -> figures.Report:
    """Set up, run everything and return the report."""
    if not rows:
        raise SetupError("--only matches no row; --list shows their names")
    environment = prepare(suite, options)
    if not options.no_build:
        suite.build(say)
    absent = {one.name: suite.available(environment, one) for one in options.peers}
    for name, reason in absent.items():
        if reason is not None:
            say(f"not compared: {name}: {reason}")
    entered = [one for one in options.peers if absent[one.name] is None]
    before = machine.describe()
    with tempfile.TemporaryDirectory() as folder:
        certificates = Path(folder)
        # Servers that give up root have to read them.
        certificates.chmod(0o755)
        make_certificates(environment.python, certificates)
        settings: Settings[C] = Settings(
            lambda row, one, port, at: suite.commands(row, one, port, at, environment.python),
            lambda row, run: suite.figures[row.workload][0].of(run),
            certificates,
            options.rounds,
            options.warmup,
            options.seconds,
            Patience(options.patience * 60, options.stolen / 100),
            options.lock,
        )
        fields = [(row, [one for one in entered if suite.takes_part(row, one)]) for row in rows]
        measured = measure(fields, settings, say)
    names = [one.name for one in entered]
    field = figures.Field(
        names,
        ours=[one.name for one in entered if one.is_ours and one.name not in suite.floors],
        floors=[name for name in suite.floors if name in names],
        shown=[name for name in suite.shown if name in names],
        references=[name for name in suite.references if name in names],
    )
    described = environment.describe()
    versions = {name: str(one) for name, one in environment.versions().items()}
    return {
        **program.circumstances(),
        "commit": commit(),
        "machine": before,
        "python": described,
        "title": f"{suite.title}, CPython {described['version']}",
        "versions": versions | suite.further_versions(),
        "shown_versions": list(suite.shown_versions),
        "notes": [*suite.notes, *([options.note] if options.note else [])],
        "settings": {name: getattr(options, name) for name in suite.full},
        "stolen_max": options.stolen / 100,
        "absent": {name: reason for name, reason in absent.items() if reason is not None},
        "floors": list(field.floors),
        "loops": [name for name in names if name not in field.floors],
        "ours": list(field.ours),
        "shown": list(field.shown),
        "references": list(field.references),
        "rows": figures.row_results(rows, measured, suite.figures, field),
    }


def prepare(suite: Suite[C], options: argparse.Namespace) -> Environment:
    """Find or create the environment."""
    if options.as_is:
        return Environment(options.python, Path(options.python).parents[1])
    found = environment_for(options.python)
    place = found.directory.with_name(f"{suite.name}-{found.directory.name}")
    environment = dataclasses.replace(found, directory=place)
    if options.setup or not environment.is_set_up():
        set_up(environment, say, suite.requirements)
    return environment


def parse_arguments(suite: Suite[C]) -> argparse.Namespace:
    """Parse the command line."""
    every = suite.contestants

    def contestants(text: str) -> list[C]:
        names = text.split(",")
        unknown = set(names) - {one.name for one in every}
        if unknown:
            raise argparse.ArgumentTypeError(f"not a contestant: {', '.join(sorted(unknown))}")
        return [one for one in every if one.name in names]

    parser = argparse.ArgumentParser(
        description=suite.doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add: Any = parser.add_argument
    program.add_common_arguments(parser)
    add(
        "--peers",
        type=contestants,
        default=list(every),
        metavar="A,B",
        help=f"contestants [all: {', '.join(one.name for one in every)}]",
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
    add("--note", metavar="TEXT", help="a line about the circumstances, for the report")
    add("--python", default=sys.executable, help="the interpreter [this one]")
    add("--setup", action="store_true", help="make the environment anew")
    add("--as-is", action="store_true", help="use --python with the packages that it has")
    add("--no-build", action="store_true", help="take what is built here as it was built last")
    return program.parse(parser, suite.quick, suite.full)
