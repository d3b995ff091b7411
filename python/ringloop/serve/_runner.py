"""A server on its own loop, and its reactions to signals."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable
from typing import TypeAlias

from ringloop._output import tell
from ringloop._workers import is_cut_off
from ringloop.serve._failures import log
from ringloop.serve._server import Server, StartupError

__all__ = ["CUT_OFF", "NOT_STARTED", "SIGNALS", "LoopFactory", "Runner"]

CUT_OFF = 1
"""The exit status if requests were cut off, or an address or a certificate cannot be used."""
NOT_STARTED = 3
"""The exit status if the application did not start, as with uvicorn."""

LoopFactory: TypeAlias = Callable[[], asyncio.AbstractEventLoop]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Runner:
    """Runs a server to its end, in any thread."""

    def __init__(self, make: Callable[[], Server], loop_factory: LoopFactory) -> None:
        self._make = make
        self._loop_factory = loop_factory
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: Server | None = None
        self._asked = 0
        self._lock = threading.Lock()

    def run(self, *, signals: tuple[int, ...] = (), lifeline: int | None = None) -> int:
        """Serve to the end; return the exit status.

        `signals` are handled by the loop, which the main thread may. `lifeline`: as
        `_supervisor.Unit.start` has it.
        """
        try:
            with asyncio.Runner(loop_factory=self._loop_factory) as runner:
                return runner.run(self._main(signals, lifeline))
        except StartupError as error:
            log.error("%s", error)
            return NOT_STARTED
        except (OSError, ValueError) as error:
            tell(f"ringloop serve: {error}\n")
            return CUT_OFF

    async def _main(self, signals: tuple[int, ...], lifeline: int | None) -> int:
        loop = asyncio.get_running_loop()
        with self._lock:
            self._loop = loop
        for number in signals:
            # A service manager may signal a worker, which gets the supervisor's signal too.
            handle = self._handle if lifeline is None else self._handle_once
            loop.add_signal_handler(number, handle, number)
        if lifeline is not None:
            loop.add_reader(lifeline, self._pulled, loop, lifeline)
        server = self._server = self._make()
        for _ in range(self._asked):
            server.shut_down()
        await server.start()
        try:
            await server.wait_closed()
        finally:
            if lifeline is not None:
                loop.remove_reader(lifeline)
        return CUT_OFF if self._asked > 1 else 0

    def tell(self, number: int) -> None:
        """Forward a signal, from any thread."""
        with self._lock:
            loop = self._loop
            if loop is None:
                self._asked += number != signal.SIGHUP
                return
        # Closed meanwhile: it has ended.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._handle, number)

    def _handle(self, number: int) -> None:
        if number == signal.SIGHUP:
            if self._server is not None:
                self._server.reload_certificates()
            return
        self._asked += 1
        if self._server is not None:
            self._server.shut_down()

    def _handle_once(self, number: int) -> None:
        if number == signal.SIGHUP or not self._asked:
            self._handle(number)

    def _pulled(self, loop: asyncio.AbstractEventLoop, lifeline: int) -> None:
        """End: the supervisor is gone, or has had its second signal."""
        loop.remove_reader(lifeline)
        self._handle_once(signal.SIGTERM)
        if is_cut_off(lifeline):
            self._handle(signal.SIGTERM)
