"""Starts CPython's modules concurrently, once per loop, and sums up their results."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.cpython import runner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_totals: dict[str, Counter[str]] = {}


@pytest.fixture
def leak_check() -> None:
    """Check nothing: other modules start and end while a test waits for its own."""


@pytest.fixture(scope="session")
def outcome_of(request: pytest.FixtureRequest) -> Iterator[Callable[[str, str], runner.Outcome]]:
    """Wait for the outcome of (module, loop); without xdist the first use starts all selected ones."""
    # In the order of the tests: none waits for modules of later tests.
    asked: list[Any] = [
        (item.callspec.params["module"], item.callspec.params["loop_name"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and "outcome_of" in item.fixturenames
    ]
    # A worker of xdist has the tests of all workers in its session, and there are several already.
    ahead = not hasattr(request.config, "workerinput")
    with runner.outcomes(asked if ahead else []) as outcome_of_module:

        def wait(module: str, loop: str) -> runner.Outcome:
            outcome = outcome_of_module(module, loop)
            _totals.setdefault(loop, Counter()).update(outcome.counts)
            return outcome

        yield wait


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the counts of CPython's tests per loop."""
    for loop, counts in _totals.items():
        terminalreporter.write_line(f"CPython's own tests on {loop}: {runner.describe(counts)}")
