"""The judge of CPython's modules fails a run when it must."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from tests import support
from tests.cpython import runner
from tests.cpython.expected import Difference

LISTED = Difference("test_x.Case.test_listed*", "a reason")
HANGING = Difference("test_x.Case.test_hangs", "a reason", hangs=True)


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> runner.Outcome:
    monkeypatch.setattr(runner, "DIFFERENCES", (LISTED, HANGING))
    outcome = runner.Outcome("test.test_asyncio.test_x", "ringloop-uring")
    outcome.tests = {
        "test_x.Case.test_plain": ("passed", ""),
        "test_x.Case.test_listed_one": ("failed", "as expected"),
        "test_x.Case.test_hangs": ("left out", ""),
    }
    return outcome


def test_agreement_is_right(judged: runner.Outcome) -> None:
    assert judged.judge().wrong == []
    assert dict(judged.counts) == {"passed": 1, "expected to differ, failed": 1, "left out": 1}


def test_unlisted_failure_is_wrong(judged: runner.Outcome) -> None:
    judged.tests["test_x.Case.test_plain"] = ("failed", "boom")
    assert judged.judge().wrong == ["test_x.Case.test_plain failed:\nboom"]


def test_listed_test_that_passes_is_wrong(judged: runner.Outcome) -> None:
    judged.tests["test_x.Case.test_listed_one"] = ("passed", "")
    assert "passed, but is listed" in judged.judge().wrong[0]


@pytest.mark.parametrize("name", ["test_x.Case.test_listed_one", "test_x.Case.test_hangs"])
def test_entry_without_a_test_is_wrong(judged: runner.Outcome, name: str) -> None:
    del judged.tests[name]
    assert "no such test" in judged.judge().wrong[0]


def test_module_without_tests_is_wrong(
    judged: runner.Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "DIFFERENCES", ())
    judged.tests.clear()
    assert "no test of" in judged.judge().wrong[0]


@pytest.mark.parametrize("fails", [3, 100])
def test_failures_are_repeated_and_real_differences_stay(
    fails: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plays = []

    def play(outcome: runner.Outcome, left_out: list[str], hang_seconds: int) -> None:
        plays.append((left_out, hang_seconds))
        outcome.tests["late"] = ("failed" if len(plays) <= fails else "passed", "")
        if not left_out:
            outcome.tests["fine"] = ("passed", "")

    monkeypatch.setattr(runner, "DIFFERENCES", ())
    monkeypatch.setattr(runner, "_play", play)
    outcome = runner.run_module("test.test_asyncio.test_x", "ringloop-uring")
    assert plays == [([], 30), *[(["fine"], 120)] * 3]
    assert outcome.tests["late"][0] == ("passed again" if fails == 3 else "failed")
    assert bool(outcome.wrong) == (fails == 100)


def test_module_runs_without_changes_by_pytest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[dict[str, str]] = []

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        given.append(options["env"])
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(runner, "DIFFERENCES", ())
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setenv("RINGLOOP_NOT_AT_THE_START", "1")
    runner.run_module("test.test_asyncio.test_x", "ringloop-uring")
    assert given == [runner.ENVIRONMENT | {"RINGLOOP_DRIVER": "uring"}]
    assert "RINGLOOP_NOT_AT_THE_START" not in given[0]


@pytest.mark.parametrize("ahead", [True, False])
def test_only_modules_that_are_started_ahead_run_without_a_test(
    ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []

    def run_module(module: str, loop: str) -> runner.Outcome:
        ran.append(module)
        return runner.Outcome(module, loop)

    monkeypatch.setattr(runner, "run_module", run_module)
    asked = [("first", support.ORACLE), ("second", support.ORACLE)]
    with runner.outcomes(asked if ahead else []) as outcome_of:
        assert outcome_of("second", support.ORACLE).module == "second"
    assert sorted(ran) == (["first", "second"] if ahead else ["second"])
