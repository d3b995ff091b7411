"""`aiofiles.tempfile`: `ringloop.fs`'s temporary files."""

from __future__ import annotations

from typing import Any

from ringloop import fs

__all__ = [
    "NamedTemporaryFile",
    "SpooledTemporaryFile",
    "TemporaryDirectory",
    "TemporaryFile",
]


def _ours(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Leave out `loop` and `executor`."""
    return {name: value for name, value in kwargs.items() if name not in {"loop", "executor"}}


def TemporaryFile(*args: Any, **kwargs: Any) -> Any:  # noqa: N802 - the names of what they stand in for
    """Open a temporary file: see `ringloop.fs.TemporaryFile`."""
    return fs.TemporaryFile(*args, **_ours(kwargs))


def NamedTemporaryFile(*args: Any, **kwargs: Any) -> Any:  # noqa: N802
    """Open a named temporary file: see `ringloop.fs.NamedTemporaryFile`."""
    return fs.NamedTemporaryFile(*args, **_ours(kwargs))


def SpooledTemporaryFile(*args: Any, **kwargs: Any) -> Any:  # noqa: N802
    """Open a file in memory: see `ringloop.fs.SpooledTemporaryFile`."""
    return fs.SpooledTemporaryFile(*args, **_ours(kwargs))


def TemporaryDirectory(*args: Any, **kwargs: Any) -> Any:  # noqa: N802
    """Make a temporary directory: see `ringloop.fs.TemporaryDirectory`."""
    return fs.TemporaryDirectory(*args, **_ours(kwargs))
