"""What the comparison programs share: common arguments, writing reports."""

from __future__ import annotations

import datetime as dt
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comparison.environment import SetupError
from comparison.results import compact
from comparison.telling import plot

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence

    from comparison.rows import Row


def run(
    options: argparse.Namespace, rows: Sequence[Row], compare: Callable[[], Any | None]
) -> Any | None:
    """Return the report of `compare`; `None` if there is none or only the row names were requested."""
    if options.list:
        print("\n".join(row.name for row in rows))
        return None
    try:
        return compare()
    except SetupError as error:
        sys.exit(f"compare.py: {error}")
    except KeyboardInterrupt:
        sys.exit("\ncompare.py: interrupted, nothing written")


def circumstances() -> dict[str, str]:
    """The command line and the date."""
    return {
        "command": shlex.join(["python3", *map(_without_folders, sys.argv)]),
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def _without_folders(word: str) -> str:
    """Strip this machine's folders from a path."""
    return Path(word).name if Path(word).is_absolute() else word


def add_common_arguments(parser: Any) -> None:
    """Add the arguments that every comparison accepts."""
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PATTERN",
        help="rows or workloads by name, shell wildcards; may be repeated",
    )
    parser.add_argument("--list", action="store_true", help="print the names of the rows and stop")
    parser.add_argument("--quick", action="store_true", help="a first look: less of everything")
    parser.add_argument("--rounds", type=int, help="runs of each contestant in each row")
    parser.add_argument("--seconds", type=float, help="measured time of a run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all figures")
    parser.add_argument(
        "--write-results", action="store_true", help="rewrite the results in benches"
    )


def parse(
    parser: argparse.ArgumentParser, quick: Mapping[str, object], full: Mapping[str, object]
) -> argparse.Namespace:
    """Parse the command line; defaults come from `quick` or `full`."""
    options = parser.parse_args()
    for name, value in (quick if options.quick else full).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def write_results(
    report: Mapping[str, Any],
    results: Path,
    head: str,
    picture_shows: str,
    text: str,
    python: Path | str = sys.executable,
) -> None:
    """Write tables, figures and picture into the files of `results`; `head` goes first."""
    picture = results.with_suffix(".svg")
    image = ""
    if plot(report, picture, python):
        image = f"![{picture_shows}]({picture.name})\n\n"
    results.write_text(f"{head}\n\n{image}{text}")
    figures = json.dumps(compact(report), separators=(",", ":"))
    results.with_suffix(".json").write_text(figures + "\n")


def write_figures(report: Mapping[str, Any], target: Path) -> None:
    """Write all measurements."""
    target.write_text(json.dumps(report, indent=1) + "\n")
