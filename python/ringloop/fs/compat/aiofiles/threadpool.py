"""`aiofiles.threadpool`: `open`, the standard streams, and `wrap` for files that are already open."""

from __future__ import annotations

import asyncio
import builtins
import functools
import io
import sys
import tempfile
from typing import TYPE_CHECKING, Any, Final, Self

from ringloop import fs

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "open",
    "stderr",
    "stderr_bytes",
    "stdin",
    "stdin_bytes",
    "stdout",
    "stdout_bytes",
    "wrap",
]

# aiofiles' name for what it opens files by; ours does not call it.
sync_open = builtins.open

_KINDS: Final = (io.TextIOBase, io.BufferedIOBase, io.RawIOBase, tempfile.SpooledTemporaryFile)


def open(  # noqa: A001 - the name of what it stands in for
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    closefd: bool = True,
    opener: Any = None,
    *,
    loop: Any = None,  # noqa: ARG001 - the running loop's
    executor: Any = None,  # noqa: ARG001
) -> Any:
    """Open a file: see `ringloop.fs.open`."""
    return fs.open(file, mode, buffering, encoding, errors, newline, closefd, opener)


class Wrapped:
    """A file of the standard library whose methods run in a pool."""

    _DIRECT = frozenset({"detach", "fileno", "readable"})

    def __init__(self, find: Callable[[], Any], loop: Any = None, executor: Any = None) -> None:
        self._find = find
        self._loop = loop
        self._executor = executor

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._find(), name)
        if name.startswith("_") or name in self._DIRECT or not callable(value):
            return value

        async def run(*args: Any, **kwargs: Any) -> Any:
            loop = self._loop or asyncio.get_running_loop()
            return await loop.run_in_executor(
                self._executor, functools.partial(value, *args, **kwargs)
            )

        return run

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        if line := await self.readline():
            return line
        raise StopAsyncIteration

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()


def wrap(file: Any, *, loop: Any = None, executor: Any = None) -> Wrapped:
    """Wrap an open file of the standard library so that its methods run in a pool.

    Raises `TypeError` for anything else.
    """
    if not isinstance(file, _KINDS):
        raise TypeError(f"Unsupported io type: {file}.")
    return Wrapped(lambda: file, loop, executor)


stdin = Wrapped(lambda: sys.stdin)
stdout = Wrapped(lambda: sys.stdout)
stderr = Wrapped(lambda: sys.stderr)
stdin_bytes = Wrapped(lambda: sys.stdin.buffer)
stdout_bytes = Wrapped(lambda: sys.stdout.buffer)
stderr_bytes = Wrapped(lambda: sys.stderr.buffer)
