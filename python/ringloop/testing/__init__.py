"""For tests: a loop whose clock jumps to the next timer instead of waiting for it.

::

    loop = testing.VirtualLoop()
    loop.run_until_complete(main())     # an hour of asyncio.sleep takes milliseconds

docs/testing.md says when the clock jumps, and has the fixtures of `ringloop.testing.pytest_plugin`.
"""

from __future__ import annotations

from ringloop.testing._virtual import DeadlockError, VirtualLoop

__all__ = ["DeadlockError", "VirtualLoop"]
