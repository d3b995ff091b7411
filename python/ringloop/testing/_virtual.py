"""The loop with a virtual clock.

Owns: the clock, the timers, which are in a heap here and not the loop's own, and the rule by which the
clock jumps. Called by: tests. The loop runs one turn at a time, which `_turn` limits with a timer of
the real clock: so `time()` has two values, one for the loop's turn and one for everything else.

```text
  nothing is ready, and                                      the loop
  a job of an executor, a look-up or a child is pending,
    or the clock is held                                     waits for it; the clock stands still
  sockets, pipes or watched descriptors are open,
    or threads that were started meanwhile run               waits `io_wait` for them, then jumps
  none of these, and a timer is set                          jumps at once
  none of these, and no timer                                DeadlockError
```
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import heapq
import itertools
import math
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from ringloop import _loop, _native
from ringloop.metrics import _snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextvars import Context

    from ringloop._driver import Driver
    from ringloop._writes import Writes

__all__ = ["DeadlockError", "VirtualLoop"]

_TASKS_SHOWN_MAX = 20
# A wait without a limit is made of such.
_WAIT_SECONDS = 3600.0
# What the turn reads of the clock when nothing was ready: how long to wait, and what is due.
_READS_OF_IDLE_TURN = 2
_WATCHERS = _snapshot.GAUGES.index("watchers")


class DeadlockError(RuntimeError):
    """Deadlock: no timer, I/O, job, child or thread is left to wait for."""


class VirtualLoop(_loop.Loop):
    """A `ringloop.Loop` whose clock jumps to the next timer when nothing else can happen.

    `time()` starts at `start` (seconds) and only jumps: code between two timers takes no time.
    `asyncio.sleep`, `timeout`, `call_later` and `call_at` use it; `time.monotonic` and
    `time.sleep` do not. Sockets, pipes, executors and children are real, and are waited for:
    `io_wait` is how many real seconds without any of their events pass before the clock jumps while
    some are open (0.02; more where a peer is slow to answer, 0 to jump at once).

    `driver` and `writes` are as for `Loop`. `run_until_complete` raises `DeadlockError`, which names
    the waiting tasks, if no event can ever occur.
    """

    def __init__(
        self,
        *,
        start: float = 0.0,
        io_wait: float = 0.02,
        driver: Driver | None = None,
        writes: Writes | None = None,
    ) -> None:
        if not io_wait >= 0:
            raise ValueError(f"io_wait is {io_wait!r}: give real seconds, 0 or more")
        self._now = float(start)
        if not math.isfinite(self._now):
            raise ValueError(f"start is {start!r}: give seconds, a finite number")
        self._reads = 0
        super().__init__(driver=driver, writes=writes)
        self._io_wait = io_wait
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._sequence = itertools.count()
        self._is_asked_to_stop = False
        self._jobs_pending = 0
        self._io_pending = 0
        self._holds = 0
        self._open_transports: weakref.WeakSet[Any] = weakref.WeakSet()
        self._threads_before: frozenset[threading.Thread] = frozenset()

    def time(self) -> float:
        """Return the virtual time, in seconds."""
        if sys._getframe(1).f_code is _TURN:
            # The turn itself, which is to end behind this pass.
            self._reads += 1
            super().stop()
            return time.monotonic()
        return self._now

    @contextlib.contextmanager
    def holding_time(self) -> Iterator[None]:
        """Hold the clock inside the block, for events unknown to the loop.

        For example from threads that the program starts and that report by `call_soon_threadsafe`.
        """
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1

    def run_forever(self) -> None:
        """Run until `stop()` is called."""
        self._threads_before = frozenset(threading.enumerate())
        super().run_forever()

    def stop(self) -> None:
        """Have the running loop end after its current pass."""
        self._is_asked_to_stop = True
        super().stop()

    def close(self) -> None:
        """Close everything; the loop must not run."""
        super().close()
        self._timers.clear()

    def _scheduled_timers(self) -> tuple[asyncio.TimerHandle, ...]:
        return tuple(timer for _, _, timer in sorted(self._timers))

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call `callback` after `delay` seconds of the virtual clock."""
        if delay is None:
            raise TypeError("delay must not be None")
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call `callback` at a time of the virtual clock."""
        return _call_at(self, when, callback, args, context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Leave it in the heap: it is skipped."""

    def _run(self) -> None:
        try:
            _run(self)
        finally:
            self._is_asked_to_stop = False

    def _turn(self, wait: float) -> bool:
        """Run one turn, which waits `wait` real seconds at most; say whether nothing was ready."""
        until = _native.LoopCore.call_at(self, time.monotonic() + wait, int)
        try:
            self._reads = 0
            self._stopping = self._is_asked_to_stop
            super()._run()
        finally:
            until.cancel()
        return self._reads == _READS_OF_IDLE_TURN

    # What is real, and counted while it is open.

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        """Run `func` in a thread; the clock stands still until it is done."""
        return _counted(self, super().run_in_executor(executor, func, *args))

    async def getaddrinfo(
        self,
        host: bytes | str | None,
        port: bytes | str | int | None,
        *,
        family: int = 0,
        type: int = 0,  # noqa: A002 - asyncio's name for it
        proto: int = 0,
        flags: int = 0,
    ) -> list[tuple[Any, Any, int, str, Any]]:
        """Look up a host like `Loop.getaddrinfo`; the clock stands still meanwhile."""
        options: Any = {"family": family, "type": type, "proto": proto, "flags": flags}
        with self.holding_time():
            return await super().getaddrinfo(host, port, **options)

    async def getnameinfo(
        self, sockaddr: tuple[str, int] | tuple[str, int, int, int], flags: int = 0
    ) -> tuple[str, str]:
        """Look up an address like `Loop.getnameinfo`; the clock stands still meanwhile."""
        with self.holding_time():
            return await super().getnameinfo(sockaddr, flags)

    def _make_socket_transport(self, *args: Any, **kwargs: Any) -> Any:
        return _noted(self, super()._make_socket_transport(*args, **kwargs))

    def _make_datagram_transport(self, *args: Any, **kwargs: Any) -> Any:
        return _noted(self, super()._make_datagram_transport(*args, **kwargs))

    def _make_read_pipe_transport(self, *args: Any, **kwargs: Any) -> Any:
        return _noted(self, super()._make_read_pipe_transport(*args, **kwargs))

    def _make_write_pipe_transport(self, *args: Any, **kwargs: Any) -> Any:
        return _noted(self, super()._make_write_pipe_transport(*args, **kwargs))


