"""Samples the loops' threads while they run.

A sampler that needs the interpreter's lock sees a program only at the points where the program
releases it, and misses callbacks that end before. So the native part records what each loop does at
the moment of the sample, before it acquires the lock (`_native.pulses`). If the loop has gone to sleep
by then, the sample is attributed to callbacks in general. A shorter switch interval makes these rare.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
import time
from asyncio import base_events, events
from inspect import CO_COROUTINE, CO_ITERABLE_COROUTINE
from types import CodeType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from ringloop import _forever, _loops, _native
from ringloop.profiling import _tasks
from ringloop.profiling._profile import IDLE, LOOP, MISSED, RUNNING, Function
from ringloop.profiling._thread import SamplerThread

if TYPE_CHECKING:
    from collections.abc import Collection
    from types import FrameType

    from ringloop._loop import Loop

Calls: TypeAlias = list[tuple[CodeType, int]]

RATE_MAX = 10_000
# How long a callback may run before it yields the interpreter to the sampler.
SWITCH_INTERVAL_SECONDS = 0.0002
# Attempts to read a stack that is inconsistent.
TRIES = 8
# The phases of `_native.pulses`.
STOPPED, IN_TURN, IN_WAIT = 0, 1, 2

_COROUTINE = CO_COROUTINE | CO_ITERABLE_COROUTINE
# Frames below these belong to the program's start; the first is ours.
_TURN = _forever.run_forever.__code__
_ASYNCIO_CALLBACK = events.Handle._run.__code__
_ASYNCIO_TURN = base_events.BaseEventLoop._run_once.__code__
# Where a loop that never sleeps yields the interpreter (`event_loop/give_way.rs`).
_GIVES_WAY = "<ringloop>"
# Each system has some of them.
_SELECTOR_NAMES = ("EpollSelector", "KqueueSelector", "PollSelector", "SelectSelector")
_SELECTORS = {
    getattr(selectors, name).select.__code__ for name in _SELECTOR_NAMES if hasattr(selectors, name)
}


class Sampler(SamplerThread):
    """Samples the stacks of the threads in which loops run."""

    mode = "running"
    default_rate = 100.0

    def __init__(
        self, rate: float | None, loops: Collection[asyncio.AbstractEventLoop] | None
    ) -> None:
        super().__init__(rate)
        self._loops = None if loops is None else list(loops)
        self._others = [loop for loop in loops or _running_here() if not _is_ours(loop)]
        self._functions: dict[int, tuple[CodeType, Function]] = {}

    def run(self) -> None:
        """Sample until the end."""
        interval = sys.getswitchinterval()
        if interval > SWITCH_INTERVAL_SECONDS:
            sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
        chosen = sys.getswitchinterval()
        try:
            last = time.monotonic()
            while not self._ends.is_set():
                last = self._tick(last)
        finally:
            # The program may have set another value meanwhile.
            if sys.getswitchinterval() == chosen:
                sys.setswitchinterval(interval)

    def _tick(self, last: float) -> float:
        """Sleep, and sample every loop; return the time of the samples."""
        loops = self._ours()
        beats = _native.pulses(loops, self.next_interval())
        now = time.monotonic()
        seconds, at = now - last, now - self._began
        frames: dict[int, FrameType] | None = None
        for loop, beat in zip(loops, beats, strict=True):
            if beat[0] == STOPPED:
                continue
            thread = loop._thread_id
            track = self.track(loop, thread)
            if beat[0] == IN_WAIT:
                self.profile.add(track, at, (Function(IDLE),), seconds)
                continue
            if frames is None:
                frames = sys._current_frames()
            stack = self._stack_of_ours(loop, beat, frames.get(thread or 0))
            self.profile.add(track, at, stack, seconds)
        self._sample_others(at, seconds, frames)
        return now

    def _ours(self) -> list[Loop]:
        if self._loops is None:
            return _loops.running()
        return [loop for loop in self._loops if _is_ours(loop) and not loop.is_closed()]

    def _stack_of_ours(
        self, loop: Loop, beat: tuple[int, int, int, int], frame: FrameType | None
    ) -> tuple[Function, ...]:
        now = loop._beat()
        if frame is None or now[0] != IN_TURN or now[2] != beat[2]:
            # It has slept since: its earlier stack is lost.
            return (Function(MISSED),)
        for _ in range(TRIES):
            task = asyncio.current_task(loop)
            calls = _native.call_stacks([frame])[0]
            for index, (code, _line) in enumerate(calls):
                if code is _TURN:
                    return self._stack(task, calls[:index])
            # On free-threaded builds a generator may have yielded since: then it has no caller.
            frame = sys._current_frames().get(loop._thread_id or 0, frame)
        return (Function(MISSED),)

    def _sample_others(
        self, at: float, seconds: float, frames: dict[int, FrameType] | None
    ) -> None:
        """Sample loops of other types, which have no pulse."""
        for loop in self._others:
            thread: int | None = getattr(loop, "_thread_id", None)
            if thread is None:
                continue
            if frames is None:
                frames = sys._current_frames()
            frame = frames.get(thread)
            if frame is None:
                continue
            task = asyncio.current_task(loop)
            calls = _native.call_stacks([frame])[0]
            self.profile.add(self.track(loop, thread), at, self._other(task, calls), seconds)

    def _other(self, task: asyncio.Task[Any] | None, calls: Calls) -> tuple[Function, ...]:
        for index, (code, _) in enumerate(calls):
            if code is _ASYNCIO_CALLBACK:
                return self._stack(task, calls[:index])
            if code is _ASYNCIO_TURN:
                inside = {code for code, _ in calls[:index]}
                return (Function(IDLE if inside & _SELECTORS else LOOP),)
        return self._stack(task, calls)

    def _stack(self, task: asyncio.Task[Any] | None, calls: Calls) -> tuple[Function, ...]:
        """Return the stack of a callback: phase, task, functions from the outside inwards."""
        if not calls or calls[0][0].co_filename == _GIVES_WAY:
            return (Function(LOOP),)
        # On free-threaded builds the task may have been read at another moment.
        if task is not None and _tasks.code_of(task) not in {code for code, _ in calls}:
            task = None
        outermost = calls[-1][0]
        if task is not None:
            owner = _tasks.label(task)
        elif outermost.co_flags & _COROUTINE:
            owner = f"task {outermost.co_qualname}"
        else:
            owner = "callback"
        functions = (self._function(code) for code, _ in reversed(calls))
        return (Function(RUNNING), Function(owner), *functions)

    def _function(self, code: CodeType) -> Function:
        known = self._functions.get(id(code))
        if known is None:
            function = Function(code.co_qualname, code.co_filename, code.co_firstlineno)
            # The cache keeps the code object, so that its address is not reused.
            known = self._functions[id(code)] = code, function
        return known[1]


def _is_ours(loop: asyncio.AbstractEventLoop) -> TypeGuard[Loop]:
    return isinstance(loop, _native.LoopCore)


def _running_here() -> list[asyncio.AbstractEventLoop]:
    loop = events._get_running_loop()
    return [] if loop is None else [loop]
