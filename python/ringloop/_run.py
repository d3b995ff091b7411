"""The ways to choose this loop: `run`, `new_event_loop` and `install`."""

from __future__ import annotations

import asyncio
import functools
import warnings
from typing import TYPE_CHECKING, Any, TypeVar

from ringloop import _loop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


def new_event_loop(*, driver: str | None = None, writes: str | None = None) -> _loop.Loop:
    """Make a loop, with the driver called `driver`, or the one that `RINGLOOP_DRIVER` names.

    These are "auto", "uring" (or "io_uring") and "epoll". `writes` is as for `Loop`.
    """
    return _loop.Loop(driver=driver, writes=writes)


def run(
    main: Coroutine[Any, Any, T],
    *,
    debug: bool | None = None,
    driver: str | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> T:
    """Run a coroutine on a new loop, as `asyncio.run` does, and close the loop.

    `driver` is as for `new_event_loop`. `loop_factory` makes the loop in place of that, one of a
    subclass or with other options; the driver is then the factory's to choose.
    """
    if loop_factory is None:
        loop_factory = functools.partial(_loop.Loop, driver=driver)
    elif driver is not None:
        main.close()
        raise ValueError(
            "driver and loop_factory exclude each other: let the factory name the driver"
        )
    with asyncio.Runner(debug=debug, loop_factory=loop_factory) as runner:
        return runner.run(main)


def install() -> None:
    """Make this loop the one that `asyncio.new_event_loop()` and `asyncio.run()` use.

    asyncio deprecates policies from 3.14 on, and has none from 3.16 on, where this raises
    `AttributeError`; `ringloop.run` and `loop_factory=` need none.
    """
    from ringloop import _policy  # noqa: PLC0415 - not before it is wanted: asyncio may have none

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        asyncio.set_event_loop_policy(_policy.EventLoopPolicy())
