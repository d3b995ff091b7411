"""The loops under test: asyncio's first, as the oracle, then this one on each driver of the system."""

from __future__ import annotations

import asyncio
import functools
import sys
from typing import TYPE_CHECKING, Any

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


def on_every_loop(
    test: Callable[[Any], Coroutine[Any, Any, None]],
) -> Callable[[unittest.TestCase], None]:
    """Run a test's coroutine on a new loop of each kind."""

    @functools.wraps(test)
    def on_each(case: unittest.TestCase) -> None:
        for name, factory in _FACTORIES.items():
            with case.subTest(loop=name), asyncio.Runner(loop_factory=factory) as runner:
                runner.run(asyncio.wait_for(test(case), PATIENCE_SECONDS))

    return on_each
