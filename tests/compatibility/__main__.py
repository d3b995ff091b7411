"""Measure the matrix on every loop and write docs/compatibility.md.

`python -m tests.compatibility [--python PATH] [--free-threaded PATH] [--loops NAME ...]`. The first
interpreter has the loops installed, by default the benchmark's CPython 3.14 (created by `make bench`);
the second is a free-threaded one with the loops that support it. Each row runs in its own process, so
that a crash or a hang affects only that row.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tests.compatibility.rows  # noqa: F401  (declares them)
from tests.compatibility.registry import ROWS, Row

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / "docs" / "compatibility.md"
# Longer than all checks of a row need, even if they hang.
ROW_SECONDS = 240
NOTE_LEN_MAX = 100
# Name: module, expression, distribution.
LOOPS = {
    "asyncio": ("asyncio", "asyncio.SelectorEventLoop()", ""),
    "ringloop (io_uring)": ("ringloop", "ringloop.Loop(driver='uring')", "ringloop"),
    "ringloop (epoll)": ("ringloop", "ringloop.Loop(driver='epoll')", "ringloop"),
    "uvloop": ("uvloop", "uvloop.new_event_loop()", "uvloop"),
    "zuvloop": ("zuvloop", "zuvloop.new_event_loop()", "zuvloop"),
    "rsloop": ("rsloop", "rsloop.new_event_loop()", "rsloop"),
    "zloop": ("zloop", "zloop.new_event_loop()", "zloop"),
    "rloop": ("rloop", "rloop.new_event_loop()", "rloop"),
}
# The order of the tables.
GROUPS = (
    "Scheduling",
    "Connections",
    "Servers",
    "TLS",
    "Descriptors and sockets",
    "Processes and signals",
    "Loop lifecycle",
    "Debug mode",
    "Introspection",
)
# Only a free-threaded interpreter can measure this.
FREE_THREADED = "free-threaded build keeps the GIL off"
# Rows measured concurrently: most of their time is waiting.
WORKERS = 3
Results = dict[str, dict[str, list[dict[str, str]]]]


def measure(python: str, loop: str, row: Row) -> list[dict[str, str]]:
    """Return the outcome of each of the row's checks."""
    module, expression, _ = LOOPS[loop]
    command = [python, "-m", "tests.compatibility.child", module, expression, row.title]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=ROW_SECONDS,
            check=False,
        )
        said, end = done.stdout, f"ended with {done.returncode}"
    except subprocess.TimeoutExpired as stopped:
        said, end = (stopped.stdout or b"").decode(), f"hung for {ROW_SECONDS} s"
    found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    missing = row.checks[len(found) :]
    return found + [{"check": c.name, "outcome": "no", "detail": end} for c in missing]


def cell(checks: list[dict[str, str]], notes: list[str], where: str) -> str:
    """Return the table cell of one row on one loop; failures become a note."""
    outcomes = Counter(check["outcome"] for check in checks)
    failed = [check for check in checks if check["outcome"] == "no"]
    if not failed:
        return "yes" if outcomes["yes"] else "?"
    told = "; ".join(f"*{check['check']}* – {check['detail'][:NOTE_LEN_MAX]}" for check in failed)
    notes.append(f"{where}: {told}")
    return f"partly [{len(notes)}]" if outcomes["yes"] else f"no [{len(notes)}]"


def measure_free_threaded(python: str | None, loop: str, row: Row) -> list[dict[str, str]]:
    """Return the outcome of the row measured on a free-threaded interpreter."""
    (check,) = row.checks
    if python is None:
        return [
            {"check": check.name, "outcome": "?", "detail": "no free-threaded interpreter given"}
        ]
    distribution = LOOPS[loop][2]
    if distribution and not installed(python)[distribution]:
        detail = "pip finds no build for a free-threaded CPython"
        return [{"check": check.name, "outcome": "no", "detail": detail}]
    return measure(python, loop, row)


