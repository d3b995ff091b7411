"""The command line: `python -m tests.ecosystem --help`."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import Any

from tests.ecosystem import environment, judging, results, running
from tests.ecosystem.environment import SetupError
from tests.ecosystem.running import LOOPS, ORACLE, OTHERS, Place
from tests.ecosystem.suites import SUITES, Suite, named

DETAIL_CHARS_MAX = 1200
# How many of the failures on stock asyncio are shown.
FAILURES_SHOWN = 10


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.ecosystem", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="name the suites")
    run = commands.add_parser("run", help="run suites and compare them with stock asyncio")
    run.add_argument("suite", nargs="*", help="all of them where none is named")
    run.add_argument(
        "--loop",
        action="append",
        choices=[*LOOPS, *OTHERS],
        help="may be given again; both drivers where none is named. Stock asyncio always runs",
    )
    run.add_argument("--python", default=sys.executable, metavar="PATH", help="the interpreter")
    run.add_argument("--quick", action="store_true", help="the short form of each suite")
    run.add_argument("--tests", nargs="+", metavar="ID", help="only these node ids of the suite")
    run.add_argument("--sources", type=Path, metavar="DIR", help="checkouts, as NAME-VERSION")
    run.add_argument("--write", action="store_true", help=f"update {results.PAGE.name}")
    return parser.parse_args()


def main() -> int:
    """Run what the command line asks for."""
    # A shell starts background jobs with SIGINT ignored, which every test would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    options = arguments()
    if options.command == "list":
        for suite in SUITES:
            print(f"{suite.name:12} {suite.project} {suite.version}")
        return 0
    try:
        return run(options)
    except SetupError as error:
        print(f"tests.ecosystem: {error}", file=sys.stderr)
        return 2


def run(options: argparse.Namespace) -> int:
    """Run the requested suites and print the table."""
    interpreter = environment.Interpreter.at(options.python)
    records, status = [], 0
    for suite in [named(name) for name in options.suite] or SUITES:
        python = environment.python_for(suite, interpreter)
        try:
            sources = environment.sources_of(suite, python, options.sources)
        except SetupError as error:
            if options.suite:
                raise
            print(f"{suite.name:12} not run: {error}")
            continue
        record = run_suite(suite, interpreter, Place(python, sources), options)
        records.append(record)
        status |= any(loop in running.OURS for loop in record["wrong"])
    print("\n" + results.table(records))
    if options.write:
        results.write(records)
    return status


def run_suite(
    suite: Suite, interpreter: environment.Interpreter, place: Place, options: argparse.Namespace
) -> dict[str, Any]:
    """Run a suite on stock asyncio and on the loops, report progress, return the record."""
    how = {"tests": options.tests, "quick": options.quick}
    oracle = running.run(suite, ORACLE, place, **how)
    _say(oracle)
    chance = judging.settle(oracle, place)
    for test, (failed, of) in chance.items():
        _say_indented(f"flaky {test}: failed {failed} of {of} on stock asyncio")
    failures = {test: got for test, got in oracle.outcomes.items() if got.outcome == "failed"}
    for test, got in list(failures.items())[:FAILURES_SHOWN]:
        _say_indented(_shortened(f"{test}: failed on stock asyncio\n{got.detail}"))
    if len(failures) > FAILURES_SHOWN:
        _say_indented(f"and {len(failures) - FAILURES_SHOWN} more failed on stock asyncio")
    verdicts = []
    for loop in options.loop or running.OURS:
        if loop == ORACLE:
            continue
        verdict = judging.judge(running.run(suite, loop, place, **how), oracle, place)
        verdicts.append(verdict)
        _say(verdict.run)
        word = "WRONG" if loop in running.OURS else "differs:"
        for line in verdict.wrong:
            _say_indented(f"{word} {_shortened(line)}")
        for test, (ours, of, theirs) in verdict.flaky.items():
            _say_indented(f"flaky {test}: failed {ours} of {of}, on {ORACLE} {theirs} of {of}")
        for test in verdict.better:
            _say_indented(f"passed here, not on {ORACLE}: {test}")
    return results.record(suite, interpreter, oracle, chance, verdicts)


def _say(done: running.Run) -> None:
    counts = ", ".join(f"{count} {kind}" for kind, count in done.counts().most_common())
    loops = f"{sum(done.created.values())} loops, {done.on_a_loop()} tests on one"
    print(
        f"{done.suite.name:12} {done.loop:15} {counts}; {loops}; {done.seconds:.0f} s", flush=True
    )


def _shortened(text: str) -> str:
    """Return the first line, which names the test, and the end of the rest."""
    first, _, rest = text.partition("\n")
    return f"{first}\n{rest[-DETAIL_CHARS_MAX:]}"


def _say_indented(text: str) -> None:
    print("    " + text.strip().replace("\n", "\n    "), flush=True)


if __name__ == "__main__":
    sys.exit(main())
