"""An asyncio event loop on io_uring, with a readiness fallback chosen at run time."""

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
from ringloop._run import EventLoopPolicy, install, new_event_loop, run

__all__ = ["EventLoopPolicy", "Loop", "__version__", "install", "new_event_loop", "run"]
