"""Starts workers, restarts crashed ones, forwards signals, kills any that do not end.

Owns: the state of each worker, as the supervisor sees it. Called by: `_workers.run_workers`,
`python -m ringloop run --workers` for programs, and `ringloop.serve`. Runs in the main thread,
without a loop.

```text
            ┌── crashed: after a delay ───────────┐
            ▼                                     │
  start ─▶ RUNNING ── crashed ─▶ WAITING ─────────┘
            │  │
            │  └── returned ─▶ OVER
            └── a signal ─▶ asked to end ─▶ OVER, by itself or killed
```
"""

from __future__ import annotations

import contextlib
import enum
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from multiprocessing import connection
from typing import TYPE_CHECKING, Any, Protocol

from ringloop._workers import CRASHED, ENDED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

logger = logging.getLogger("ringloop.workers")

# A worker that fails sooner has not come to work.
_STARTED_SECONDS = 5.0
_DELAY_MIN = 0.1
_DELAY_MAX = 10.0
_FAILED_STARTS_MAX = 10
_WAIT_SECONDS_MAX = 3600.0
# What a worker gets between being cut off and being killed.
_KILL_SECONDS = 2.0
_ENDING = (signal.SIGTERM, signal.SIGINT)


class Unit(Protocol):
    """A worker as a thread or a process."""

    @property
    def number(self) -> int:
        """The worker's number."""

    def start(self, lifeline: tuple[int, int]) -> None:
        """Start it, for the first time or again.

        `lifeline`: a pipe that is never read. Its writer ends with us, and a byte in it tells workers to
        end at once: many tools signal a whole group, so two SIGTERMs alone do not mean that.
        """

    @property
    def sentinel(self) -> Any:
        """A descriptor that becomes readable at its end."""

    def ended(self) -> int | None:
        """Return its status; None while it runs."""

    def tell(self, number: int) -> None:
        """Forward a signal; SIGTERM asks it to end."""

    def cut_off(self) -> None:
        """Have it end at once, if the lifeline does not say so."""

    def kill(self) -> None:
        """Kill it, if that is possible."""


class Body(Protocol):
    """What a unit runs."""

    number: int

    def begin(self) -> None:
        """Prepare for a start."""

    def run(self, *, in_process: bool = False, lifeline: int | None = None) -> int:
        """Run to the end; return the status."""

    def tell(self, number: int) -> None:
        """Act on a signal, from another thread; like `Unit.tell`."""

    def cut_off(self) -> None:
        """Cancel it, from another thread."""


def kind_of(kind: str | None, name: str = "kind") -> Callable[..., Unit]:
    """Return the class of units; ValueError, with the parameter's name, for another kind."""
    if kind is None:
        is_locked: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
        kind = "process" if is_locked() else "thread"
    if kind == "process":
        return ProcessUnit
    if kind == "thread":
        return ThreadUnit
    raise ValueError(f"{name} is {kind!r}: give 'thread' or 'process', or None for what fits")


