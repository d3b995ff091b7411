"""`run_forever`: the frame around the native turn; entered once per run, never per callback."""

from __future__ import annotations

import sys
from asyncio import events

from ringloop import _signals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ringloop._loop import Loop


def run_forever(loop: Loop) -> None:
    """Run `loop` until it is stopped, with everything that `BaseEventLoop.run_forever` sets up."""
    loop._check_closed()
    loop._check_running()
    if loop._is_inherited():
        # Its threads are the parent's: nothing is to be waited for.
        loop._default_executor = None
    old_hooks = sys.get_asyncgen_hooks()
    try:
        loop._begin_run()
        loop._set_coroutine_origin_tracking(loop._debug)
        sys.set_asyncgen_hooks(
            firstiter=loop._asyncgen_firstiter_hook, finalizer=loop._asyncgen_finalizer_hook
        )
        events._set_running_loop(loop)
        with _signals.wake_up(loop):
            loop._run()
    except RuntimeError as error:
        # What ends a child of a fork is not replaced by the error that its clean-up meets.
        reason = error.__context__
        if isinstance(reason, (SystemExit, KeyboardInterrupt)) and loop._is_inherited():
            raise reason from None
        raise
    finally:
        # One call each: an interrupt comes before or behind all of it.
        if loop._end_run(events._set_running_loop, sys.set_asyncgen_hooks, old_hooks):
            loop._set_coroutine_origin_tracking(False)
