"""The ways to choose this loop: `run`, `new_event_loop` and `install`."""

from __future__ import annotations

import asyncio
import functools

import _ringloop_install
from ringloop import _loop, _system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any, TypeVar

    from ringloop._driver import Driver
    from ringloop._writes import Writes

    T = TypeVar("T")


def new_event_loop(
    *,
    driver: Driver | None = None,
    writes: Writes | None = None,
    busy_polling: float | None = None,
) -> _loop.Loop:
    """Create a loop with the driver named `driver`, or the one that `RINGLOOP_DRIVER` names.

    Drivers are "auto", "uring" (or "io_uring") and "epoll". `writes` ("gathered" or "eager") and
    `busy_polling` (seconds, 0 to 0.01) are as for `Loop`, which closes with `close()`.

    OSError: this machine refuses the driver; the message has the cause and the remedy. ValueError: no
    such driver, or a number out of range.
    """
    return _loop.Loop(driver=driver, writes=writes, busy_polling=busy_polling)


def run(
    main: Coroutine[Any, Any, T],
    *,
    debug: bool | None = None,
    driver: Driver | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> T:
    """Run a coroutine on a new loop, as `asyncio.run` does, and close the loop.

    Returns what `main` returns. `debug`: asyncio's debug mode; None leaves it to the environment.
    `driver` is as for `new_event_loop`. `loop_factory` creates the loop instead, for
    example of a subclass or with other options; it then chooses the driver.

    RuntimeError: a loop runs in this thread. ValueError: both `driver` and `loop_factory`. OSError: the
    driver is refused. Exceptions of `main` propagate.
    """
    if asyncio._get_running_loop() is not None:
        raise RuntimeError("ringloop.run() cannot be called from a running event loop")
    if loop_factory is None:
        loop_factory = functools.partial(_loop.Loop, driver=driver)
    elif driver is not None:
        if asyncio.iscoroutine(main):
            main.close()
        raise ValueError(
            "driver and loop_factory exclude each other: let the factory choose the driver"
        )
    with asyncio.Runner(debug=debug, loop_factory=loop_factory) as runner:
        return runner.run(main)


def install(*, as_uvloop: bool = False, fast_streams: bool | None = None) -> None:
    """Make this loop the one that `asyncio.new_event_loop()` and `asyncio.run()` use.

    `as_uvloop`: `import uvloop` also gives this loop, under uvloop's names (`install`, `run`,
    `new_event_loop`, `Loop`, `EventLoopPolicy`), for servers that know only those. uvloop need not be
    installed. RuntimeError: it was imported before.

    `fast_streams=True` also has `asyncio.open_connection`, `start_server` and their Unix counterparts
    make native streams, as `use_fast_streams` does; False undoes that; None changes nothing.

    Loops created by naming a class, such as `asyncio.SelectorEventLoop()`, are not affected. Up to
    CPython 3.15 this sets the event loop policy; a Python without policies gets another
    `asyncio.new_event_loop`. `RINGLOOP_INSTALL=1` or `=uvloop` does the same for a program that does not
    call this, and for its children (docs/use-with.md).
    """
    if as_uvloop:
        _ringloop_install.stand_in_for_uvloop()
    if _system.DefaultPolicy is not None:
        from ringloop import _policy  # noqa: PLC0415 - not before it is wanted: asyncio may have none

        _ringloop_install.set_policy(_policy.EventLoopPolicy())
    else:
        _ringloop_install.set_new_event_loop(_loop.Loop)
    if fast_streams is not None:
        use_fast_streams(fast_streams)


def use_fast_streams(on: bool = True) -> None:
    """Have asyncio's own functions make native streams on our loops, or undo that.

    Replaces `open_connection`, `start_server`, `open_unix_connection` and `start_unix_server` in
    `asyncio` and in `asyncio.streams`. On other loops they behave as before. `RINGLOOP_FAST_STREAMS=1`
    calls this on import; `RINGLOOP_FAST_STREAMS=0` has them make ordinary streams in any case.
    """
    from ringloop import _streams  # noqa: PLC0415 - not before it is wanted

    _streams.patch(on)
