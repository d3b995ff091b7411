"""The results page: what ran, where, when, and its results.

Owns: RESULTS.json (the measurements, one record per suite and Python version) and RESULTS.md (written
from it). Called by: `__main__ --write`.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
from typing import TYPE_CHECKING, Any

from tests.ecosystem import environment, running
from tests.ecosystem.judging import AGAIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.ecosystem.environment import Interpreter
    from tests.ecosystem.judging import Verdict
    from tests.ecosystem.running import Run
    from tests.ecosystem.suites import Suite

DATA = environment.HERE / "RESULTS.json"
PAGE = environment.HERE / "RESULTS.md"

INTRODUCTION = """\
# Test suites of asyncio's users, on this loop

Written by `make ecosystem WRITE=1`; do not edit. Each suite is the project's own, unchanged, in the
given version, run three times: on stock asyncio (the oracle), on ringloop's io_uring driver and on its
epoll driver. ringloop is injected below the suite (`inject/`): everything that creates a loop gets ours,
and a run in which any other loop ran fails. "On a loop" is the number of tests during which a loop ran;
the others test plain functions. Expected failures (`xfail`) count as skipped. "Load" is the load average
of the machine, including other work, at the end of the run.
"""


def record(
    suite: Suite,
    interpreter: Interpreter,
    oracle: Run,
    chance: Mapping[str, tuple[int, int]],
    verdicts: Sequence[Verdict],
) -> dict[str, Any]:
    """Return the record of a suite's runs; `chance`: what failed on the oracle only sometimes."""
    return {
        "suite": suite.name,
        "version": suite.version,
        "python": interpreter.version,
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "machine": machine(),
        # Of the last fifteen minutes: shows how reliable the times are.
        "load": round(os.getloadavg()[2], 1),
        "source": "source distribution" if suite.in_distribution else "checkout of the repository",
        "notes": list(suite.notes),
        "left_out": [[entry.test, entry.reason] for entry in suite.left_out],
        "runs": {run.loop: _counts(run) for run in (oracle, *(v.run for v in verdicts))},
        "failed_on_oracle": sorted(_failed(oracle)),
        "flaky_on_oracle": chance,
        "flaky": {v.run.loop: v.flaky for v in verdicts if v.flaky},
        "expected": {v.run.loop: v.expected for v in verdicts if v.expected},
        "better": {v.run.loop: v.better for v in verdicts if v.better},
        "wrong": {v.run.loop: [_first_line(w) for w in v.wrong] for v in verdicts if v.wrong},
    }


def machine() -> str:
    """Describe this machine."""
    return f"{os.cpu_count()} CPUs, {platform.machine()}, {platform.system()} {platform.release()}"


def table(records: Sequence[dict[str, Any]]) -> str:
    """Return the table of all suites, as Markdown; other loops get a column if they were run."""
    others = [loop for loop in running.OTHERS if any(loop in kept["runs"] for kept in records)]
    loops = [*running.LOOPS, *others]
    lines = [
        f"| suite | Python | tests | on a loop | {' | '.join(loops)} | seconds | load | date |",
        f"|---|---|--:|--:|{'---|' * len(loops)}---|--:|---|",
    ]
    for kept in records:
        runs = kept["runs"]
        tests = runs[running.ORACLE]
        cells = [_cell(runs.get(loop)) for loop in loops]
        seconds = " / ".join(f"{runs[loop]['seconds']:.0f}" for loop in loops if loop in runs)
        lines.append(
            f"| {kept['suite']} {kept['version']} | {kept['python']} | {tests['tests']} |"
            f" {tests['on_a_loop']} | {' | '.join(cells)} | {seconds} |"
            f" {kept['load']} | {kept['date']} |"
        )
    return "\n".join(lines)


def write(new: Sequence[dict[str, Any]]) -> None:
    """Replace the old records by the new ones, and write the page."""
    kept = {_key(entry): entry for entry in json.loads(DATA.read_text())} if DATA.exists() else {}
    kept |= {_key(entry): entry for entry in new}
    records = [kept[key] for key in sorted(kept)]
    DATA.write_text(json.dumps(records, indent=1) + "\n")
    PAGE.write_text(page(records))


def page(records: Sequence[dict[str, Any]]) -> str:
    """Return the page."""
    machines = sorted({kept["machine"] for kept in records})
    parts = [
        INTRODUCTION,
        f"passed / skipped / failed. Machine: {'; '.join(machines)}.\n",
        table(records) + "\n",
        "## Differences and omissions\n",
        f"Tests that failed only on ringloop were run {AGAIN} more times each, there and on asyncio.\n",
    ]
    for kept in records:
        if lines := list(_notes(kept)):
            title = f"### {kept['suite']} {kept['version']}, CPython {kept['python']}\n"
            parts.append("\n".join([title, *lines, ""]))
    return "\n".join(parts)


def _notes(kept: dict[str, Any]) -> Iterable[str]:
    if kept["source"] != "source distribution":
        yield f"* The tests are from a {kept['source']}: the source distribution has none."
    for note in kept["notes"]:
        yield f"* {note}."
    for test, reason in kept["left_out"]:
        yield f"* Omitted on every loop: `{test}`: {reason}."
    for test in kept["failed_on_oracle"]:
        yield f"* Fails on stock asyncio too: `{test}`."
    for test, (failed, of) in kept["flaky_on_oracle"].items():
        yield f"* Intermittent on stock asyncio: `{test}` (failed {failed} of {of} times)."
    for loop in running.OURS:
        yield from _notes_of_loop(kept, loop)
    for loop in running.OTHERS:
        if tests := kept["wrong"].get(loop):
            names = sorted({test.partition("[")[0].partition(": ")[0] for test in tests})
            listed = "`, `".join(names)
            yield f"* {len(tests)} tests differ on {loop}, of {len(names)} functions: `{listed}`."


def _notes_of_loop(kept: dict[str, Any], loop: str) -> Iterable[str]:
    for test in kept["better"].get(loop, ()):
        yield f"* Passes on {loop}, not on stock asyncio: `{test}`."
    for test, (ours, of, theirs) in kept["flaky"].get(loop, {}).items():
        rates = f"differed {ours} of {of} times, on asyncio {theirs} of {of}"
        yield f"* Intermittent on {loop}: `{test}` ({rates})."
    for test, reason in kept["expected"].get(loop, {}).items():
        yield f"* Differs on {loop}: `{test}`: {reason}."
    for line in kept["wrong"].get(loop, ()):
        yield f"* **Wrong on {loop}**: {line}"


def _key(kept: dict[str, Any]) -> tuple[str, str]:
    return kept["suite"], kept["python"].rpartition(".")[0]


def _counts(run: Run) -> dict[str, Any]:
    counts = run.counts()
    return {
        "tests": len(run.outcomes),
        "passed": counts["passed"],
        "skipped": counts["skipped"] + counts["xfailed"],
        "failed": counts["failed"],
        "on_a_loop": run.on_a_loop(),
        "loops": sum(run.created.values()),
        "seconds": round(run.seconds, 1),
    }


def _cell(counts: dict[str, Any] | None) -> str:
    if counts is None:
        return "–"
    return f"{counts['passed']} / {counts['skipped']} / {counts['failed']}"


def _failed(run: Run) -> Iterable[str]:
    return (test for test, outcome in run.outcomes.items() if outcome.outcome == "failed")


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
