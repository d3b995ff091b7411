"""`Loop.close`: what a loop releases, in order.

Called by: `Loop.close`. Never does: wait, for threads or for children; but on
Windows until cancelled reads and writes of pipes have completed.
"""

from __future__ import annotations

from asyncio.log import logger

from ringloop import _loops, _signals, _subprocess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ringloop._loop import Loop


def close(loop: Loop) -> None:
    """Close `loop`, with everything that `BaseEventLoop.close` does apart from its queues."""
    if loop.is_running():
        raise RuntimeError("Cannot close a running event loop")
    if loop.is_closed():
        return
    if loop._debug:
        logger.debug("Close %r", loop)
    # Of Windows, and only if there was a pipe or a child.
    proactor = loop.__dict__.get("_proactor")
    if proactor is not None:
        proactor.close()
    try:
        # Not in the main thread they cannot be given back: a closed loop tells that.
        _signals.close(loop)
    finally:
        _loops.remove(loop)
        _subprocess.close(loop)
        loop._resolver.close()
        loop._executor_shutdown_called = True
        executor, loop._default_executor = loop._default_executor, None
        if executor is not None:
            executor.shutdown(wait=False)
        loop._close()