@contextlib.contextmanager
def _signals_blocked(numbers: tuple[int, ...]) -> Iterator[None]:
    """Block signals while a process is forked, which unblocks them once their handlers are its own.

    One that came before would run the copy of the supervisor's handler, and be lost.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class ProcessUnit:
    """A worker as a process, forked.

    `passed_on`: signals apart from SIGTERM that it handles; until it does, it ignores them.
    """

    def __init__(self, body: Body, passed_on: tuple[int, ...] = ()) -> None:
        self._body = body
        self._passed_on = passed_on
        self.number = body.number
        self._process: Any = None

    def start(self, lifeline: tuple[int, int]) -> None:
        """Fork it."""
        self._body.begin()
        context = multiprocessing.get_context("fork")
        self._process = context.Process(
            target=self._main, args=(lifeline,), name=f"worker-{self.number}"
        )
        with _signals_blocked((*_ENDING, *self._passed_on)):
            self._process.start()

    def _main(self, lifeline: tuple[int, int]) -> None:
        signal.set_wakeup_fd(-1)
        # A terminal sends it to all processes; the supervisor passes it on as SIGTERM.
        for number in (signal.SIGINT, *self._passed_on):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (*_ENDING, *self._passed_on))
        os.close(lifeline[1])
        sys.exit(self._body.run(in_process=True, lifeline=lifeline[0]))

    @property
    def sentinel(self) -> Any:
        """A descriptor that becomes readable at its end."""
        return self._process.sentinel

    def ended(self) -> int | None:
        """Return its status; a number below 0 is the signal that killed it."""
        self._process.join(0)
        status: int | None = self._process.exitcode
        return status

    def tell(self, number: int) -> None:
        """Send it the signal."""
        if self._process.is_alive():
            os.kill(self._process.pid, number)

    def cut_off(self) -> None:
        """Nothing: the lifeline says it."""

    def kill(self) -> None:
        """Send SIGKILL."""
        self.tell(signal.SIGKILL)


class ThreadUnit:
    """A worker as a daemon thread: one that does not end does not keep the process alive."""

    def __init__(self, body: Body, passed_on: tuple[int, ...] = ()) -> None:
        del passed_on  # of processes
        self._body = body
        self.number = body.number
        self._status = CRASHED
        self._thread: threading.Thread | None = None
        self.sentinel: Any = None

    def start(self, lifeline: tuple[int, int]) -> None:  # noqa: ARG002  # of processes
        """Start the thread."""
        self._body.begin()
        self.sentinel, end = socket.socketpair()
        self._status = CRASHED
        self._thread = threading.Thread(
            target=self._main, args=(end,), name=f"worker-{self.number}", daemon=True
        )
        self._thread.start()

    def _main(self, end: socket.socket) -> None:
        with end:
            self._status = self._body.run()

    def ended(self) -> int | None:
        """Return its status; None while it runs."""
        thread = self._thread
        if thread is None or (thread.is_alive() and not connection.wait([self.sentinel], 0)):
            return None
        thread.join()
        self.sentinel.close()
        return self._status

    def tell(self, number: int) -> None:
        """Ask through the loop."""
        self._body.tell(number)

    def cut_off(self) -> None:
        """Cancel what runs."""
        self._body.cut_off()

    def kill(self) -> None:
        """Cancel what runs; a thread cannot be killed."""
        self._body.cut_off()


class _State(enum.Enum):
    RUNNING = 1
    WAITING = 2
    OVER = 3


class _Slot:
    """One worker's place, whatever was started there."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.state = _State.OVER
        self.since = 0.0
        self.failures = 0
        self.due = 0.0


