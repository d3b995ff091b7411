"""An asyncio event loop on io_uring, with a readiness fallback chosen at run time."""

from ringloop._loop import Loop
from ringloop._native import __version__
from ringloop._run import EventLoopPolicy, install, new_event_loop, run

__all__ = ["EventLoopPolicy", "Loop", "__version__", "install", "new_event_loop", "run"]
