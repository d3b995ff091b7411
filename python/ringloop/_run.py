"""The ways to choose this loop: `run`, `new_event_loop`, the policy and `install`."""

from __future__ import annotations

import asyncio
import functools
import warnings
from asyncio import unix_events
from typing import TYPE_CHECKING, Any, TypeVar

from ringloop import _loop

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")


def new_event_loop() -> _loop.Loop:
    """Make a loop, with the driver that `RINGLOOP_DRIVER` names (auto, uring or epoll)."""
    return _loop.Loop()


def run(main: Coroutine[Any, Any, T], *, debug: bool | None = None, driver: str | None = None) -> T:
    """Run a coroutine on a new loop, as `asyncio.run` does, and close the loop.

    `driver` is "auto", "uring" or "epoll"; None leaves it to `RINGLOOP_DRIVER`.
    """
    factory = functools.partial(_loop.Loop, driver=driver)
    with asyncio.Runner(debug=debug, loop_factory=factory) as runner:
        return runner.run(main)


class EventLoopPolicy(unix_events._UnixDefaultEventLoopPolicy):  # type: ignore[misc]
    """The default policy, except that new loops are ours."""

    _loop_factory = _loop.Loop


def install() -> None:
    """Make this loop the one that `asyncio.new_event_loop()` and `asyncio.run()` use.

    asyncio deprecates policies from 3.14 on; `ringloop.run` and `loop_factory=` need none.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        asyncio.set_event_loop_policy(EventLoopPolicy())
