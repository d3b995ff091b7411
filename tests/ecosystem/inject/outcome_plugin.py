"""A pytest plugin: writes the outcome of each test as a line of JSON, immediately.

Owns: the report file. Called by: pytest, which `running` starts with `-p outcome_plugin`. One line says
"started" and a later one the outcome, so that a process that dies names the test that killed it; a file
of node ids names the tests that must not run (again).
"""

from __future__ import annotations

import json
import os
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import loop_under_test
import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

# The file for the lines; the file of tests to leave out: node ids, patterns of them, "mark:NAME".
REPORT = "RINGLOOP_ECOSYSTEM_REPORT"
SKIP = "RINGLOOP_ECOSYSTEM_SKIP"
# How often a loop ran during a test, as a property of the test's reports.
RUNS = "loop_runs"
DETAIL_CHARS_MAX = 20_000


def pytest_configure(config: pytest.Config) -> None:
    """Start the report; a worker of pytest-xdist has none, its reports come to the main process."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Report(Path(os.environ[REPORT])), "ringloop-outcomes")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Remove the tests that must not run."""
    patterns = set(Path(os.environ[SKIP]).read_text().splitlines())
    loose = [pattern for pattern in patterns if set(pattern) & set("*?")]

    def unwanted(item: pytest.Item) -> bool:
        return (
            item.nodeid in patterns
            or any(f"mark:{mark.name}" in patterns for mark in item.iter_markers())
            or any(fnmatchcase(item.nodeid, pattern) for pattern in loose)
        )

    out = [item for item in items if unwanted(item)]
    if out:
        config.hook.pytest_deselected(items=out)
        gone = set(map(id, out))
        items[:] = [item for item in items if id(item) not in gone]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Record how many loops had run before the test."""
    item.stash[_BEFORE] = loop_under_test.runs.total()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to the report how many have run since."""
    report = yield
    ran = loop_under_test.runs.total() - item.stash.get(_BEFORE, 0)
    report.user_properties.append((RUNS, ran))
    return report


_BEFORE = pytest.StashKey[int]()
# Worst last: the outcome of a test is the worst of its set-up, call and tear-down.
_ORDER = ("passed", "xfailed", "skipped", "failed")


class Report:
    """Turns pytest's reports into lines."""

    def __init__(self, path: Path) -> None:
        self.out = path.open("a", buffering=1)
        self.running: dict[str, dict[str, Any]] = {}

    def line(self, nodeid: str, outcome: str, **more: Any) -> None:
        """Write one line."""
        self.out.write(json.dumps({"test": nodeid, "outcome": outcome, **more}) + "\n")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Record the running test."""
        self.running[nodeid] = {"outcome": "passed", "detail": "", "seconds": 0.0, "loop_runs": 0}
        self.line(nodeid, "started")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the result of set-up, call or tear-down."""
        state = self.running.setdefault(
            report.nodeid, {"outcome": "passed", "detail": "", "seconds": 0.0, "loop_runs": 0}
        )
        state["seconds"] += report.duration
        properties = dict(report.user_properties)
        state["loop_runs"] = max(state["loop_runs"], properties.get(RUNS, 0))
        outcome: str = report.outcome
        if hasattr(report, "wasxfail") and not report.failed:
            # Whether it passes or not: with a non-strict mark, the project leaves that open.
            outcome = "xfailed"
        if _ORDER.index(outcome) > _ORDER.index(state["outcome"]):
            state["outcome"] = outcome
            state["detail"] = _detail(report)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Write the outcome of the test."""
        state = self.running.pop(nodeid, None)
        if state is not None:
            self.line(nodeid, **state)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Report a module that cannot be imported as a failure under its own name."""
        if report.failed:
            self.line(report.nodeid, "failed", detail=_detail(report), seconds=0.0, loop_runs=0)
        elif report.skipped:
            self.line(report.nodeid, "skipped", detail=_detail(report), seconds=0.0, loop_runs=0)


def _detail(report: Any) -> str:
    if report.skipped and isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    text: str = report.longreprtext
    captured = "\n".join(f"--- {name}\n{content}" for name, content in report.sections)
    return f"{text}\n{captured}"[-DETAIL_CHARS_MAX:]
