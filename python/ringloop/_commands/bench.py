"""`python -m ringloop bench`: compares loops on the user's machine."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from ringloop import _output
from ringloop._bench.report import as_json, as_svg, as_table
from ringloop._bench.runs import RunError, loops_here, measure
from ringloop._bench.workloads import ROWS
from ringloop._commands import PROGRAM

_EPILOG = """\
Each run is a separate process; the loops take turns, and the table shows medians. Both ends of the echo
run in the measured process. Progress goes to stderr. Use an idle machine for meaningful figures.

Exit status: 0; 1 if a run failed or the chart cannot be written; 2 for a usage error.
"""


def main(arguments: list[str]) -> int:
    """Measure and print; return the exit status."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    here = loops_here()
    loops = asked.loops or here
    for loop in loops:
        if loop not in here:
            parser.error(f"{loop} cannot run here: choose from {', '.join(here)}")
    try:
        report = measure(loops, asked.rows or list(ROWS), asked.rounds, asked.scale, _tell)
    except RunError as error:
        _output.tell(f"\r\x1b[K{parser.prog}: {error}\n" if _is_terminal() else f"{error}\n")
        return 1
    _tell("")
    if asked.json:
        _output.say(json.dumps(as_json(report), indent=2) + "\n")
    else:
        _output.say(as_table(report))
    if asked.svg is not None:
        try:
            Path(asked.svg).write_text(as_svg(report), "utf-8")
        except OSError as error:
            _output.tell(f"{parser.prog}: {error}\n")
            return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = _output.Parser(
        prog=f"{PROGRAM} bench",
        description="Compare asyncio, uvloop (if installed) and ringloop with both of its drivers,"
        " on this machine.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--rounds",
        type=_positive,
        default=5,
        metavar="N",
        help="runs per loop and row (%(default)s)",
    )
    add(
        "--scale",
        type=_share,
        default=1.0,
        metavar="X",
        help="scales the work of each run: 0.1 is a tenth (%(default)s)",
    )
    add("--rows", nargs="+", choices=list(ROWS), metavar="ROW", help=f"any of {', '.join(ROWS)}")
    add(
        "--loops",
        nargs="+",
        metavar="LOOP",
        help="any of asyncio, uvloop, ringloop-uring, ringloop-epoll (default: all available)",
    )
    add("--json", action="store_true", help="print JSON, with every run")
    add("--svg", metavar="FILE", help="also write a chart")
    return parser


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive whole number")
    return int(text)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 100:  # noqa: PLR2004
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0, up to 100")
    return value


def _is_terminal() -> bool:
    return sys.stderr.isatty()


def _tell(text: str) -> None:
    """Show progress: on one line of a terminal, otherwise a line each."""
    if _is_terminal():
        _output.tell(f"\r\x1b[K{text}")
    elif text:
        _output.tell(text + "\n")
