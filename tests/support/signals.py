"""Signals that a test sends to its own process."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

from tests import support

if TYPE_CHECKING:
    import asyncio


def kill_later(number: int, loop: asyncio.AbstractEventLoop) -> threading.Thread:
    """Send a signal to this process once the loop has run a callback, from another thread.

    An interrupt while it begins to run leaves asyncio's loop running for ever.
    """
    runs = threading.Event()
    loop.call_soon(runs.set)

    def send() -> None:
        assert runs.wait(support.PATIENCE_SECONDS)
        time.sleep(0.01)  # let it fall asleep: the signal must arrive either way
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=send)
    thread.start()
    return thread
