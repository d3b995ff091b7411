"""An asyncio event loop on io_uring, with a readiness fallback chosen at run time."""

from __future__ import annotations

import os
import sys

try:
    from ringloop._native import __version__
except ImportError as _error:
    if sys.platform not in ("linux", "darwin", "win32"):
        raise ImportError(
            f"ringloop runs on Linux and is compiled for macOS and Windows, but not for {sys.platform}: "
            "use asyncio's own event loop here",
            name="ringloop",
        ) from _error
    if "subinterpreters" not in str(_error):
        raise
    raise ImportError(
        "ringloop runs in the main interpreter of a process, and this is a sub-interpreter: "
        "use asyncio's own event loop here, or a process of its own "
        "(under mod_wsgi: WSGIApplicationGroup %{GLOBAL})",
        name="ringloop",
    ) from _error

from ringloop._loop import Loop
from ringloop._run import install, new_event_loop, run, use_fast_streams
from ringloop._server import Server
from ringloop._workers import Worker, run_workers

# As in every module that is imported with this one: to import `typing`, which asyncio does not
# need, would take as long as all the rest.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ringloop import metrics
    from ringloop._policy import EventLoopPolicy as EventLoopPolicy
    from ringloop._streams import open_connection as open_connection
    from ringloop._streams import open_unix_connection as open_unix_connection
    from ringloop._streams import start_server as start_server
    from ringloop._streams import start_unix_server as start_unix_server
    from ringloop._watchdog import Stall, watchdog
    from ringloop.profiling import profile

# Without the policy, which `from ringloop import *` would make where asyncio has none.
__all__ = [
    "Loop",
    "Server",
    "Stall",
    "Worker",
    "__version__",
    "install",
    "metrics",
    "new_event_loop",
    "open_connection",
    "open_unix_connection",
    "profile",
    "run",
    "run_workers",
    "start_server",
    "start_unix_server",
    "use_fast_streams",
    "watchdog",
]

# Not before they are wanted.
_STREAMS = ("open_connection", "open_unix_connection", "start_server", "start_unix_server")

if os.environ.get("RINGLOOP_FAST_STREAMS"):
    from ringloop import _streams

    if _streams.are_chosen():
        use_fast_streams()


def __getattr__(name: str) -> Any:
    if name == "EventLoopPolicy":
        from ringloop import _policy  # noqa: PLC0415 - not before it is wanted: asyncio may have none

        return _policy.EventLoopPolicy
    if name == "metrics":
        import ringloop.metrics  # noqa: PLC0415 - not before it is wanted, as those below

        return ringloop.metrics
    if name == "profile":
        from ringloop import profiling  # noqa: PLC0415

        return profiling.profile
    if name in {"Stall", "watchdog"}:
        from ringloop import _watchdog  # noqa: PLC0415

        return getattr(_watchdog, name)
    if name in _STREAMS:
        from ringloop import _streams  # noqa: PLC0415

        return getattr(_streams, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
