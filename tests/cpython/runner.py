"""Run modules of CPython's test suite on a loop and compare with the table of expected differences.

`python -m tests.cpython.runner [LOOP ...]` prints the counts of every module; LOOP is one of
`tests.support.LOOPS`. A test that crashes or hangs its process counts as failed; the rest still
runs.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from tests import support
from tests.cpython.child import HANG_SECONDS
from tests.cpython.expected import DIFFERENCES, Difference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

# All of test_asyncio except the modules that test another loop's own classes (test_selector_events,
# test_proactor_events, test_windows_*), and related modules that run coroutines on a loop. Modules
# that an interpreter lacks are left out.
MODULES = (
    "test.test_asyncgen",
    "test.test_asyncio.test_base_events",
    "test.test_asyncio.test_buffered_proto",
    "test.test_asyncio.test_context",
    "test.test_asyncio.test_eager_task_factory",
    "test.test_asyncio.test_events",
    "test.test_asyncio.test_free_threading",
    "test.test_asyncio.test_futures",
    "test.test_asyncio.test_futures2",
    "test.test_asyncio.test_graph",
    "test.test_asyncio.test_locks",
    "test.test_asyncio.test_pep492",
    "test.test_asyncio.test_protocols",
    "test.test_asyncio.test_queues",
    "test.test_asyncio.test_runners",
    "test.test_asyncio.test_sendfile",
    "test.test_asyncio.test_server",
    "test.test_asyncio.test_sock_lowlevel",
    "test.test_asyncio.test_ssl",
    "test.test_asyncio.test_sslproto",
    "test.test_asyncio.test_staggered",
    "test.test_asyncio.test_streams",
    "test.test_asyncio.test_subprocess",
    "test.test_asyncio.test_taskgroups",
    "test.test_asyncio.test_tasks",
    "test.test_asyncio.test_threads",
    "test.test_asyncio.test_timeouts",
    "test.test_asyncio.test_tools",
    "test.test_asyncio.test_transports",
    "test.test_asyncio.test_unix_events",
    "test.test_asyncio.test_waitfor",
    "test.test_contextlib_async",
    "test.test_coroutines",
    "test.test_unittest.test_async_case",
)
# Of these, the modules that use streams: they run with native ones, too.
STREAM_MODULES = (
    "test.test_asyncio.test_buffered_proto",
    "test.test_asyncio.test_server",
    "test.test_asyncio.test_sslproto",
    "test.test_asyncio.test_streams",
    "test.test_asyncio.test_subprocess",
)
WORKERS = 4
# Copied by the importing thread: pytest changes os.environ for each test, and a concurrent copy in
# a pool thread may raise KeyError.
ENVIRONMENT = dict(os.environ)
RESTARTS_MAX = 30
# More failures than this are not caused by timing.
AGAIN_MAX = 3
AGAIN_TRIES = 3
# The hang limit of repetitions; `child.HANG_SECONDS` is for the first run.
AGAIN_HANG_SECONDS = 120
MODULE_SECONDS = 600
# For a module including its repetitions.
TEST_SECONDS = MODULE_SECONDS + 300
_CHILD = Path(__file__).with_name("child.py")


@dataclass
class Outcome:
    """The result of one module on one loop."""

    module: str
    loop: str
    # Test name to ("passed" | "passed again" | "failed" | "skipped" | "left out", detail).
    tests: dict[str, tuple[str, str]] = field(default_factory=dict)
    # The disagreements with the table, as text.
    wrong: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def judge(self) -> Outcome:
        """Fill `counts` and `wrong` by comparing with the table."""
        unused = differences(self.module, self.loop)
        listed = list(unused)
        for name, (outcome, detail) in self.tests.items():
            entry = _entry(listed, name)
            if entry in unused:
                unused.remove(entry)
            if entry is None or entry.hangs:
                self.counts[outcome] += 1
                if outcome == "failed":
                    self.wrong.append(f"{name} failed:\n{detail}")
                continue
            self.counts[f"expected to differ, {outcome}"] += 1
            if outcome == "passed":
                self.wrong.append(f"{name} passed, but is listed: {entry.reason}")
        self.wrong += [
            f"{entry.test} is listed, but there is no such test"
            for entry in unused
            if not entry.backported
        ]
        if not self.tests:
            self.wrong.append(f"no test of {self.module} ran")
        return self

    def unexpected(self) -> list[str]:
        """Name the tests that failed and are not listed."""
        listed = differences(self.module, self.loop)
        return [
            name
            for name, (outcome, _) in self.tests.items()
            if outcome == "failed" and ((entry := _entry(listed, name)) is None or entry.hangs)
        ]


def _entry(listed: list[Difference], name: str) -> Difference | None:
    return next((entry for entry in listed if fnmatchcase(name, entry.test)), None)


def describe(counts: Counter[str]) -> str:
    """Return counts as text."""
    return ", ".join(f"{count} {kind}" for kind, count in counts.most_common() if count)


def differences(module: str, loop: str) -> list[Difference]:
    """Return the entries of the table that apply to a run of `module` on `loop`."""
    return [entry for entry in DIFFERENCES if entry.concerns(loop, module, sys.version_info)]


def available(module: str) -> bool:
    """Say whether this interpreter has the test module."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def run_module(module: str, loop: str) -> Outcome:
    """Run a module, and repeat unexpected failures: CPython's tests have deadlines of their own.

    Some are fractions of a second, which a machine that tests several interpreters misses.
    """
    left_out = [entry.test for entry in differences(module, loop) if entry.hangs]
    outcome = Outcome(module, loop)
    _play(outcome, left_out, HANG_SECONDS)
    if 0 < len(outcome.unexpected()) <= AGAIN_MAX:
        # One at a time on this machine: a real difference of the loop shows then, too.
        with support.alone_on_this_machine("cpython-again"):
            _play_again(outcome, left_out)
    return outcome.judge()


