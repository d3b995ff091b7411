"""Priorities of requests (RFC 9218)."""

from __future__ import annotations

from typing import NamedTuple

from ringloop._arguments import check_bools

__all__ = ["Priority"]

_URGENCY_MAX = 7


class Priority(NamedTuple):
    """The priority of a response (RFC 9218); `str()` makes the value of the `priority` field."""

    urgency: int = 3
    """0 (the most urgent) to 7."""
    incremental: bool = False
    """Whether the client can use parts of the response as they arrive."""

    def __str__(self) -> str:
        if self.urgency not in range(_URGENCY_MAX + 1):
            raise ValueError(f"urgency is {self.urgency}: give 0 to {_URGENCY_MAX}")
        check_bools(incremental=self.incremental)
        return f"u={self.urgency}, i" if self.incremental else f"u={self.urgency}"
