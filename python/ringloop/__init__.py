"""An asyncio event loop on io_uring, with a readiness fallback chosen at run time."""

from typing import TYPE_CHECKING, Any

try:
    from ringloop._native import __version__
except ImportError as _error:
    if "subinterpreters" not in str(_error):
        raise
    raise ImportError(
        "ringloop runs in the main interpreter of a process, and this is a sub-interpreter: "
        "use asyncio's own event loop here, or a process of its own "
        "(under mod_wsgi: WSGIApplicationGroup %{GLOBAL})",
        name="ringloop",
    ) from _error

from ringloop._loop import Loop
from ringloop._run import install, new_event_loop, run

if TYPE_CHECKING:
    from ringloop._policy import EventLoopPolicy as EventLoopPolicy

# Without the policy, which `from ringloop import *` would make where asyncio has none.
__all__ = ["Loop", "__version__", "install", "new_event_loop", "run"]


def __getattr__(name: str) -> Any:
    if name == "EventLoopPolicy":
        from ringloop import _policy  # noqa: PLC0415 - not before it is wanted: asyncio may have none

        return _policy.EventLoopPolicy
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
