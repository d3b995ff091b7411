"""Reports clients that are refused or violate the protocol: callbacks, and a bounded log.

Owns: the log's budget, the program's callback. Called by: endpoints of both APIs, with their events.
Never does: count failures; native code does, see `stats()`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ringloop._native import quic as _quic
    from ringloop.quic.errors import ConnectionClosed

    _OnFailed: TypeAlias = Callable[[Any, ConnectionClosed], object]

__all__ = ["LOGGED_PER_WINDOW", "WINDOW_SECONDS", "Failures"]

WINDOW_SECONDS = 1.0
LOGGED_PER_WINDOW = 10
"""Failures logged per window, one line each; one more line counts the others.

Anyone who can reach the port can make handshakes fail, and must not be able to fill a disk.
"""
TEXT_MAX = 500
"""Characters of an error in the log, some of which the peer controls."""

_LOGGER = logging.getLogger("ringloop.quic")


class Failures:
    """Logs some of an endpoint's failed handshakes, and reports all to the program.

    A second instance logs connections closed for their peers' violations; `what` names the failure.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        callback: _OnFailed | None,
        report: Callable[[BaseException], None],
        what: str = "handshake",
    ) -> None:
        self._loop = loop
        self._what = what
        self._callback = callback
        self._report = report
        self._window: asyncio.TimerHandle | None = None
        self._left = 0
        self._unlogged = 0

    def take(self, native: _quic.Endpoint) -> bool:
        """Report handshakes that failed since the last call; return whether the callback was called."""
        failures = native.take_failures()
        for address, error in failures:
            self.log(address, error)
            if self._callback is None:
                continue
            try:
                self._callback(address, error)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as raised:  # noqa: BLE001  # it is reported
                self._report(raised)
        return self._callback is not None and bool(failures)

    def log(self, address: Any, error: ConnectionClosed) -> None:
        """Log one within the budget."""
        if self._window is None:
            self._left = LOGGED_PER_WINDOW
            self._window = self._loop.call_later(WINDOW_SECONDS, self._window_over)
        if self._left == 0:
            self._unlogged += 1
            return
        self._left -= 1
        host, port = address[:2]
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        _LOGGER.warning("the %s with %s failed: %s", self._what, where, _line(str(error)))

    def _window_over(self) -> None:
        self._window = None
        count, self._unlogged = self._unlogged, 0
        if count:
            told = ": on_handshake_failed is called for each" if self._what == "handshake" else ""
            _LOGGER.warning(
                "%d more %ss failed within %g s%s", count, self._what, WINDOW_SECONDS, told
            )

    def close(self) -> None:
        """Log the remaining count."""
        if self._window is not None:
            self._window.cancel()
            self._window_over()


def _line(text: str) -> str:
    """Reduce a text, which the peer may control, to one line of bounded length."""
    shown = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in text[:TEXT_MAX]
    )
    return f"{shown}…" if len(text) > TEXT_MAX else shown
