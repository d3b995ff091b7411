"""The event loop policy, for the CPython versions that have policies: up to 3.15.

Called by: `ringloop.__getattr__`, when somebody asks for it, and `install`.
"""

from __future__ import annotations

from asyncio import unix_events
from typing import Any

from ringloop import _loop

try:
    _Base: Any = unix_events._UnixDefaultEventLoopPolicy  # type: ignore[attr-defined]
except AttributeError:
    raise AttributeError(
        "this Python has no event loop policies, so ringloop has none: use ringloop.run(main()) or "
        "asyncio.run(main(), loop_factory=ringloop.new_event_loop)"
    ) from None


class EventLoopPolicy(_Base):  # type: ignore[misc]
    """The default policy, except that new loops are ours."""

    _loop_factory = _loop.Loop
