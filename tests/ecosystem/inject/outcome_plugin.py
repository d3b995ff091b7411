"""A pytest plugin: write what each test did as a line of JSON, as it happens.

Owns: the report file. Called by: pytest, which `running` starts with `-p outcome_plugin`. Never: changes
an outcome. A line says "started" and a later one says the outcome, so that a process that dies names
the test it died in; a file of node ids names the tests that are not to run (again).
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

# The file for the lines; the file of what to leave out: node ids, patterns of them, "mark:NAME".
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
    """Take out the tests that are not to run."""
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
    """Remember how many loops had run before the test."""
    item.stash[_BEFORE] = loop_under_test.runs.total()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note in the report how many ran since."""
    report = yield
    ran = loop_under_test.runs.total() - item.stash.get(_BEFORE, 0)
    report.user_properties.append((RUNS, ran))
    return report


_BEFORE = pytest.StashKey[int]()
# Worst last: the worst of a test's set-up, call and tear-down is its outcome.
_ORDER = ("passed", "xfailed", "skipped", "failed")


class Report:
    """Turn pytest's reports into lines."""

    def __init__(self, path: Path) -> None:
        self.out = path.open("a", buffering=1)
        self.running: dict[str, dict[str, Any]] = {}

    def line(self, nodeid: str, outcome: str, **more: Any) -> None:
        """Write one line."""
        self.out.write(json.dumps({"test": nodeid, "outcome": outcome, **more}) + "\n")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note the test that runs now."""
        self.running[nodeid] = {"outcome": "passed", "detail": "", "seconds": 0.0, "loop_runs": 0}
        self.line(nodeid, "started")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take over what set-up, call or tear-down did."""
        state = self.running.setdefault(
            report.nodeid, {"outcome": "passed", "detail": "", "seconds": 0.0, "loop_runs": 0}
        )
        state["seconds"] += report.duration
        properties = dict(report.user_properties)
        state["loop_runs"] = max(state["loop_runs"], properties.get(RUNS, 0))
        outcome: str = report.outcome
        if hasattr(report, "wasxfail") and not report.failed:
            # Whether it passes or not: by a mark that is not strict, the project leaves that open.
            outcome = "xfailed"
        if _ORDER.index(outcome) > _ORDER.index(state["outcome"]):
            state["outcome"] = outcome
            state["detail"] = _detail(report)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Write what became of the test."""
        state = self.running.pop(nodeid, None)
        if state is not None:
            self.line(nodeid, **state)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that cannot be imported is a failure with its own name."""
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