class Supervisor:
    """Runs units until all have ended; `run()` returns an exit status.

    `grace`: seconds from the first signal until units are killed; may be infinite. `passed_on`: signals
    apart from SIGTERM and SIGINT that units get. `final`: statuses of a unit for which a restart would
    be useless; they end all.
    """

    def __init__(
        self,
        units: list[Any],
        grace: float,
        *,
        passed_on: tuple[int, ...] = (),
        final: tuple[int, ...] = (),
    ) -> None:
        self._slots = [_Slot(unit) for unit in units]
        self._grace = grace
        self._passed_on = passed_on
        self._final = final
        self._signals: list[int] = []
        self._status = 0
        # When workers that still run are ended by force, and left; None before any signal.
        self._kill_at: float | None = None
        self._leave_at: float | None = None

    def run(self) -> int:
        """Start all, and watch them until they end."""
        lifeline = os.pipe()
        try:
            with self._handled() as woken:
                for slot in self._slots:
                    self._start(slot, lifeline)
                while any(slot.state is not _State.OVER for slot in self._slots):
                    self._wait(woken)
                    self._obey(woken, lifeline)
                    for slot in self._slots:
                        self._look_at(slot, lifeline)
                    self._enforce()
        finally:
            for end in lifeline:
                os.close(end)
        return self._status

    def _start(self, slot: _Slot, lifeline: tuple[int, int]) -> None:
        slot.unit.start(lifeline)
        slot.state = _State.RUNNING
        slot.since = time.monotonic()

    def _wait(self, woken: socket.socket) -> None:
        now = time.monotonic()
        instants = [slot.due for slot in self._slots if slot.state is _State.WAITING]
        instants += [at for at in (self._kill_at, self._leave_at) if at is not None]
        # poll(2) has no longer timeouts than 24 days.
        timeout = min(max(0.0, min(instants) - now), _WAIT_SECONDS_MAX) if instants else None
        running = [slot.unit.sentinel for slot in self._slots if slot.state is _State.RUNNING]
        connection.wait([woken, *running], timeout)

    def _look_at(self, slot: _Slot, lifeline: tuple[int, int]) -> None:
        if slot.state is _State.WAITING and time.monotonic() >= slot.due:
            self._start_again(slot, lifeline)
        if slot.state is not _State.RUNNING or (status := slot.unit.ended()) is None:
            return
        slot.state = _State.OVER
        if self._kill_at is not None or self._leave_at is not None:
            # A process may have been ended before it could handle SIGTERM.
            is_clean = status in {ENDED, -signal.SIGTERM}
            self._status = max(self._status, 0 if is_clean else 1)
        elif status in self._final:
            logger.error(
                "worker %d cannot work (status %d): ending all workers", slot.unit.number, status
            )
            self._status = status
            self._stop_all()
        elif status != ENDED:
            how = f"status {status}" if status >= 0 else signal.Signals(-status).name
            self._start_later(slot, how)

    def _start_again(self, slot: _Slot, lifeline: tuple[int, int]) -> None:
        """Start it; a system that has no process or thread for it may have one later."""
        slot.since = time.monotonic()
        try:
            self._start(slot, lifeline)
        except (OSError, RuntimeError) as error:
            slot.state = _State.OVER
            self._start_later(slot, f"a start that failed ({error})")

    def _start_later(self, slot: _Slot, how: str) -> None:
        """Plan another start of a worker that has crashed, or end all of them."""
        lived = time.monotonic() - slot.since
        slot.failures = slot.failures + 1 if lived < _STARTED_SECONDS else 1
        if slot.failures >= _FAILED_STARTS_MAX:
            logger.error(
                "worker %d ended with %s, the %dth time in a row: ending all workers",
                *(slot.unit.number, how, slot.failures),
            )
            self._status = 1
            self._stop_all()
            return
        delay = min(_DELAY_MAX, _DELAY_MIN * 2 ** (slot.failures - 1))
        number = slot.unit.number
        logger.error("worker %d ended with %s, restarting in %g s", number, how, delay)
        slot.state = _State.WAITING
        slot.due = time.monotonic() + delay

    def _stop_all(self) -> None:
        self._kill_at = time.monotonic() + self._grace + _KILL_SECONDS
        for slot in self._slots:
            if slot.state is _State.WAITING:
                slot.state = _State.OVER
        self._tell(signal.SIGTERM)

    def _cut_off(self, lifeline: tuple[int, int]) -> None:
        """Have workers end at once, and by force if they do not."""
        soon = time.monotonic() + _KILL_SECONDS
        if self._kill_at is not None and self._kill_at > soon:
            self._kill_at = soon
            os.write(lifeline[1], b"!")
            for slot in self._slots:
                if slot.state is _State.RUNNING:
                    slot.unit.cut_off()

    def _tell(self, number: int) -> None:
        for slot in self._slots:
            if slot.state is _State.RUNNING:
                slot.unit.tell(number)

    def _obey(self, woken: socket.socket, lifeline: tuple[int, int]) -> None:
        with contextlib.suppress(BlockingIOError):
            woken.recv(4096)
        signals, self._signals = self._signals, []
        for number in signals:
            if number in self._passed_on:
                self._tell(number)
            elif self._kill_at is None and self._leave_at is None:
                self._stop_all()
            elif self._kill_at is not None:
                self._cut_off(lifeline)

    def _enforce(self) -> None:
        """End by force what has not ended in time; leave what cannot be ended."""
        now = time.monotonic()
        running = [slot for slot in self._slots if slot.state is _State.RUNNING]
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            self._leave_at = now + _KILL_SECONDS
            for slot in running:
                logger.error("worker %d did not end and is killed", slot.unit.number)
                self._status = 1
                slot.unit.kill()
        elif self._leave_at is not None and now >= self._leave_at:
            for slot in running:
                logger.error("worker %d cannot be ended and is abandoned", slot.unit.number)
                slot.state = _State.OVER

    @contextlib.contextmanager
    def _handled(self) -> Iterator[socket.socket]:
        """Collect signals; gives a socket that is readable when there are some."""
        reading, writing = socket.socketpair()
        reading.setblocking(False)
        writing.setblocking(False)
        handled = (*_ENDING, *self._passed_on)
        # First: a signal that found no descriptor would be noted without a wake-up.
        wakeup = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
        before = {number: signal.signal(number, self._note) for number in handled}
        try:
            yield reading
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            reading.close()
            writing.close()

    def _note(self, number: int, _frame: object) -> None:
        self._signals.append(number)
