"""Several servers at one address: processes or threads, each with a loop, restarted after a crash.

The kernel routes datagrams by connection id to the worker that owns the connection
(`ringloop.quic.bind_workers`). The first process keeps the sockets: data for a crashed worker waits
for its successor.
"""

from __future__ import annotations

import dataclasses
import math
import secrets
import signal
import tempfile
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal

import ringloop
from ringloop._arguments import check_bools
from ringloop._output import tell
from ringloop._supervisor import Supervisor, kind_of
from ringloop.serve._listen import bound
from ringloop.serve._runner import CUT_OFF, NOT_STARTED, SIGNALS, Runner
from ringloop.serve._server import Server
from ringloop.serve._settings import checked_workers

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringloop.serve._listen import Listeners
    from ringloop.serve._runner import LoopFactory
    from ringloop.serve._settings import Application, Settings

__all__ = ["run"]

_PASSED_ON = (signal.SIGHUP,)


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

    The first signal ends it once open requests have ended, the second one at once; SIGHUP
    reloads the certificates. `workers`: 1 to 256, as processes or threads; the default is threads on
    a free-threaded build, otherwise processes. Each worker process imports the application.
    `listeners`: the result of `bound`, one per worker.

    Status: 0 after a signal; 1 if requests were cut off, or an address or a certificate cannot be used;
    3 if the application did not start.
    """
    check_bools(is_factory=is_factory)
    count = checked_workers(workers)
    kind = kind_of(workers_as, "workers_as")
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
            tell(f"ringloop serve: {error}\n")
            return CUT_OFF

        def made(listeners: Listeners) -> Runner:
            def server() -> Server:
                own = listeners.again()
                return Server(application, settings, is_factory=is_factory, listeners=own)

            return Runner(server, loop_factory)

        bodies = [_Body(made, own, number) for number, own in enumerate(all_listeners)]
        units = [kind(body, _PASSED_ON) for body in bodies]
        # Each server ends by `graceful_seconds` itself, and its application takes its time.
        final = (CUT_OFF, NOT_STARTED)
        return Supervisor(units, math.inf, passed_on=_PASSED_ON, final=final).run()


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


class _Body:
    """One worker, for `_supervisor`: a server on a loop of its own."""

    def __init__(
        self, make: Callable[[Listeners], Runner], listeners: Listeners, number: int
    ) -> None:
        self.number = number
        self._make = make
        self._listeners = listeners
        self.begin()

    def begin(self) -> None:
        """Prepare for a start, the first or another."""
        self._runner = self._make(self._listeners)

    def run(self, *, in_process: bool = False, lifeline: int | None = None) -> int:
        """Serve to the end; return the exit status."""
        signals = (signal.SIGTERM, signal.SIGHUP) if in_process else ()
        return self._runner.run(signals=signals, lifeline=lifeline)

    def tell(self, number: int) -> None:
        """Do what a signal asks for, from another thread."""
        self._runner.tell(number)

    def cut_off(self) -> None:
        """End at once, from another thread."""
        self._runner.tell(signal.SIGTERM)