_TURN = VirtualLoop._turn.__code__


def _count_socket_methods() -> None:
    """Have each `sock_*` method count as open I/O while it waits."""

    def counting(name: str) -> Any:
        method: Any = getattr(_loop.Loop, name)

        @functools.wraps(method)
        async def call(self: VirtualLoop, *args: Any, **kwargs: Any) -> Any:
            self._io_pending += 1
            try:
                return await method(self, *args, **kwargs)
            finally:
                self._io_pending -= 1

        call.__qualname__ = f"VirtualLoop.{name}"
        call.__doc__ = method.__doc__ or f"As `asyncio.loop.{name}`, which has no description."
        return call

    for name in dir(_loop.Loop):
        if name.startswith("sock_"):
            setattr(VirtualLoop, name, counting(name))


_count_socket_methods()


# --- timers ---------------------------------------------------------------------------------------


def _call_at(
    loop: VirtualLoop,
    when: float,
    callback: Callable[..., object],
    args: tuple[Any, ...],
    context: Context | None,
) -> asyncio.TimerHandle:
    if when is None:
        raise TypeError("when cannot be None")
    # Due at once, as on asyncio's loop; in the heap it would have no place.
    due = -math.inf if math.isnan(when) else float(when)
    loop._check_closed()
    if loop._debug:
        loop._check_thread()
        loop._check_callback(callback, "call_at")
    timer = asyncio.TimerHandle(when, callback, args, loop, context)
    heapq.heappush(loop._timers, (due, next(loop._sequence), timer))
    timer._scheduled = True
    return timer


def _next_timer(loop: VirtualLoop) -> float | None:
    """Return when the next timer is due; drops cancelled ones. One at infinity never is."""
    timers = loop._timers
    while timers and timers[0][2].cancelled():
        heapq.heappop(timers)
    return timers[0][0] if timers and timers[0][0] < math.inf else None


def _queue_due(loop: VirtualLoop) -> None:
    """Queue what is due, in the order of deadlines and then of making."""
    while (when := _next_timer(loop)) is not None and when <= loop._now:
        timer = heapq.heappop(loop._timers)[2]
        timer._scheduled = False
        loop._add_callback(timer)


# --- turns, waits and jumps -----------------------------------------------------------------------


