"""File names: as the kernel takes them, and as errors report them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import TracebackType


def encoded(path: Any) -> bytes:
    """Return the bytes of a path.

    Raises the `TypeError` of `os.fspath`, and `ValueError` for an embedded null byte.
    """
    name = os.fsencode(path)
    if b"\0" in name:
        raise ValueError("embedded null byte")
    return name


class named:  # noqa: N801 - used as a statement
    """Add a call's file names to its `OSError`, as the standard library does."""

    __slots__ = ("_names",)

    def __init__(self, *names: Any) -> None:
        self._names = names

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, OSError) and error.errno is not None:
            names = [os.fspath(name) if not isinstance(name, int) else name for name in self._names]
            error.filename = names[0]
            if len(names) > 1:
                error.filename2 = names[1]
