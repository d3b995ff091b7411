"""Rows and checks: how a check is declared, and what it gets.

A row is one line of the matrix and consists of checks. A check takes a `Probe` and fails by any
exception. It uses only documented asyncio API, so that it runs on any loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from pathlib import Path

    CheckFunction = Callable[["Probe"], None]

T = TypeVar("T")
# A loop that needs longer for a step hangs; a busy machine needs seconds.
STEP_SECONDS = 20.0
PROGRAM_SECONDS = 60.0
# Only a loop that starves others reaches this many callbacks: independent of the scheduler.
CALLBACKS_MAX = 10_000


class NotMeasuredError(Exception):
    """This machine or this interpreter cannot measure it; the message says why."""


@dataclass(frozen=True)
class Check:
    """One property that a row promises."""

    name: str
    function: CheckFunction


@dataclass
class Row:
    """One line of the matrix."""

    group: str
    title: str
    since: tuple[int, int] = (3, 11)
    checks: list[Check] = field(default_factory=list)

    @property
    def is_for_this_version(self) -> bool:
        """Say whether asyncio supports it in this CPython version."""
        return sys.version_info >= self.since


ROWS: dict[str, Row] = {}


class Group:
    """Declares the rows of one part of the table."""

    def __init__(self, name: str) -> None:
        self.name = name

    def row(self, title: str, since: tuple[int, int] = (3, 11)) -> Callable[..., Any]:
        """Return the decorator of the row's checks; a check is named after its function."""
        if title in ROWS:
            raise ValueError(f"there are two rows {title!r}")
        row = ROWS[title] = Row(self.name, title, since)

        def check(function: CheckFunction) -> CheckFunction:
            row.checks.append(Check(function.__name__.replace("_", " "), function))
            return function

        return check


@dataclass
class Probe:
    """What a check gets: loops of the kind under test, and a folder."""

    factory: Callable[[], asyncio.AbstractEventLoop]
    # How another process creates the same loop: an expression, and the module that it needs.
    module: str
    expression: str
    folder: Path
    environment: dict[str, str]

    def run(self, main: Callable[[], Coroutine[Any, Any, T]], seconds: float = STEP_SECONDS) -> T:
        """Run a coroutine on a new loop, and close it as `asyncio.run` does."""
        with asyncio.Runner(loop_factory=self.factory) as runner:
            return runner.run(asyncio.wait_for(main(), seconds))

    def script(self, body: str, *arguments: str, python: str = sys.executable) -> str:
        """Run a program in its own process, where `new_loop()` creates the loop; return its output."""
        import subprocess

        head = f"import asyncio, sys, {self.module}\nnew_loop = lambda: {self.expression}\n"
        done = subprocess.run(
            [python, "-c", head + body, *arguments],
            capture_output=True,
            text=True,
            timeout=PROGRAM_SECONDS,
            env=self.environment,
            check=False,
        )
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines() or ["nothing"]
            raise AssertionError(f"ended with {done.returncode}: {said[-1]}")
        return done.stdout.strip()


async def until(condition: Callable[[], object]) -> None:
    """Run the loop until `condition()` is true; the caller limits the time of the whole check."""
    while not condition():  # noqa: ASYNC110 - any state, on any loop
        await asyncio.sleep(0.001)


@contextlib.contextmanager
def logged() -> Iterator[list[str]]:
    """Collect asyncio's log messages."""
    messages: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    logger = logging.getLogger("asyncio")
    before = logger.handlers, logger.propagate
    logger.handlers, logger.propagate = [Collect()], False
    try:
        yield messages
    finally:
        logger.handlers, logger.propagate = before
