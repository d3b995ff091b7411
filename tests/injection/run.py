"""One run: a loop, the parts of its workload, and the faults injected into them.

A part is done when everything it started has ended correctly. The loop runs again after each interrupt
until all parts are done; anything lost, duplicated, reordered, left open or missing is a fault.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import linecache
import os
import random
import selectors
import signal
import sys
import time
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

from tests import support

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Coroutine
    from types import FrameType

KINDS = ("keyboard", "cancel")
DRIVERS = {"io_uring": "ringloop-uring", "epoll": "ringloop-epoll", "asyncio": "asyncio"}
# A run that takes longer counts as hanging; it takes some 20 ms.
PATIENCE_SECONDS = 10.0
_LAST_TURNS = 1000
_SPIN_SECONDS = 200e-6
_ALARM_SECONDS = 1e-3
_ALARM_AGAIN_SECONDS = 100e-6


class Run:
    """The loop, its parts, and the random generator."""

    def __init__(
        self, kind: str, driver: str, seed: int, contexts: tuple[ssl.SSLContext, ssl.SSLContext]
    ) -> None:
        self._descriptors = set(support.open_descriptors())
        self.kind = kind
        self.rng = random.Random(f"{kind} {seed}")
        self.loop = support.loop_factory(DRIVERS[driver])()
        self.is_oracle = driver == "asyncio"
        self.server_context, self.client_context = contexts
        self.rate = self.rng.choice((0.01, 0.05, 0.2))
        # How many more faults are injected.
        self.left = self.rng.randint(1, 25)
        self.thrown = 0
        self.real_signals = kind == "keyboard" and self.rng.random() < 0.3
        self.open: dict[object, str] = {}
        self.faults: list[str] = []
        self._armed = True
        self._numbers = itertools.count()
        self._scheduled: dict[int, tuple[asyncio.Handle, Callable[..., None], tuple[Any, ...]]] = {}
        self._workers: dict[asyncio.Task[None], str] = {}

    # --- calls for parts --------------------------------------------------------------------------

    def begin(self, part: object, what: str) -> None:
        self.open[part] = what

    def finish(self, part: object) -> None:
        if self.open.pop(part, None) is None:
            self.fault(f"{part} ended twice")
        if not self.open:
            self.loop.stop()

    def fault(self, what: str) -> None:
        self.faults.append(what)
        self.loop.stop()

    def check(self, condition: object, what: str) -> None:
        if not condition:
            self.fault(what)

    def soon(self, callback: Callable[..., None], *arguments: Any) -> None:
        """Like `call_soon` or a short `call_later`: called once, even if an interrupt comes first."""
        number = next(self._numbers)
        call = partial(self._call, number)
        handle: asyncio.Handle
        if self.rng.random() < 0.8:
            handle = self.loop.call_soon(call)
        else:
            handle = self.loop.call_later(self.rng.random() * 0.001, call)
        self._scheduled[number] = (handle, callback, arguments)

    def _call(self, number: int) -> None:
        entry = self._scheduled.pop(number, None)
        if entry is None:
            self.fault(f"callback {number} was called twice, or after it was cancelled")
            return
        _, callback, arguments = entry
        try:
            self.point()
        except BaseException:
            self.soon(callback, *arguments)
            raise
        callback(*arguments)
        self.point()

    def work(
        self,
        make: Callable[[], Coroutine[Any, Any, None]],
        done: Callable[[], None],
        *,
        whole: bool = False,
    ) -> None:
        """Run a coroutine in a task; if it is interrupted or cancelled, a new one continues.

        `whole`: it must not be cancelled.
        """
        task = self.loop.create_task(make())
        if not whole:
            self._workers[task] = repr(make)
        task.add_done_callback(partial(self._worked, make, done, whole))

    def _worked(
        self,
        make: Callable[[], Coroutine[Any, Any, None]],
        done: Callable[[], None],
        whole: bool,
        task: asyncio.Task[None],
    ) -> None:
        self._workers.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or isinstance(error, (KeyboardInterrupt, SystemExit)):
            self.work(make, done, whole=whole)
        elif error is not None:
            self.fault(f"{make} failed: {error!r}")
        else:
            done()

    def transports(self) -> list[Any]:
        """The open transports of the loop."""
        known: dict[int, Any] = getattr(self.loop, "_transports", {})
        return [transport for transport in known.values() if not transport.is_closing()]

    # --- injection --------------------------------------------------------------------------------

    def point(self) -> None:
        """A place in user code where a fault may be injected."""
        if self.real_signals and self.rng.random() < 0.03:
            self._spin()
        if self._armed and self.left > 0 and self.rng.random() < self.rate:
            self.left -= 1
            self.thrown += 1
            (self._interrupt if self.kind == "keyboard" else self._cancel)()

    def _interrupt(self) -> None:
        dice = self.rng.random()
        if dice < 0.6:
            raise KeyboardInterrupt
        if dice < 0.8:
            signal.raise_signal(signal.SIGINT)
        elif dice < 0.9:
            raise SystemExit
        else:
            self.loop.stop()

    def _cancel(self) -> None:
        """Cancel a task or a callback, and schedule its replacement."""
        tasks = [task for task in self._workers if self._may_be_cancelled(task)]
        if tasks and self.rng.random() < 0.8:
            self.rng.choice(tasks).cancel()
        elif self._scheduled:
            number = self.rng.choice(list(self._scheduled))
            handle, callback, arguments = self._scheduled.pop(number)
            handle.cancel()
            self.soon(callback, *arguments)

    def _may_be_cancelled(self, task: asyncio.Task[None]) -> bool:
        """asyncio loses data received for a task that is cancelled before it resumes; we do not."""
        if not self.is_oracle:
            return True
        waiter = getattr(task, "_fut_waiter", None)
        return waiter is not None and not waiter.done()

    def _spin(self) -> None:
        end = time.perf_counter() + self.rng.random() * _SPIN_SECONDS
        while time.perf_counter() < end:
            pass

    def _alarmed(self, _number: int, frame: FrameType | None) -> None:
        """An asynchronous signal: it interrupts a wait, or code that holds no data."""
        if not self._armed or self.left <= 0:
            return
        if frame is not None and _may_interrupt(frame):
            self.left -= 1
            self.thrown += 1
            signal.setitimer(signal.ITIMER_REAL, self.rng.random() * _ALARM_SECONDS + 1e-6)
            raise KeyboardInterrupt
        signal.setitimer(signal.ITIMER_REAL, _ALARM_AGAIN_SECONDS)

    # --- the run ----------------------------------------------------------------------------------

    def execute(self, parts: list[Callable[[Run], object]]) -> None:
        """Run the parts until all are done; `faults` lists what was wrong."""
        self.loop.set_exception_handler(self._reported)
        with self._watched():
            for part in parts:
                part(self)
            limit = self.loop.call_later(PATIENCE_SECONDS, self._stalled)
            self._drive()
            self._armed = False
            limit.cancel()
            self._end()
            gc.collect()
        # The loop's own descriptors are closed as well.
        left = {
            fd: name
            for fd, name in support.open_descriptors().items()
            if fd not in self._descriptors
        }
        self.check(not left, f"left open: {left}")

    def _drive(self) -> None:
        if self.real_signals:
            signal.setitimer(signal.ITIMER_REAL, self.rng.random() * _ALARM_SECONDS + 1e-6)
        while self.open and not self.faults:
            with contextlib.suppress(KeyboardInterrupt, SystemExit):
                self.loop.run_forever()
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _end(self) -> None:
        """Close the loop; anything still scheduled or active after all parts are done is a fault."""
        for _ in range(_LAST_TURNS):
            self.loop.call_later(0.001, self.loop.stop)
            self.loop.run_forever()
            if self.faults or not (self._scheduled or self._workers or self.transports()):
                break
        else:
            self.fault(f"left: {self._scheduled} {self._workers} {self.transports()}")
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        for transport in self.transports():
            transport.abort()
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()
        self.loop.close()

    def _stalled(self) -> None:
        self.fault(f"stalled: {list(self.open)}; {list(self._workers.values())}")

    def _reported(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not self.faults:
            self.fault(f"the loop reported {context}")

    @contextlib.contextmanager
    def _watched(self) -> Any:
        """Direct real signals to this run, and record warnings and unraisable exceptions as faults."""
        old_hook, old_alarm = sys.unraisablehook, signal.signal(signal.SIGALRM, self._alarmed)
        old_interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = lambda hook: self.faults.append(
            f"unraisable: {hook.exc_value!r} {hook.object!r}"
        )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", ResourceWarning)
                warnings.showwarning = lambda message, *_, **__: self.faults.append(
                    f"warned: {message}"
                )
                yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            sys.unraisablehook = old_hook
            signal.signal(signal.SIGALRM, old_alarm)
            signal.signal(signal.SIGINT, old_interrupt)


def _may_interrupt(frame: FrameType) -> bool:
    """User code that holds no data; the wait of asyncio's loop; the native run of ours."""
    code = frame.f_code
    if code is Run._spin.__code__ or code is selectors.DefaultSelector.select.__code__:
        return True
    is_ours = code.co_filename.endswith(os.path.join("ringloop", "_forever.py"))
    return is_ours and linecache.getline(code.co_filename, frame.f_lineno).strip() == "loop._run()"
