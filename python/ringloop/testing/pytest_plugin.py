"""Fixtures and a mark for pytest: `pytest_plugins = ["ringloop.testing.pytest_plugin"]`.

`virtual_loop` is a `VirtualLoop`, closed after the test; `virtual_run` runs a coroutine on it. A test
that is a coroutine function and has the mark `virtual_time` runs on it.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

import pytest

from ringloop.testing import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

__all__ = ["virtual_loop", "virtual_run"]


def pytest_configure(config: pytest.Config) -> None:
    """Announce the mark."""
    config.addinivalue_line(
        "markers",
        "virtual_time: run this coroutine function on a loop whose clock jumps"
        " (ringloop.testing.VirtualLoop)",
    )


@pytest.fixture
def virtual_loop() -> Iterator[VirtualLoop]:
    """Make a loop whose clock jumps to the next timer when nothing else can happen."""
    loop = VirtualLoop()
    try:
        yield loop
    finally:
        _close(loop)


@pytest.fixture
def virtual_run(virtual_loop: VirtualLoop) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Run a coroutine on `virtual_loop` to its end."""
    return virtual_loop.run_until_complete


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine function that has the mark."""
    if pyfuncitem.get_closest_marker("virtual_time") is None:
        return None
    function = pyfuncitem.obj
    if not inspect.iscoroutinefunction(function):
        pytest.fail(
            f"{pyfuncitem.name} has the mark virtual_time but is not a coroutine function: "
            "write async def, or take the fixture virtual_run"
        )
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    loop = pyfuncitem.funcargs.get("virtual_loop")
    if isinstance(loop, VirtualLoop):
        loop.run_until_complete(function(**arguments))
        return True
    loop = VirtualLoop()
    try:
        loop.run_until_complete(function(**arguments))
    finally:
        _close(loop)
    return True


def _close(loop: VirtualLoop) -> None:
    """Cancel what is left, as `asyncio.run` does, and close."""
    try:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()
