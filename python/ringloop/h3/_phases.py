"""The phases of a request that may have time-outs of their own.

Owns: the error that names the phase. Called by: `_body`, `_pool`. Never does: anything without a
time-out.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["NO_TIMEOUTS", "Phase", "PhaseTimeout", "Timeouts"]


class PhaseTimeout(TimeoutError):  # noqa: N818
    """A phase of a request took too long."""

    def __init__(self, phase: str) -> None:
        self.phase = phase
        super().__init__(f"the time-out of the phase '{phase}' is over")


class Timeouts(NamedTuple):
    """Seconds that each phase may take; None: no limit."""

    connect: float | None = None
    """Until there is a connection."""
    pool: float | None = None
    """Until the server allows another request on it."""
    write: float | None = None
    """Until there is room for a piece of the body."""
    read: float | None = None
    """Until a response, or more of it, has arrived."""


NO_TIMEOUTS = Timeouts()


class Phase:
    """A context for a phase: its time-out is a `PhaseTimeout`."""

    def __init__(self, name: str, seconds: float | None) -> None:
        self._name = name
        self._timeout = None if seconds is None else asyncio.timeout(seconds)
        self._is_open = True

    async def __aenter__(self) -> Self:
        if self._timeout is not None:
            await self._timeout.__aenter__()
        return self

    def hold(self, until: asyncio.Task[None]) -> None:
        """Have the time-out begin once a task is done."""
        if self._timeout is None or (end := self._timeout.when()) is None:
            return
        loop = asyncio.get_running_loop()
        seconds = end - loop.time()
        self._timeout.reschedule(None)
        until.add_done_callback(lambda _: self._resume(loop.time() + seconds))

    def _resume(self, end: float) -> None:
        if self._is_open and self._timeout is not None:
            self._timeout.reschedule(end)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_open = False
        if self._timeout is None:
            return
        try:
            await self._timeout.__aexit__(kind, error, traceback)
        except TimeoutError:
            raise PhaseTimeout(self._name) from error
