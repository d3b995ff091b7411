"""A task's name in a profile, and what it waits for."""

from __future__ import annotations

import asyncio
import re
import types
from typing import TYPE_CHECKING, Any

from ringloop.profiling._profile import Function

if TYPE_CHECKING:
    from types import CodeType

# asyncio's default task names.
_DEFAULT_NAME = re.compile(r"Task-\d+")
# Links of an await chain; a longer one is cut at its inner end.
CHAIN_MAX = 500


def label(task: asyncio.Task[Any]) -> str:
    """Return "task " and its name, or its coroutine's if it was not named."""
    name = task.get_name()
    if _DEFAULT_NAME.fullmatch(name):
        coroutine = task.get_coro()
        name = getattr(coroutine, "__qualname__", None) or type(coroutine).__qualname__
    return f"task {name}"


def code_of(task: asyncio.Task[Any]) -> CodeType | None:
    """Return the code of its coroutine; None if it is not written in Python."""
    coroutine = task.get_coro()
    code: CodeType | None = getattr(coroutine, "cr_code", None) or getattr(
        coroutine, "gi_code", None
    )
    return code


def await_chain(task: asyncio.Task[Any]) -> list[Function]:
    """Return a task's coroutines, outermost first, and what the innermost awaits.

    Only for a suspended task, in its loop's thread.
    """
    chain: list[Function] = []
    awaited: Any = task.get_coro()
    while awaited is not None and len(chain) < CHAIN_MAX:
        if isinstance(awaited, types.CoroutineType):
            code, inner = awaited.cr_code, awaited.cr_await
        elif isinstance(awaited, types.GeneratorType):
            code, inner = awaited.gi_code, awaited.gi_yieldfrom
        elif isinstance(awaited, types.AsyncGeneratorType):
            code, inner = awaited.ag_code, awaited.ag_await
        else:
            # The iterator of `await future` does not expose its future; the task does.
            waiter = getattr(task, "_fut_waiter", None)
            chain.append(Function(_what(awaited if waiter is None else waiter)))
            break
        chain.append(Function(code.co_qualname, code.co_filename, code.co_firstlineno))
        awaited = inner
    return chain


def _what(awaited: Any) -> str:
    if isinstance(awaited, asyncio.Task):
        return f"waits for {label(awaited)}"
    return f"waits for a {type(awaited).__name__}"
