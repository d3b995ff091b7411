"""Checks of arguments. Called by: `ringloop.fs`, `quic`, `h3`, `webtransport` and `serve`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["check_bools"]


def check_bools(**given: Any) -> None:
    """Raise TypeError for the first argument that is not a bool: "false" would be true."""
    for name, value in given.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be a bool, not {type(value).__name__}")
