"""What `AbstractEventLoop` has and this loop has not yet: each name says so when it is called."""

from __future__ import annotations

from typing import Any, NoReturn

COROUTINES = (
    "connect_read_pipe",
    "connect_write_pipe",
    "subprocess_exec",
    "subprocess_shell",
)


def add_to(loop_class: type) -> type:
    """Give `loop_class` a method for each missing name; a class decorator."""
    for name in COROUTINES:
        setattr(loop_class, name, _missing(name))
    return loop_class


def _missing(name: str) -> object:
    async def missing(self: object, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"ringloop.Loop.{name}() is not there yet")

    missing.__name__ = name
    missing.__qualname__ = f"Loop.{name}"
    missing.__doc__ = "Not there yet: raises NotImplementedError."
    return missing
