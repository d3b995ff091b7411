"""Starts CPython's modules concurrently, once per loop, and sums up their results."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.cpython import runner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

_totals: dict[str, Counter[str]] = {}


@pytest.fixture
def leak_check() -> None:
    """Check nothing: other modules start and end while a test waits for its own."""


@pytest.fixture(scope="session")
def outcome_of(request: pytest.FixtureRequest) -> Iterator[Callable[[str, str], runner.Outcome]]:
    """Wait for the outcome of (module, loop); the first use starts all selected ones."""
    # In the order of the tests: none waits for modules of later tests.
    asked: list[Any] = [
        (item.callspec.params["module"], item.callspec.params["loop_name"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and "outcome_of" in item.fixturenames
    ]
    with ThreadPoolExecutor(runner.WORKERS) as pool:
        started: dict[tuple[str, str], Future[runner.Outcome]] = {
            (module, loop): pool.submit(runner.run_module, module, loop)
            for module, loop in asked
            if support.refusal(loop.partition("+")[0]) is None
        }

        def wait(module: str, loop: str) -> runner.Outcome:
            outcome = started[module, loop].result()
            _totals.setdefault(loop, Counter()).update(outcome.counts)
            return outcome

        yield wait


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the counts of CPython's tests per loop."""
    for loop, counts in _totals.items():
        terminalreporter.write_line(f"CPython's own tests on {loop}: {runner.describe(counts)}")
