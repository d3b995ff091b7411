"""Pipes and children on Windows: asyncio's transports and operations, on the engine's completion port.

Owns: what is in flight. asyncio's `IocpProactor` begins each operation, and keeps its memory until its
completion was dequeued; but it is the engine that waits at the port, and this file hands out what came.
Imported on Windows alone. Called by: the loop's pipe transports, and `_subprocess`.
"""

from __future__ import annotations

import _winapi
import time
from asyncio import proactor_events, windows_events
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ringloop._loop import Loop

_events: Any = windows_events
_transports: Any = proactor_events
_api: Any = _winapi

# For its methods alone.
ProactorLoop: Any = _events.ProactorEventLoop

# Seconds between two looks at the port of a loop that is being closed.
CLOSING_PAUSE = 0.001


class Proactor(_events.IocpProactor):  # type: ignore[misc]
    """asyncio's proactor without a port of its own."""

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        port = loop._completions()
        here = _api.GetCurrentProcess()
        # A handle of its own to the engine's port, which `close` closes.
        ours = _api.DuplicateHandle(here, port & ~1, here, 0, False, _api.DUPLICATE_SAME_ACCESS)
        _api.CloseHandle(self._iocp)
        self._iocp: int | None = ours
        self._reader = port
        self._completed: deque[int] = deque()
        self.set_loop(loop)
        loop._add_reader(port, self._hand_out)

    def _poll(self, timeout: float | None = None) -> None:
        # Called by `close` alone, until all that was cancelled has completed.
        end = time.monotonic() + (timeout or 0)
        while not self._hand_out_after_look() and time.monotonic() < end:
            time.sleep(CLOSING_PAUSE)

    def _hand_out_after_look(self) -> bool:
        self._loop._settle()
        return self._hand_out()

    def _hand_out(self) -> bool:
        """Give each operation that has completed its result; return whether there was one."""
        completed = self._completed
        completed.extend(self._loop._take_completions())
        found = bool(completed)
        try:
            while completed:
                # Without one: a wait that was unregistered, and has ended all the same.
                if operation := self._cache.pop(completed.popleft(), None):
                    self._finish(*operation)
        finally:
            if completed:
                # An interrupt came in between.
                self._loop.call_soon(self._hand_out)
        # Waits that will not end any more; what they posted came before what unregistered them.
        for overlapped in self._unregistered:
            self._cache.pop(overlapped.address, None)
        self._unregistered.clear()
        return found

    def _finish(self, future: Any, overlapped: Any, owner: Any, result_of: Any) -> None:
        if owner in self._stopped_serving:
            future.cancel()
        elif not future.done():
            try:
                value = result_of(None, None, overlapped)
            except Exception as error:  # noqa: BLE001 - the future tells it
                future.set_exception(error)
            else:
                future.set_result(value)

    def close(self) -> None:
        """Cancel what is in flight, and wait until it has completed."""
        if self._iocp is not None:
            super().close()
            self._loop._remove_reader(self._reader)


def make_read_pipe_transport(loop: Loop, pipe: Any, protocol: Any, waiter: Any, extra: Any) -> Any:
    """Make a transport that reads a pipe, an object whose `fileno()` is an overlapped handle."""
    return _transports._ProactorReadPipeTransport(loop, pipe, protocol, waiter, extra)


def make_write_pipe_transport(loop: Loop, pipe: Any, protocol: Any, waiter: Any, extra: Any) -> Any:
    """Make a transport that writes to such a pipe."""
    return _transports._ProactorWritePipeTransport(loop, pipe, protocol, waiter, extra)
