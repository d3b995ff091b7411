"""The names of uvloop's module, for programs that import it and get this loop.

Called by: the import of `uvloop` after `ringloop.install(as_uvloop=True)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringloop import _loop, _run

if TYPE_CHECKING:
    from types import ModuleType

# Whose interface it is; programs compare it with the least that they need.
VERSION = "0.23.0"


def fill(module: ModuleType) -> None:
    """Give `module`, which is `uvloop` or `uvloop.loop`, its names."""
    module.__doc__ = "ringloop, under uvloop's names (ringloop.install(as_uvloop=True))."
    names: dict[str, Any] = {"Loop": _loop.Loop}
    if module.__name__ == "uvloop":
        names |= {
            "__version__": VERSION,
            "__all__": ("new_event_loop", "run", "install", "EventLoopPolicy"),
            "install": _run.install,
            "new_event_loop": _run.new_event_loop,
            "run": _run.run,
            "__getattr__": _late,
        }
    vars(module).update(names)


def _late(name: str) -> Any:
    """Return what is made on request: the policy, which not every Python has; the module `loop`."""
    if name == "EventLoopPolicy":
        from ringloop import _policy  # noqa: PLC0415 - asyncio may have none

        return _policy.EventLoopPolicy
    if name == "loop":
        import importlib  # noqa: PLC0415

        return importlib.import_module("uvloop.loop")
    raise AttributeError(f"module 'uvloop' has no attribute {name!r} (it is ringloop's stand-in)")
