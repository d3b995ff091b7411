"""One run of one suite on one loop, in its own processes.

Owns: the child process and its report. Called by: `judging`. A test that kills its process counts as
failed, and the rest still runs.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.ecosystem import environment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.ecosystem.suites import Suite

ORACLE = "asyncio"
OURS = ("ringloop-uring", "ringloop-epoll")
LOOPS = (ORACLE, *OURS)
# Other loops that a run may use, for comparison.
OTHERS = ("uvloop",)
RESTARTS_MAX = 20
# The environment variables that a test suite needs: proxies and asyncio settings would make a run
# differ from machine to machine.
KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TERM", "USER")


@dataclass(frozen=True)
class Outcome:
    """The result of one test."""

    outcome: str  # "passed", "failed", "skipped" or "xfailed"
    detail: str
    seconds: float
    # How many loops ran during it.
    loop_runs: int


@dataclass
class Run:
    """The results of a suite on a loop."""

    suite: Suite
    loop: str
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    # Kind of loop to how many were created, and how many runs they had.
    created: Counter[str] = field(default_factory=Counter)
    runs: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def counts(self) -> Counter[str]:
        """Count outcomes."""
        return Counter(test.outcome for test in self.outcomes.values())

    def on_a_loop(self) -> int:
        """Count the tests during which a loop ran."""
        return sum(test.loop_runs > 0 for test in self.outcomes.values())

    def proof(self) -> str | None:
        """Say why this was not a run of its loop; None if it was."""
        if not self.runs[self.loop]:
            return f"no {self.loop} loop ran, but {dict(self.runs) or 'none at all'}"
        others = {kind: count for kind, count in self.runs.items() if kind != self.loop}
        if others:
            return f"loops that were not under test ran: {others}"
        return None


@dataclass(frozen=True)
class Place:
    """Where a suite runs: its environment's Python and its sources."""

    python: Path
    sources: Path


def run(
    suite: Suite, loop: str, place: Place, tests: Iterable[str] | None = None, **how: Any
) -> Run:
    """Run the whole suite, or `tests` (node ids); `quick=True` selects the suite's short form."""
    result = Run(suite, loop)
    arguments = list(suite.arguments)
    if tests is not None:
        arguments = [*(a for a in suite.arguments if a.startswith("-")), *tests]
    elif how.get("quick"):
        arguments = list(suite.quick or suite.arguments)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ringloop-ecosystem-") as folder:
        census = Path(folder, "census")
        census.mkdir()
        sources = Path(folder, "sources")
        shutil.copytree(place.sources, sources, symlinks=True)
        left_out = [entry.test for entry in suite.left_out]
        for _ in range(RESTARTS_MAX):
            Path(folder, "report").write_text("")
            Path(folder, "skip").write_text("\n".join([*left_out, *result.outcomes]))
            code, said = _child(suite, loop, place, Path(folder), arguments)
            died_in = _collect(Path(folder, "report"), result)
            if code in (0, 1, 5) and not died_in:  # passed, some failed, nothing left to run
                break
            if not died_in:
                raise environment.SetupError(f"{suite.name} on {loop} ended with {code}:\n{said}")
            for test in died_in:
                result.outcomes[test] = Outcome(
                    "failed", f"ended its process ({code}):\n{said}", 0, 0
                )
        _count(census, result)
    result.seconds = time.monotonic() - started
    return result


def _child(
    suite: Suite, loop: str, place: Place, folder: Path, arguments: list[str]
) -> tuple[int | None, str]:
    """Run pytest once; return its exit status (None: timed out) and the end of its output."""
    command = [
        *isolation(),
        *(str(place.python), "-m", "pytest", "-p", "outcome_plugin", "-p", "no:cacheprovider"),
        *("--quiet", "--no-header", "--tb=short", "--continue-on-collection-errors"),
        f"--timeout={suite.test_seconds}",
        *arguments,
    ]
    with (folder / "output").open("w+b") as output:
        child = subprocess.Popen(
            command,
            cwd=folder / "sources",
            env=_environment(suite, loop, place, folder),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        code: int | None = None
        try:
            code = child.wait(suite.run_seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            # Processes left by the tests hold ports; kill them too.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        output.seek(0)
        return code, output.read().decode(errors="replace")[-8000:]


def _environment(suite: Suite, loop: str, place: Place, folder: Path) -> dict[str, str]:
    paths = [environment.INJECT]
    if loop.startswith("ringloop-"):
        paths.append(environment.CHECKOUT / "python")
    elif loop == "uvloop":
        paths.append(environment.uvloop_path(place.python))
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    scripts = f"{place.python.parent}{os.pathsep}{kept.get('PATH', os.defpath)}"
    return (
        kept
        | {
            "PATH": scripts,
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "RINGLOOP_ECOSYSTEM_LOOP": loop,
            "RINGLOOP_ECOSYSTEM_CENSUS": str(folder / "census"),
            "RINGLOOP_ECOSYSTEM_REPORT": str(folder / "report"),
            "RINGLOOP_ECOSYSTEM_SKIP": str(folder / "skip"),
            "RINGLOOP_DRIVER": loop.removeprefix("ringloop-") if loop in OURS else "auto",
        }
        | suite.environment
    )


@functools.cache
def isolation() -> tuple[str, ...]:
    """Return a command that gives a run its own network and hosts file, if the machine allows it.

    Fixed ports of tests are then free, the internet is unreachable for sure, and "localhost" has both
    its addresses, which many IPv6 tests require.
    """
    script = 'ip link set lo up && mount --bind "$0" /etc/hosts && exec "$@"'
    hosts = str(environment.HERE / "hosts")
    command = ("unshare", "--net", "--mount", "sh", "-c", script, hosts)
    with contextlib.suppress(OSError):
        if not subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
            return command
    return ()


def _collect(report: Path, result: Run) -> list[str]:
    """Read the report; return the tests that were running when it stopped."""
    running: dict[str, None] = {}
    for line in report.read_text().splitlines():
        entry = json.loads(line)
        test, outcome = entry.pop("test"), entry.pop("outcome")
        if outcome == "started":
            running[test] = None
        else:
            running.pop(test, None)
            result.outcomes[test] = Outcome(outcome, **entry)
    return list(running)


def _count(census: Path, result: Run) -> None:
    for file in census.iterdir():
        counts = json.loads(file.read_text())
        result.created.update(counts["created"])
        result.runs.update(counts["runs"])
