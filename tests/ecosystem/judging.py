"""Compare a run on a loop with the run on stock asyncio, test by test.

Owns: the verdict. Called by: `__main__`. A test that failed only on the loop is repeated alone on both
loops: if it then passes, or the oracle fails as often, it is shown with its failure rates.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.ecosystem import running
from tests.ecosystem.expected import difference

if TYPE_CHECKING:
    from tests.ecosystem.running import Outcome, Place, Run

# How often a test that failed on one loop only is repeated, alone, on each.
AGAIN = 4
# More failures than this are not chance, and are not repeated.
AGAIN_TESTS_MAX = 40


@dataclass
class Verdict:
    """The differences of a run from the oracle's."""

    run: Run
    # What fails the run, as text starting with the test's name.
    wrong: list[str] = field(default_factory=list)
    # Test to how often it deviated from its first result on the oracle: on the loop, in how many
    # runs, and on the oracle itself.
    flaky: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    # Test to the reason in the table of expected differences.
    expected: dict[str, str] = field(default_factory=dict)
    # Tests that pass here and fail on the oracle.
    better: list[str] = field(default_factory=list)


def settle(oracle: Run, place: Place) -> dict[str, tuple[int, int]]:
    """Repeat what failed on the oracle; what then passes counts as passed.

    Returns how often each of these failed, and in how many runs: a failure by chance on the oracle
    must not excuse one on the loop.
    """
    failed = [test for test, got in oracle.outcomes.items() if got.outcome == "failed"]
    passed: dict[str, list[Outcome]] = {test: [] for test in failed}
    if not failed or len(failed) > AGAIN_TESTS_MAX:
        return {}
    for _ in range(AGAIN):
        outcomes = running.run(oracle.suite, oracle.loop, place, failed).outcomes
        for test in failed:
            if test in outcomes and outcomes[test].outcome != "failed":
                passed[test].append(outcomes[test])
    chance = {test: outcomes for test, outcomes in passed.items() if outcomes}
    oracle.outcomes |= {test: outcomes[0] for test, outcomes in chance.items()}
    return {test: (AGAIN + 1 - len(outcomes), AGAIN + 1) for test, outcomes in chance.items()}


def judge(run: Run, oracle: Run, place: Place) -> Verdict:
    """Compare, and repeat what failed on the loop only."""
    verdict = Verdict(run)
    if reason := run.proof():
        verdict.wrong.append(reason)
    suspects = []
    for test in oracle.outcomes | run.outcomes:
        ours, theirs = run.outcomes.get(test), oracle.outcomes.get(test)
        entry = difference(run.suite.name, test, run.loop)
        if ours is None or theirs is None:
            where = oracle.loop if ours is None else run.loop
            if entry is None:
                verdict.wrong.append(f"{test}: only {where} has this test")
            else:
                verdict.expected[test] = entry.reason
        elif entry is not None:
            verdict.expected[test] = entry.reason
            if ours.outcome == theirs.outcome:
                same = f"is {ours.outcome} on both, but is listed"
                verdict.wrong.append(f"{test}: {same}: {entry.reason}")
        elif ours.outcome == theirs.outcome:
            continue
        elif ours.outcome == "passed":
            verdict.better.append(test)
        else:
            suspects.append(test)
    _suspect(verdict, suspects, oracle, place)
    return verdict


def _suspect(verdict: Verdict, suspects: list[str], oracle: Run, place: Place) -> None:
    """Sort what failed, or was skipped, on the loop only, into chance and fault."""
    run = verdict.run
    otherwise = {test: [1, 0] for test in suspects}
    again = 0
    if suspects and len(suspects) <= AGAIN_TESTS_MAX:
        again = AGAIN
        # In turns: other load on the machine disturbs both.
        for column, loop in [(0, run.loop), (1, oracle.loop)] * again:
            outcomes = running.run(run.suite, loop, place, suspects).outcomes
            for test in suspects:
                wanted, got = oracle.outcomes[test].outcome, outcomes.get(test)
                otherwise[test][column] += got is None or got.outcome != wanted
    for test, (ours, theirs) in otherwise.items():
        if ours > again and theirs <= again / 2:
            outcome = run.outcomes[test]
            words = f"{outcome.outcome} {ours} of {again + 1} times, on {oracle.loop} {theirs}"
            verdict.wrong.append(f"{test}: {words}\n{outcome.detail}")
        else:
            verdict.flaky[test] = (ours, again + 1, theirs)
