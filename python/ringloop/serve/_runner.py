"""A server on a loop of its own, and what signals ask of it."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from typing import TypeAlias

from ringloop.serve._failures import log
from ringloop.serve._server import Server, StartupError

__all__ = ["CUT_OFF", "NOT_STARTED", "SIGNALS", "LoopFactory", "Runner"]

CUT_OFF = 1
"""The exit status of a server whose requests were cut off, or that has no address or certificate."""
NOT_STARTED = 3
"""The exit status of a server whose application has not started, as uvicorn's."""

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

    def run(self, *, signals: tuple[int, ...] = (), lifeline: int | None = None) -> int:
        """Serve to the end; return the exit status.

        `signals` are handled by the loop, which the main thread may. `lifeline`: a descriptor that
        becomes readable when the process that started this one is gone.
        """
        try:
            with asyncio.Runner(loop_factory=self._loop_factory) as runner:
                return runner.run(self._main(signals, lifeline))
        except StartupError as error:
            log.error("%s", error)
            return NOT_STARTED
        except (OSError, ValueError) as error:
            sys.stderr.write(f"ringloop serve: {error}\n")
            return CUT_OFF

    async def _main(self, signals: tuple[int, ...], lifeline: int | None) -> int:
        loop = asyncio.get_running_loop()
        self._loop = loop
        for number in signals:
            loop.add_signal_handler(number, self._handle, number)
        if lifeline is not None:
            loop.add_reader(lifeline, self._orphaned, loop, lifeline)
        server = self._make()
        await server.start()
        self._server = server
        for _ in range(self._asked):
            server.shut_down()
        try:
            await server.wait_closed()
        finally:
            if lifeline is not None:
                loop.remove_reader(lifeline)
        return CUT_OFF if self._asked > 1 else 0

    def tell(self, number: int) -> None:
        """Pass on a signal, from any thread."""
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._handle, number)
            except RuntimeError:
                # The loop is closed: it has ended.
                return

    def _handle(self, number: int) -> None:
        if number == signal.SIGHUP:
            if self._server is not None:
                self._server.reload_certificates()
            return
        self._asked += 1
        if self._server is not None:
            self._server.shut_down()

    def _orphaned(self, loop: asyncio.AbstractEventLoop, lifeline: int) -> None:
        loop.remove_reader(lifeline)
        self._handle(signal.SIGTERM)
