"""`run_forever`: the frame around the native turn, which runs once a run and never once a callback."""

from __future__ import annotations

import sys
import threading
from asyncio import events
from typing import TYPE_CHECKING, Any

from ringloop import _signals

if TYPE_CHECKING:
    from ringloop._loop import Loop


def run_forever(loop: Loop) -> None:
    """Run `loop` until it is stopped, with everything that `BaseEventLoop.run_forever` sets up."""
    loop._check_closed()
    loop._check_running()
    old_hooks = sys.get_asyncgen_hooks()
    # Fails where another thread came first.
    loop._thread_id = threading.get_ident()
    try:
        loop._set_coroutine_origin_tracking(loop._debug)
        sys.set_asyncgen_hooks(
            firstiter=loop._asyncgen_firstiter_hook, finalizer=loop._asyncgen_finalizer_hook
        )
        events._set_running_loop(loop)
        with _signals.wake_up(loop):
            loop._run()
    finally:
        try:
            _end(loop, old_hooks)
        except BaseException:
            # Before CPython 3.14 forgetting the running loop allocates: where memory ran out or a signal
            # came, the second attempt leaves no hook and no running loop behind, and the error goes out.
            _end(loop, old_hooks)
            raise


def _end(loop: Loop, old_hooks: Any) -> None:
    # Each step may be taken twice. A thread that still has a running loop runs no other.
    loop._end_run()
    events._set_running_loop(None)
    sys.set_asyncgen_hooks(*old_hooks)
    loop._set_coroutine_origin_tracking(False)
