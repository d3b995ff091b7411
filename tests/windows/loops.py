"""The loops under test: asyncio's first, as the oracle, then this one on each driver of the system."""

from __future__ import annotations

import asyncio
import functools
import sys
from typing import TYPE_CHECKING, Any, TypeAlias

import ringloop

if TYPE_CHECKING:
    import unittest
    from collections.abc import Callable, Coroutine

IS_WINDOWS = sys.platform == "win32"
# "auto" is the ring on a Linux that has it.
DRIVERS: Any = ("auto", "afd") if IS_WINDOWS else ("auto", "epoll")
PATIENCE_SECONDS = 60

_FACTORIES: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop,
    **{
        f"ringloop-{name}": functools.partial(ringloop.new_event_loop, driver=name)
        for name in DRIVERS
    },
}
# Of children and pipes, which asyncio's selector loop does not have on Windows. There both names are the
# same driver, and children start slowly.
WITH_PIPES: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    **_FACTORIES,
    "asyncio": getattr(asyncio, "ProactorEventLoop", asyncio.SelectorEventLoop),
}
if IS_WINDOWS:
    del WITH_PIPES["ringloop-auto"]

Test: TypeAlias = "Callable[[Any], Coroutine[Any, Any, None]]"
Case: TypeAlias = "Callable[[unittest.TestCase], None]"


def _on_each_of(factories: dict[str, Callable[[], asyncio.AbstractEventLoop]], test: Test) -> Case:
    @functools.wraps(test)
    def on_each(case: unittest.TestCase) -> None:
        for name, factory in factories.items():
            with case.subTest(loop=name), asyncio.Runner(loop_factory=factory) as runner:
                runner.run(asyncio.wait_for(test(case), PATIENCE_SECONDS))

    return on_each


def on_every_loop(test: Test) -> Case:
    """Run a test's coroutine on a new loop of each kind."""
    return _on_each_of(_FACTORIES, test)


def on_every_loop_with_pipes(test: Test) -> Case:
    """Run it on loops that have children and pipes."""
    return _on_each_of(WITH_PIPES, test)
