"""Fails the interpreter's allocations one after the other, throughout a scenario on the loop.

`every_allocation` runs a scenario repeatedly, each time with another allocation failing, until there
are no more of them. `_testcapi` makes the interpreter's own allocators fail, for the whole process.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest

from tests import support
from tests.support.tcp import socket_pair

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tests.support import LoopFactory

    Steps = Generator[None, None, None]
    # Prepares, yields while the loop runs with an allocation failing, and checks the result.
    Scenario = Callable[["Failing"], Steps]

# More than any scenario has: one that never ends is stuck.
_ALLOCATIONS_MAX = 10_000
# asyncio makes many more allocations, most of them in Python: only a sample is tested.
_ORACLE_STEP = 29
# Time limit of a run whose end was lost, as asyncio's is at times.
_RUN_SECONDS = 0.2


class Failing:
    """A loop in which the allocation of the given number fails once, counted from the start of `run`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        self._testcapi = pytest.importorskip("_testcapi", reason="allocations fail by _testcapi")
        self.loop = loop
        self.number = number
        # Whether that many allocations were made.
        self.reached = True
        self.running = False
        self._looked = False

    def run(self) -> None:
        """Run the loop until `halt`, or for a moment."""
        self.running = True
        timer = self.loop.call_later(_RUN_SECONDS, self.halt)
        self.loop.call_soon(self._testcapi.set_nomemory, self.number, self.number + 1)
        try:
            self.loop.run_forever()
        except MemoryError:
            self._look()
        finally:
            self.running = False
            self._testcapi.remove_mem_hooks()
        timer.cancel()

    def halt(self) -> None:
        """Stop failing, and stop the loop."""
        if self.running:
            self._look()
            self.loop.stop()

    def _look(self) -> None:
        if not self._looked:
            self._looked = True
            try:
                for _ in range(self.number + 2):
                    object()
            except MemoryError:
                self.reached = False
        self._testcapi.remove_mem_hooks()

    def turn(self, condition: Callable[[], object], what: str) -> None:
        """Run the loop until `condition()` is true."""
        self.loop.run_until_complete(support.wait_until(condition, what))


def every_allocation(
    loop_factory: LoopFactory, monkeypatch: pytest.MonkeyPatch, scenario: Scenario
) -> int:
    """Run `scenario` with each of its allocations failing; return their number."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    step = _ORACLE_STEP if loop_factory is asyncio.SelectorEventLoop else 1
    for number in range(0, _ALLOCATIONS_MAX, step):
        loop = loop_factory()
        loop.set_exception_handler(lambda _loop, _context: None)
        failing = Failing(loop, number)
        steps = scenario(failing)
        try:
            next(steps)
            failing.run()
            for _ in steps:
                pytest.fail("a scenario yields once")
            assert loop.run_until_complete(_answer(loop)) == b"answer"
        except BaseException as error:
            error.add_note(f"allocation {number} has failed")
            raise
        finally:
            support.close_loop(loop)
        if not failing.reached:
            return number
    pytest.fail("allocations without an end")


async def _answer(loop: asyncio.AbstractEventLoop) -> bytes:
    """Use the loop for something else: sockets, a task, a timer."""
    ours, theirs = socket_pair()
    with ours, theirs:
        receiving = loop.create_task(loop.sock_recv(ours, 100))
        await asyncio.sleep(0)
        await loop.sock_sendall(theirs, b"answer")
        return await support.within(receiving)
