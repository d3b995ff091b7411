"""How long a loop polls for events before it sleeps.

Owns: the reading of `busy_polling=` and of `RINGLOOP_BUSY_POLLING`. Called by: `_loop`. The engine
polls, and learns from its waits whether that pays (docs/decisions/0017).
"""

from __future__ import annotations

import os

_VARIABLE = "RINGLOOP_BUSY_POLLING"
# Beyond that the time of waking does not count, and the loop looks for so long a few times before it has
# learnt to sleep.
SECONDS_MAX = 0.01


def span_ns(seconds: float | None) -> int:
    """Return the longest polling time in nanoseconds, 0 for none; None leaves it to the environment."""
    name, given = "busy_polling", seconds
    if given is None:
        name, text = _VARIABLE, os.environ.get(_VARIABLE) or "0"
        try:
            given = float(text)
        except ValueError:
            raise ValueError(f"{name} must be a number of seconds, not {text!r}") from None
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise TypeError(f"{name} must be a number of seconds, not {type(given).__name__}")
    if not 0 <= given <= SECONDS_MAX:
        raise ValueError(f"{name} must be between 0 and {SECONDS_MAX} seconds, not {given!r}")
    return round(given * 1e9)
