"""Where a suite's tests behave differently on this loop than on stock asyncio, and why.

Owns: the table. Called by: `judging`. It is strict: a listed test that behaves the same on both fails
the run, so that entries that no longer apply are removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from tests.ecosystem.running import OURS


@dataclass(frozen=True)
class Difference:
    """A pattern of node ids of a suite, where they differ, and why."""

    suite: str
    test: str
    reason: str
    loops: tuple[str, ...] = OURS


DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "uvicorn",
        "tests/test_auto_detection.py::test_loop_auto",
        "asserts that the module of the loop's class is called asyncio or uvloop",
    ),
    Difference(
        "uvicorn",
        # "?" matches the bracket, which a pattern would interpret itself.
        "tests/test_config.py::test_get_loop_factory?asyncio-*",
        "the name of the loop's class is part of the test's name",
    ),
)


def difference(suite: str, test: str, loop: str) -> Difference | None:
    """Return the entry that applies to a test on a loop."""
    for entry in DIFFERENCES:
        if entry.suite == suite and loop in entry.loops and fnmatchcase(test, entry.test):
            return entry
    return None
