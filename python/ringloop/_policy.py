"""The event loop policy, for the CPython versions that have policies: up to 3.15.

Called by: `ringloop.__getattr__`, when somebody asks for it, and `install`.
"""

from __future__ import annotations

from ringloop import _loop, _system

if _system.DefaultPolicy is None:
    raise AttributeError(
        "this Python has no event loop policies, and neither has ringloop: use ringloop.run(main()) or "
        "asyncio.run(main(), loop_factory=ringloop.new_event_loop)"
    )


class EventLoopPolicy(_system.DefaultPolicy):  # type: ignore[misc]
    """The default policy, except that new loops are ours."""

    _loop_factory = _loop.Loop
