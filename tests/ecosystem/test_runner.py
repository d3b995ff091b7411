"""Tests of the runner itself, on a small suite defined here."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests import support
from tests.ecosystem import expected, judging, running
from tests.ecosystem.expected import Difference
from tests.ecosystem.running import Outcome, Place, Run
from tests.ecosystem.suites import LeftOut, Suite

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.sources

SUITE = Suite("small", "1", left_out=(LeftOut("*left_out*", "wanted here"),))
TESTS = """
import asyncio
import os
import pytest

async def nothing():
    await asyncio.sleep(0)

def test_run():
    asyncio.run(nothing())

def test_new_event_loop():
    loop = asyncio.new_event_loop()
    loop.run_until_complete(nothing())
    loop.close()

def test_selector_event_loop():
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(nothing())

def test_fails():
    assert not "as it should"

def test_left_out():
    raise AssertionError

@pytest.mark.skip(reason="no reason")
def test_skipped():
    pass

def test_ends_its_process():
    os._exit(7)

def test_after_that():
    pass
"""
OUTCOMES = {
    "test_run": "passed",
    "test_new_event_loop": "passed",
    "test_selector_event_loop": "passed",
    "test_fails": "failed",
    "test_skipped": "skipped",
    "test_ends_its_process": "failed",
    "test_after_that": "passed",
}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A suite's sources, for this interpreter."""
    (tmp_path / "test_small.py").write_text(TESTS)
    return Place(python=_this_python(), sources=tmp_path)


def _this_python() -> Path:
    from pathlib import Path

    return Path(sys.executable)


@pytest.mark.parametrize("loop", support.LOOPS)
def test_each_test_is_reported_with_its_loop(loop: str, place: Place) -> None:
    run = running.run(SUITE, support.usable_loop(loop), place)
    outcomes = {name.partition("::")[2]: test.outcome for name, test in run.outcomes.items()}
    assert outcomes == OUTCOMES
    assert "(7)" in run.outcomes["test_small.py::test_ends_its_process"].detail
    assert run.on_a_loop() == 3


@pytest.mark.parametrize("loop", support.LOOPS)
def test_a_run_proves_its_loop(loop: str, place: Place) -> None:
    support.usable_loop(loop)
    tests = ["test_small.py::test_run", "test_small.py::test_selector_event_loop"]
    run = running.run(SUITE, loop, place, tests)
    assert run.proof() is None
    assert run.runs[loop] >= 2
    assert set(run.created) == {loop}


def test_a_run_without_its_loop_has_no_proof() -> None:
    run = Run(SUITE, "ringloop-uring")
    assert "none at all" in str(run.proof())
    run.runs["ringloop-epoll"] = 1
    assert "ringloop-epoll" in str(run.proof())
    run.runs["ringloop-uring"] = 1
    assert "not under test" in str(run.proof())


def runs_of(ours: dict[str, str], theirs: dict[str, str]) -> tuple[Run, Run]:
    """Return a run of our loop and one of the oracle with these outcomes."""
    found = []
    for loop, outcomes in (("ringloop-uring", ours), (running.ORACLE, theirs)):
        tests = {name: Outcome(outcome, "detail", 0, 1) for name, outcome in outcomes.items()}
        found.append(Run(SUITE, loop, tests, runs=Counter({loop: 1})))
    return found[0], found[1]


def judge(
    monkeypatch: pytest.MonkeyPatch, ours: Run, theirs: Run, again: Run | None = None
) -> judging.Verdict:
    """Judge; a repeated run does what `again` did, or what its loop did before."""
    before = {ours.loop: again or ours, theirs.loop: again or theirs}
    monkeypatch.setattr(running, "run", lambda suite, loop, place, tests: before[loop])
    return judging.judge(ours, theirs, Place(_this_python(), _this_python()))


def test_persistent_failure_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = runs_of({"a": "failed", "b": "failed"}, {"a": "passed", "b": "failed"})
    verdict = judge(monkeypatch, ours, theirs)
    words = "a: failed 5 of 5 times, on asyncio 0"
    assert [line.partition("\n")[0] for line in verdict.wrong] == [words]


def test_failure_that_the_oracle_repeats_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = runs_of({"a": "failed"}, {"a": "passed"})
    verdict = judge(monkeypatch, ours, theirs, again=ours)
    assert verdict.wrong == []
    assert verdict.flaky == {"a": (5, 5, 4)}


def test_flaky_failure_is_shown_with_its_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = runs_of({"a": "failed"}, {"a": "passed"})
    verdict = judge(monkeypatch, ours, theirs, again=theirs)
    assert verdict.wrong == []
    assert verdict.flaky == {"a": (1, 5, 0)}


def test_flaky_failure_of_the_oracle_excuses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    again, theirs = runs_of({"a": "passed", "b": "failed"}, {"a": "failed", "b": "failed"})
    monkeypatch.setattr(running, "run", lambda suite, loop, place, tests: again)
    assert judging.settle(theirs, Place(_this_python(), _this_python())) == {"a": (1, 5)}
    assert theirs.outcomes["a"].outcome == "passed"
    assert theirs.outcomes["b"].outcome == "failed"


def test_listed_test_of_one_loop_only_is_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Difference("small", "name?*", "listed")
    monkeypatch.setattr(expected, "DIFFERENCES", (entry,))
    ours, theirs = runs_of({"name[x]": "passed"}, {"name[y]": "passed"})
    verdict = judge(monkeypatch, ours, theirs, again=ours)
    assert verdict.wrong == []
    assert set(verdict.expected) == {"name[x]", "name[y]"}


def test_missing_or_skipped_test_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = runs_of({"a": "skipped"}, {"a": "passed", "b": "passed"})
    verdict = judge(monkeypatch, ours, theirs)
    assert [line.partition(":")[0] for line in verdict.wrong] == ["b", "a"]


def test_obsolete_listed_difference_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Difference("small", "a*", "listed")
    monkeypatch.setattr(expected, "DIFFERENCES", (entry,))
    ours, theirs = runs_of({"a1": "failed", "a2": "passed"}, {"a1": "passed", "a2": "passed"})
    verdict = judge(monkeypatch, ours, theirs, again=ours)
    assert verdict.expected == {"a1": "listed", "a2": "listed"}
    assert [line.partition(":")[0] for line in verdict.wrong] == ["a2"]