def report(results: Results, versions: dict[str, str], python: str) -> str:
    """Return the page."""
    loops = list(next(iter(results.values())))
    notes: list[str] = []
    named = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    made_on = (
        f"Made by `python -m tests.compatibility` on {platform.system()} {platform.release()}, CPython"
        f" {python}, with {named}."
    )
    lines = [
        "# Compatibility",
        "",
        "How much of asyncio's API each event loop supports, and what goes beyond it. Every cell is the",
        "result of a program in `tests/compatibility/rows`; nothing here is written by hand. Our own",
        "columns are tests, too: `tests/compatibility/test_matrix.py` fails if one is not a yes.",
        "",
        made_on,
        "",
        "*yes*: all checks of the row pass; *partly*: some do; *no*: none does; *?*: not measurable",
        "on this machine or interpreter. A number refers to a note below the tables. ringloop runs on",
        "Linux (see platforms.md); uvloop on macOS too, rsloop and zuvloop also on Windows.",
    ]
    group = ""
    for title, by_loop in results.items():
        row = ROWS[title]
        if row.group != group:
            group = row.group
            lines += ["", f"## {group}", "", "| | " + " | ".join(loops) + " |"]
            lines.append("|---|" + ":--:|" * len(loops))
        since = f" ({row.since[0]}.{row.since[1]})" if row.since > (3, 11) else ""
        cells = [cell(by_loop[loop], notes, f"{loop}, {title}") for loop in loops]
        lines.append(f"| {title.replace('|', '/')}{since} | " + " | ".join(cells) + " |")
    lines += ["", "## Notes", ""]
    lines += [f"{number}. {note}" for number, note in enumerate(notes, 1)]
    return "\n".join(lines) + "\n"


def installed(python: str) -> dict[str, str]:
    """Return the version of each loop's distribution, empty if it is not installed."""
    script = (
        "import importlib.metadata as m, json, sys\n"
        "def version(name):\n"
        "    try: return m.version(name)\n"
        "    except m.PackageNotFoundError: return ''\n"
        "print(json.dumps({name: version(name) for name in sys.argv[1:]}))"
    )
    names = sorted({distribution for _, _, distribution in LOOPS.values() if distribution})
    done = subprocess.run([python, "-c", script, *names], capture_output=True, check=True)
    return dict(json.loads(done.stdout))


def main() -> int:
    """Measure and write; return 1 if one of our own rows is not a yes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=str(ROOT / ".venv-bench" / "3.14" / "bin" / "python"))
    parser.add_argument("--free-threaded", metavar="PYTHON")
    parser.add_argument("--loops", nargs="*", choices=LOOPS, default=list(LOOPS))
    arguments = parser.parse_args()
    versions = installed(arguments.python)
    ask = "import platform; print(platform.python_version(), end='')"
    python = subprocess.run([arguments.python, "-c", ask], capture_output=True, check=True)
    loops = [name for name in arguments.loops if not LOOPS[name][2] or versions[LOOPS[name][2]]]
    version = tuple(map(int, python.stdout.decode().split(".")[:2]))
    rows = [row for row in ROWS.values() if row.since <= version]
    rows.sort(key=lambda row: GROUPS.index(row.group))

    def measure_row(row: Row) -> dict[str, list[dict[str, str]]]:
        print(row.title, flush=True)
        if row.title == FREE_THREADED:
            return {
                loop: measure_free_threaded(arguments.free_threaded, loop, row) for loop in loops
            }
        return {loop: measure(arguments.python, loop, row) for loop in loops}

    with ThreadPoolExecutor(WORKERS) as pool:
        titles = [row.title for row in rows]
        results: Results = dict(zip(titles, pool.map(measure_row, rows), strict=True))
    REPORT.write_text(report(results, versions, python.stdout.decode()))
    print(f"wrote {REPORT.relative_to(ROOT)}")
    ours = [
        f"{loop}, {title}: {check['check']}: {check['detail']}"
        for title, by_loop in results.items()
        for loop, checks in by_loop.items()
        for check in checks
        if loop.startswith("ringloop")
        and check["outcome"] == "no"
        and not ("over io_uring" in title and "epoll" in loop)
    ]
    for line in ours:
        print("not a yes:", line)
    return 1 if ours else 0


if __name__ == "__main__":
    sys.exit(main())
