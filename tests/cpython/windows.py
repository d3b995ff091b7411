"""Run CPython's own tests on Windows, under Wine: on asyncio's proactor loop, the oracle, then on ours.

`python -m tests.cpython.windows PYTHON.EXE SITE [MODULE ...]`: the interpreter for Windows has the
tests, SITE is a folder with the package. What fails on asyncio's loop is Wine's or the machine's, and is
only counted; what passes there has to pass on ours, except what `expected_windows` lists. The table is
strict: a listed test that passes on both fails the run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path

from tests.cpython import runner
from tests.cpython.expected_windows import DIFFERENCES, HANGS, HANGS_ON_OURS
from tests.cpython.runner import Outcome

_CHILD = Path(__file__).with_name("child.py")
LOOPS = ("asyncio", "ringloop")
# Not of Windows; and what tests nothing of a loop.
LEFT_OUT = ("test.test_asyncio.test_unix_events",)
MODULES = (
    *(name for name in runner.MODULES if name not in LEFT_OUT),
    "test.test_asyncio.test_proactor_events",
    "test.test_asyncio.test_windows_events",
)
HANG_SECONDS = 60
AGAIN_TRIES = 2


class Wine:
    """How tests run: the interpreter and the package, both by their paths here."""

    def __init__(self, interpreter: Path, site: Path) -> None:
        self.interpreter = interpreter
        self.environment = {**os.environ, "PYTHONPATH": _windows_path(site)}

    def has(self, module: str) -> bool:
        """Say whether the interpreter has the test module."""
        place = self.interpreter.parent / "lib" / module.replace(".", "/")
        return place.is_dir() or place.with_suffix(".py").is_file()

    def play(self, outcome: Outcome, left_out: list[str]) -> None:
        """Run the module to its end, restarting after each test that ends the process."""
        with tempfile.TemporaryDirectory(prefix="ringloop-cpython-") as folder:
            report, skip = Path(folder, "report"), Path(folder, "skip")
            for _ in range(runner.RESTARTS_MAX):
                report.write_text("")
                skip.write_text("\n".join([*left_out, *outcome.tests]))
                status, said = self._start(outcome, folder)
                running = runner.collect(report, outcome)
                if status == 0:
                    return
                if running is None:
                    raise RuntimeError(f"{outcome.module} ended with {status}:\n{said}")
                outcome.tests[running] = ("failed", f"ended the process ({status}):\n{said}")
        raise RuntimeError(f"{outcome.module}: {runner.RESTARTS_MAX} tests ended the process")

    def _start(self, outcome: Outcome, folder: str) -> tuple[int, str]:
        command = ["wine", str(self.interpreter), _windows_path(_CHILD), outcome.module]
        command += [outcome.loop, "report", "skip", str(HANG_SECONDS)]
        done = subprocess.run(
            command,
            cwd=folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=runner.MODULE_SECONDS,
            check=False,
        )
        return done.returncode, done.stdout.decode(errors="replace").replace("\r", "")


def _windows_path(path: Path) -> str:
    return "Z:" + str(path.absolute()).replace("/", "\\")


def matching(name: str, table: dict[str, str]) -> str | None:
    """Return the pattern of the table that a test's name matches."""
    return next((pattern for pattern in table if fnmatchcase(name, pattern)), None)


def compare(stock: Outcome, ours: Outcome, used: set[str]) -> tuple[Counter[str], list[str]]:
    """Return how often what came out of a module on ours, and what disagrees with the table."""
    counts, wrong = Counter[str](), list[str]()
    for name in stock.tests.keys() | ours.tests.keys():
        [there, _], [here, detail] = (
            one.tests.get(name, ("missing", "no such test")) for one in (stock, ours)
        )
        listed = matching(name, DIFFERENCES)
        used.update({listed} if listed else ())
        if here == "left out" != there:
            counts["expected to differ, left out"] += 1
        elif there in {"failed", "left out"}:
            counts[f"{there} on asyncio, too" if here == there else f"{there} on asyncio only"] += 1
        elif listed:
            counts[f"expected to differ, {here}"] += 1
            if here == "passed":
                wrong.append(f"{name} passed, but is listed: {DIFFERENCES[listed]}")
        else:
            counts[here] += 1
            if here != there:
                wrong.append(f"{name}: {there} on asyncio, {here} on ours:\n{detail}")
    return counts, wrong


def run_module(wine: Wine, module: str, used: set[str]) -> tuple[Outcome, Counter[str], list[str]]:
    """Run a module on both loops; return asyncio's outcome, counts of ours, and what is wrong."""
    outcomes = [Outcome(module, loop) for loop in LOOPS]
    for one in outcomes:
        hangs = [*HANGS, *(HANGS_ON_OURS if one.loop == "ringloop" else ())]
        wine.play(one, hangs)
        # A busy machine fails some: those once more, alone.
        for _ in range(AGAIN_TRIES):
            failed = [
                name
                for name, (outcome, _) in one.tests.items()
                if outcome == "failed" and not matching(name, DIFFERENCES)
            ]
            if not failed or len(failed) > runner.AGAIN_MAX:
                break
            again = Outcome(module, one.loop)
            wine.play(again, [*hangs, *(name for name in one.tests if name not in failed)])
            one.tests |= {name: again.tests[name] for name in failed if name in again.tests}
    stock, ours = outcomes
    return stock, *compare(stock, ours, used)


def main() -> int:
    """Run what the command line asks for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.cpython.windows", description=__doc__)
    parser.add_argument("interpreter", type=Path)
    parser.add_argument("site", type=Path)
    parser.add_argument(
        "modules", nargs="*", help="all by default; the last part of a name is enough"
    )
    asked = parser.parse_args()
    wine = Wine(asked.interpreter.absolute(), asked.site)
    wanted = [
        module
        for module in MODULES
        if wine.has(module) and (not asked.modules or module.rpartition(".")[2] in asked.modules)
    ]
    totals, used, failed = (Counter[str](), Counter[str]()), set[str](), not wanted
    for module in wanted:
        outcome, ours, wrong = run_module(wine, module, used)
        stock = Counter(kind for kind, _ in outcome.tests.values())
        for total, counts in zip(totals, (stock, ours), strict=True):
            total.update(counts)
        print(f"{module.rpartition('.')[2]}")
        for loop, counts in zip(LOOPS, (stock, ours), strict=True):
            print(f"    {loop:10} {runner.describe(counts)}")
        for name, (kind, _) in outcome.tests.items():
            if kind == "failed":
                print(f"    {name} fails on asyncio")
        for line in wrong:
            print("    " + line.strip().replace("\n", "\n    "))
        sys.stdout.flush()
        failed |= bool(wrong)
    if not asked.modules:
        for pattern in DIFFERENCES.keys() - used:
            print(f"{pattern} is listed, but there is no such test")
            failed = True
    print(f"CPython's tests on asyncio.ProactorEventLoop: {runner.describe(totals[0])}")
    print(f"CPython's tests on ringloop: {runner.describe(totals[1])}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
