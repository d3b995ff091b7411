"""Several servers at one address: processes or threads, each with a loop, that are started again.

The kernel routes datagrams by the connection id to the worker whose connection it is
(`ringloop.quic.bind_workers`). The first process keeps the sockets: what is for a worker that has
crashed waits for the next one.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import connection
from typing import TYPE_CHECKING, Any, Literal

import ringloop
from ringloop.serve._failures import log
from ringloop.serve._listen import bound
from ringloop.serve._runner import CUT_OFF, NOT_STARTED, SIGNALS, Runner
from ringloop.serve._server import Server
from ringloop.serve._settings import checked_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ringloop.serve._listen import Listeners
    from ringloop.serve._runner import LoopFactory
    from ringloop.serve._settings import Application, Settings

__all__ = ["run"]

# A worker that ends sooner has not come to serve.
_STARTED_SECONDS = 5.0
_FAILED_STARTS_MAX = 3


def run(
    application: Application | str,
    settings: Settings,
    *,
    workers: int = 1,
    workers_as: Literal["process", "thread"] | None = None,
    is_factory: bool = False,
    loop_factory: LoopFactory = ringloop.new_event_loop,
    listeners: list[Listeners] | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT, and return an exit status; for the main thread.

    The first signal ends it once requests under way have ended, the second one at once; SIGHUP
    reloads the certificates. `workers`: 1 to 256, as processes or threads; the default is threads on
    a free-threaded build, otherwise processes. Workers as processes import the application each.
    `listeners`: what `bound` has made, one a worker.

    Status: 0 after a signal; 1 where requests were cut off, an address or a certificate is not to be
    had; 3 where the application has not started.
    """
    count = checked_workers(workers)
    if count == 1:
        own = None if listeners is None else listeners[0]

        def make() -> Server:
            return Server(application, settings, is_factory=is_factory, listeners=own)

        return Runner(make, loop_factory).run(signals=SIGNALS)
    with ExitStack() as stack:
        settings = _shared(settings, stack)
        try:
            all_listeners = bound(settings, count) if listeners is None else listeners
        except OSError as error:
            sys.stderr.write(f"ringloop serve: {error}\n")
            return CUT_OFF

        def made(listeners: Listeners) -> Runner:
            def server() -> Server:
                own = listeners.again()
                return Server(application, settings, is_factory=is_factory, listeners=own)

            return Runner(server, loop_factory)

        if workers_as is None:
            workers_as = "process" if _has_lock() else "thread"
        kind = _Process if workers_as == "process" else _Thread
        return _Supervisor([kind(made, own) for own in all_listeners]).run()


def _has_lock() -> bool:
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def _shared(settings: Settings, stack: ExitStack) -> Settings:
    """Return settings by which workers know each other's tokens, sessions and resets."""
    own: dict[str, Any] = {
        "token_secret": secrets.token_bytes(32),
        "reset_secret": secrets.token_bytes(32),
    }
    if "sessions" not in settings.quic:
        folder = tempfile.TemporaryDirectory(prefix="ringloop-sessions-")
        own["sessions"] = stack.enter_context(folder)
    return dataclasses.replace(settings, quic={**own, **settings.quic})


class _Process:
    """A worker as a process, forked."""

    def __init__(self, make: Callable[[Listeners], Runner], listeners: Listeners) -> None:
        self._make = make
        self._listeners = listeners
        self._process: Any = None

    def start(self, lifeline: tuple[int, int]) -> None:
        """Start it, for the first time or again. `lifeline`: a pipe whose writing end ends with us."""
        context = multiprocessing.get_context("fork")
        self._process = context.Process(target=self._main, args=(lifeline,))
        self._process.start()

    def _main(self, lifeline: tuple[int, int]) -> None:
        signal.set_wakeup_fd(-1)
        # A terminal sends it to all processes; the first one passes it on as SIGTERM.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.close(lifeline[1])
        runner = self._make(self._listeners)
        sys.exit(runner.run(signals=(signal.SIGTERM, signal.SIGHUP), lifeline=lifeline[0]))

    @property
    def sentinel(self) -> Any:
        """What becomes readable at its end."""
        return self._process.sentinel

    def ended(self) -> int | None:
        """Return its exit status; None while it runs."""
        self._process.join(0)
        status: int | None = self._process.exitcode
        return status

    def tell(self, number: int) -> None:
        """Pass on a signal."""
        if self._process.is_alive():
            os.kill(self._process.pid, number)