@contextlib.contextmanager
def outcomes(ahead: Iterable[tuple[str, str]]) -> Iterator[Callable[[str, str], Outcome]]:
    """Yield a function that runs a module on a loop; the modules of `ahead` start at once."""
    with ThreadPoolExecutor(WORKERS) as pool:
        started: dict[tuple[str, str], Future[Outcome]] = {
            (module, loop): pool.submit(run_module, module, loop)
            for module, loop in ahead
            if support.refusal(loop.partition("+")[0]) is None
        }

        def outcome_of(module: str, loop: str) -> Outcome:
            if future := started.get((module, loop)):
                return future.result()
            return run_module(module, loop)

        yield outcome_of


def _play_again(outcome: Outcome, left_out: list[str]) -> None:
    """Repeat unexpected failures, a limited number of times, until they pass."""
    for _ in range(AGAIN_TRIES):
        if not (failed := outcome.unexpected()):
            return
        again = Outcome(outcome.module, outcome.loop)
        others = [name for name in outcome.tests if name not in failed]
        _play(again, [*left_out, *others], AGAIN_HANG_SECONDS)
        for name in failed:
            if again.tests.get(name, ("missing", ""))[0] == "passed":
                outcome.tests[name] = ("passed again", "")


def _play(outcome: Outcome, left_out: list[str], hang_seconds: int) -> None:
    """Run the module to its end, restarting after each test that kills the process."""
    module, loop = outcome.module, outcome.loop
    name, plus, streams = loop.partition("+")
    kind, _, driver = name.partition("-")
    kind += plus + streams
    environment = ENVIRONMENT | {"RINGLOOP_DRIVER": driver or "auto"}
    with tempfile.TemporaryDirectory(prefix="ringloop-cpython-") as folder:
        report, skip = Path(folder, "report"), Path(folder, "skip")
        for _ in range(RESTARTS_MAX):
            report.write_text("")
            skip.write_text("\n".join([*left_out, *outcome.tests]))
            arguments = [module, kind, str(report), str(skip), str(hang_seconds)]
            command = [sys.executable, str(_CHILD), *arguments]
            with Path(folder, "output").open("w+") as output:
                child = subprocess.run(
                    command,
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=MODULE_SECONDS,
                    check=False,
                )
                output.seek(0)
                said = output.read()
            running = collect(report, outcome)
            if child.returncode == 0:
                return
            if running is None:
                raise RuntimeError(f"{' '.join(command)} ended with {child.returncode}:\n{said}")
            outcome.tests[running] = ("failed", f"ended the process ({child.returncode}):\n{said}")
    raise RuntimeError(f"{module} on {loop}: {RESTARTS_MAX} tests ended the process")


def collect(report: Path, outcome: Outcome) -> str | None:
    """Read the report; return the test that was running when it stopped."""
    running = None
    for line in report.read_text().splitlines():
        entry = json.loads(line)
        if entry["outcome"] == "started":
            running = entry["test"]
        elif entry["outcome"] == "left out":
            outcome.tests.setdefault(entry["test"], ("left out", ""))
        else:
            running = None
            outcome.tests[entry["test"]] = (entry["outcome"], entry["detail"])
    return running


def start(
    pool: ThreadPoolExecutor, loop: str, modules: Iterable[str] = MODULES
) -> dict[str, Future[Outcome]]:
    """Start the modules on `loop`, several concurrently: most of their time is waiting."""
    return {module: pool.submit(run_module, module, loop) for module in filter(available, modules)}


def main(loops: list[str]) -> int:
    """Print counts and disagreements of every module on `loops`."""
    status = 0
    with ThreadPoolExecutor(WORKERS) as pool:
        for loop in loops:
            total: Counter[str] = Counter()
            for module, future in start(pool, loop).items():
                outcome = future.result()
                total.update(outcome.counts)
                status |= bool(outcome.wrong)
                print(f"{loop:15} {module.rpartition('.')[2]:25} {describe(outcome.counts)}")
                for line in outcome.wrong:
                    print("    " + line.strip().replace("\n", "\n    "))
            print(f"{loop:15} {'all':25} {describe(total)}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(support.LOOPS)))
