"""Functions of the standard library in a pool, with aiofiles' extra arguments."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


def wrap(function: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Make a coroutine function that calls `function` in an executor."""

    @functools.wraps(function)
    async def run(*args: Any, loop: Any = None, executor: Any = None, **kwargs: Any) -> Any:
        loop = loop or asyncio.get_running_loop()
        return await loop.run_in_executor(executor, functools.partial(function, *args, **kwargs))

    return run


def accepting(function: Callable[..., Any]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Let a coroutine function of `ringloop.fs` take `loop=` and `executor=`, unused."""

    @functools.wraps(function)
    async def run(*args: Any, loop: Any = None, executor: Any = None, **kwargs: Any) -> Any:  # noqa: ARG001
        return await function(*args, **kwargs)

    return run
