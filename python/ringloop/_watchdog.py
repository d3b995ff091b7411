"""`ringloop.watchdog`: reports a callback that blocks a loop while it does so, with its stack.

A thread checks the pulse of each loop (`_native.pulses`): a loop that is in a turn and whose count of
callbacks does not change runs one callback all that time. The loop does nothing for it.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import sys
import threading
import time
import traceback
from asyncio.log import logger
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from ringloop import _forever, _loops, _native, _slow
from ringloop.profiling import _tasks
from ringloop.profiling._profile import Function

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from ringloop._loop import Loop

__all__ = ["Stall", "watchdog"]

# Between two looks, four of which are a threshold. The longest is how long `stop()` may take.
INTERVAL_SECONDS_MIN, INTERVAL_SECONDS_MAX = 0.001, 0.1
IN_TURN = 1
_TURN = _forever.run_forever.__code__


@dataclass(frozen=True)
class Stall:
    """A callback that blocks its loop.

    `callback` names what the loop called: a function, or a task's coroutine, with its file and line;
    `task` is the task's name, or None. `seconds` is how long it has run at least. `stack` is where it
    is, outermost frame first; empty if no Python code runs, or if the callback ended before the
    interpreter was free to read it: then C code kept it.
    """

    loop: Loop
    thread: str
    callback: str
    task: str | None
    seconds: float
    stack: traceback.StackSummary = field(repr=False)

    def __str__(self) -> str:
        of = "" if self.task is None else f" of task {self.task!r}"
        lines = "".join(self.stack.format()).rstrip()
        return (
            f"{self.callback}{of} has blocked {self.loop!r} for {self.seconds:.3f} seconds "
            f"in {self.thread}" + (f":\n{lines}" if lines else "")
        )


class _Watched:
    """What is known of a loop."""

    def __init__(self, beat: tuple[int, int, int, int], now: float) -> None:
        self.beat = beat
        self.since = now
        self.told: Stall | None = None


class watchdog:  # noqa: N801 - a context manager, as `ringloop.profile`
    """Watch the loops of this process while the block runs, or between `start()` and `stop()`.

    A callback, or a step of a task, that runs for `threshold` seconds is logged at once by asyncio's
    logger (WARNING), with the stack at which it is, and again with its time once it has ended.
    `hook`, if given, is called with the :class:`Stall` instead of logging the first line, in the
    watchdog's thread; its exceptions are logged. `loops` names the loops; without it, they are all of
    ringloop's in the process, in any thread, including those that start later.

    Needs no debug mode, and costs the loops nothing: a thread wakes up four times per threshold (between
    ten and a thousand times a second). A stall that begins between two checks is noticed up to a
    quarter of the threshold later. Several watchdogs may run at once.
    """

    def __init__(
        self,
        threshold: float = 0.1,
        *,
        hook: Callable[[Stall], object] | None = None,
        loops: list[Loop] | None = None,
    ) -> None:
        if not 0 < threshold < float("inf"):
            raise ValueError(f"threshold must be a number of seconds above 0, not {threshold!r}")
        if hook is not None and not callable(hook):
            raise TypeError(f"hook must be callable or None, not {hook!r}")
        for loop in loops or ():
            if not isinstance(loop, _native.LoopCore):
                raise TypeError(f"only ringloop's loops have a pulse to watch, not {loop!r}")
        self.threshold = threshold
        self.hook = hook
        self._interval = min(max(threshold / 4, INTERVAL_SECONDS_MIN), INTERVAL_SECONDS_MAX)
        self._loops = None if loops is None else list(loops)
        self._watched: dict[int, _Watched] = {}
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None
        self._process = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start watching; RuntimeError if it is already watching."""
        if self.running():
            raise RuntimeError("this watchdog is already running: stop() ends it")
        self._ends.clear()
        self._watched.clear()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._main, name="ringloop watchdog", daemon=True)
        # Contexts are inherited by threads on free-threaded builds: the program's is not held here.
        contextvars.Context().run(self._thread.start)

    def stop(self) -> None:
        """Stop watching; does nothing if it is not running."""
        thread, self._thread = self._thread, None
        if thread is not None and self._process == os.getpid():
            self._ends.set()
            # A hook may end its own watchdog.
            if thread is not threading.current_thread():
                thread.join()

    def running(self) -> bool:
        """Return whether it watches this process; a forked child has none."""
        thread = self._thread
        return thread is not None and self._process == os.getpid() and thread.is_alive()

    def _main(self) -> None:
        while not self._ends.is_set():
            loops = _loops.running() if self._loops is None else self._loops
            beats = _native.pulses(loops, self._interval)
            now = time.monotonic()
            for loop, beat in zip(loops, beats, strict=True):
                self._look(loop, beat, now)
            self._watched = {
                key: known for key, known in self._watched.items() if key in map(id, loops)
            }

    def _look(self, loop: Loop, beat: tuple[int, int, int, int], now: float) -> None:
        known = self._watched.get(id(loop))
        if known is None or beat[0] != IN_TURN or known.beat != beat:
            if known is not None and known.told is not None:
                _slow.note(loop, known.told.callback, now - known.since)
                _log_end(known.told, now - known.since)
            self._watched[id(loop)] = _Watched(beat, now)
            return
        if known.told is None and now - known.since >= self.threshold:
            known.told = _stall(loop, beat, now - known.since)
            self._tell(known.told)

    def _tell(self, stall: Stall) -> None:
        if self.hook is None:
            logger.warning("%s", stall)
            return
        try:
            self.hook(stall)
        except Exception:  # noqa: BLE001 - the application's
            logger.exception("the hook of a watchdog failed, at: %s", stall)


def _log_end(stall: Stall, seconds: float) -> None:
    logger.warning("%s ended after %.3f seconds", stall.callback, seconds)


def _stall(loop: Loop, beat: tuple[int, int, int, int], seconds: float) -> Stall:
    """Read the stack of the callback that runs."""
    ident = loop._thread_id or 0
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frame = sys._current_frames().get(ident)
    task = asyncio.current_task(loop)
    calls = [] if frame is None else _native.call_stacks([frame])[0]
    ours = [index for index, (code, _) in enumerate(calls) if code is _TURN]
    calls = calls[: ours[0]] if ours else calls
    if loop._beat() != beat:
        calls, task = [], None
        callback = "a callback that has ended (C code kept the interpreter)"
    elif calls:
        code = calls[-1][0]
        callback = str(Function(code.co_qualname, code.co_filename, code.co_firstlineno))
    else:
        callback = "a callback without Python code"
    if task is not None and _tasks.code_of(task) not in {code for code, _ in calls}:
        # Read in two moments, without the interpreter's lock.
        task = None
    stack = traceback.StackSummary.from_list(
        [
            traceback.FrameSummary(code.co_filename, line, code.co_qualname, lookup_line=False)
            for code, line in reversed(calls)
        ]
    )
    return Stall(
        loop=loop,
        thread=names.get(ident, f"thread {ident}"),
        callback=callback,
        task=None if task is None else _name(task),
        seconds=seconds,
        stack=stack,
    )


def _name(task: asyncio.Task[Any]) -> str:
    return task.get_name()
