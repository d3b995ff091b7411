"""`run_forever`: the frame around the native turn, which runs once a run and never once a callback."""

from __future__ import annotations

import sys
import threading
from asyncio import events
from typing import TYPE_CHECKING

from ringloop import _signals

if TYPE_CHECKING:
    from ringloop._loop import Loop


def run_forever(loop: Loop) -> None:
    """Run `loop` until it is stopped, with everything that `BaseEventLoop.run_forever` sets up."""
    loop._check_closed()
    loop._check_running()
    # Fails where another thread came first.
    loop._thread_id = threading.get_ident()
    loop._set_coroutine_origin_tracking(loop._debug)
    old_hooks = sys.get_asyncgen_hooks()
    try:
        sys.set_asyncgen_hooks(
            firstiter=loop._asyncgen_firstiter_hook, finalizer=loop._asyncgen_finalizer_hook
        )
        events._set_running_loop(loop)
        with _signals.wake_up(loop):
            loop._run()
    finally:
        loop._stopping = False
        loop._thread_id = None
        events._set_running_loop(None)
        loop._set_coroutine_origin_tracking(False)
        sys.set_asyncgen_hooks(*old_hooks)