def _run(loop: VirtualLoop) -> None:
    """Run turns until the loop is stopped; wait or jump when nothing is ready."""
    while True:
        if _is_quiet(loop):
            _wait_or_jump(loop)
        if _is_over(loop):
            return


def _is_quiet(loop: VirtualLoop) -> bool:
    """Run a turn, and another for what the kernel and threads brought; say whether both were idle."""
    for _ in range(2):
        _queue_due(loop)
        if not loop._turn(0.0) or _is_over(loop):
            return False
    when = _next_timer(loop)
    return when is None or when > loop._now


def _wait_or_jump(loop: VirtualLoop) -> None:
    wait = _wait_before_jump(loop)
    if wait > 0:
        end = time.monotonic() + wait
        loop._turn(wait)
        if (
            _is_over(loop)
            or time.monotonic() < end
            or _next_timer(loop) is None
            or _is_held(loop)
            or not _is_quiet(loop)
        ):
            return
    if (when := _next_timer(loop)) is None:
        raise DeadlockError(_describe(loop))
    loop._now = max(loop._now, when)


def _is_over(loop: VirtualLoop) -> bool:
    return loop._is_asked_to_stop


def _is_held(loop: VirtualLoop) -> bool:
    """Say whether something is pending that is certain to end: the clock stands still for it."""
    return bool(loop._holds or loop._jobs_pending or loop._children)


def _wait_before_jump(loop: VirtualLoop) -> float:
    """Return for how many real seconds to wait for what is real."""
    if _is_held(loop):
        return _WAIT_SECONDS
    if not (_may_get_io(loop) or _has_new_threads(loop)):
        return 0.0
    return _WAIT_SECONDS if _next_timer(loop) is None else loop._io_wait


def _counted(loop: VirtualLoop, future: Any) -> Any:
    """Count the future as pending until it is done."""
    loop._jobs_pending += 1

    def done(_: Any) -> None:
        loop._jobs_pending -= 1

    future.add_done_callback(done)
    return future


def _noted(loop: VirtualLoop, transport: Any) -> Any:
    loop._open_transports.add(transport)
    return transport


def _is_open(transport: Any) -> bool:
    shown = transport.get_extra_info("socket")
    if shown is not None:
        return bool(shown.fileno() != -1)
    return not transport.is_closing()


def _may_get_io(loop: VirtualLoop) -> bool:
    """Say whether the kernel watches anything but what tells the loop of signals."""
    signals = loop._signals
    _, gauges, _ = loop._metrics()
    return bool(
        signals.handlers  # one may come at any time
        or loop._io_pending
        or loop._listeners
        or gauges[_WATCHERS] > signals.watched
        or any(map(_is_open, loop._open_transports))
    )


def _has_new_threads(loop: VirtualLoop) -> bool:
    """Say whether threads that began during this run may call the loop.

    Those of its own executor and resolver have nothing to do when no job is pending.
    """
    own = getattr(loop._default_executor, "_threads", ())
    return any(
        thread not in loop._threads_before
        and thread not in own
        and not thread.name.startswith("ringloop")
        for thread in threading.enumerate()
    )


def _describe(loop: VirtualLoop) -> str:
    tasks = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    why = (
        f"nothing can happen any more at virtual time {loop.time():g}: no timer is set, no socket is "
        "open, no job, child or thread is pending"
    )
    if not tasks:
        return f"{why}, and no task waits: stop the loop, or run it until something is complete"
    lines = [f"{why}. These tasks wait for each other, or for what nothing will do:"]
    lines += (f"  {task.get_name()}: {_place(task)}" for task in tasks[:_TASKS_SHOWN_MAX])
    if len(tasks) > _TASKS_SHOWN_MAX:
        lines.append(f"  and {len(tasks) - _TASKS_SHOWN_MAX} more")
    return "\n".join(lines)


def _place(task: asyncio.Task[Any]) -> str:
    """Say where a task waits, from its coroutine to the innermost one."""
    names = []
    where = ""
    inner: Any = task.get_coro()
    while inner is not None:
        frame = getattr(inner, "cr_frame", None) or getattr(inner, "gi_frame", None)
        if frame is None:
            break
        names.append(getattr(inner, "__qualname__", type(inner).__name__))
        where = f" ({frame.f_code.co_filename}:{frame.f_lineno})"
        inner = getattr(inner, "cr_await", None) or getattr(inner, "gi_yieldfrom", None)
    return " > ".join(names) + where if names else repr(task)