class _Thread:
    """A worker as a thread."""

    def __init__(self, make: Callable[[Listeners], Runner], listeners: Listeners) -> None:
        self._make = make
        self._listeners = listeners
        self._status = NOT_STARTED

    def start(self, lifeline: tuple[int, int]) -> None:  # noqa: ARG002  # of processes
        """Start it, for the first time or again."""
        self.sentinel, end = socket.socketpair()
        self._runner = self._make(self._listeners)
        self._thread = threading.Thread(target=self._main, args=(end,))
        self._thread.start()

    def _main(self, end: socket.socket) -> None:
        self._status = NOT_STARTED
        with end:
            self._status = self._runner.run()

    def ended(self) -> int | None:
        """Return its exit status; None while it runs."""
        if self._thread.is_alive() and not connection.wait([self.sentinel], 0):
            return None
        self._thread.join()
        self.sentinel.close()
        return self._status

    def tell(self, number: int) -> None:
        """Pass on a signal."""
        self._runner.tell(number)


class _Supervisor:
    """Starts workers, passes signals on, starts again what has crashed."""

    def __init__(self, workers: list[Any]) -> None:
        self._workers = workers
        self._running: dict[Any, float] = {}
        self._signals: list[int] = []
        self._is_ending = False
        self._failed_starts = 0
        self._status = 0

    def run(self) -> int:
        """Run until all workers have ended; return the exit status."""
        lifeline = os.pipe()
        with self._handled() as woken:
            for worker in self._workers:
                self._start(worker, lifeline)
            while self._running:
                connection.wait([woken, *(worker.sentinel for worker in self._running)])
                self._pass_on(woken)
                for worker in list(self._running):
                    if (status := worker.ended()) is not None:
                        self._look_after(worker, status, lifeline)
        for end in lifeline:
            os.close(end)
        return self._status

    def _start(self, worker: Any, lifeline: tuple[int, int]) -> None:
        worker.start(lifeline)
        self._running[worker] = time.monotonic()

    def _look_after(self, worker: Any, status: int, lifeline: tuple[int, int]) -> None:
        """Start a worker that has ended again, or end all of them."""
        seconds = time.monotonic() - self._running.pop(worker)
        if self._is_ending:
            self._status = max(self._status, CUT_OFF if status else 0)
            return
        self._failed_starts = self._failed_starts + 1 if seconds < _STARTED_SECONDS else 0
        if status in {CUT_OFF, NOT_STARTED} or self._failed_starts >= _FAILED_STARTS_MAX:
            log.error("A worker has not started (status %d): all of them end", status)
            self._status = status if status > 0 else CUT_OFF
            self._end()
            return
        log.error("A worker has ended with status %d, and is started again", status)
        self._start(worker, lifeline)

    def _end(self) -> None:
        self._is_ending = True
        for worker in self._running:
            worker.tell(signal.SIGTERM)

    @contextmanager
    def _handled(self) -> Iterator[socket.socket]:
        """Collect signals; gives a socket that is readable when there are some."""
        reading, writing = socket.socketpair()
        reading.setblocking(False)
        writing.setblocking(False)
        before = {number: signal.signal(number, self._note) for number in SIGNALS}
        wakeup = signal.set_wakeup_fd(writing.fileno())
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

    def _pass_on(self, woken: socket.socket) -> None:
        with suppress(BlockingIOError):
            woken.recv(4096)
        signals, self._signals = self._signals, []
        for number in signals:
            if number == signal.SIGHUP:
                for worker in self._running:
                    worker.tell(number)
            else:
                self._end()
