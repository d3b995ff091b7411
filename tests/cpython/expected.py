"""Where this loop, or this machine, differs from what CPython's own tests expect, and why.

The table is strict: a test listed here that passes, or that no longer exists, fails the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sys

BOTH = ("ringloop-uring", "ringloop-epoll")
ORACLE = ("asyncio",)


@dataclass(frozen=True)
class Difference:
    """A pattern of test names (module.Class.test) that do not pass, where, and why."""

    test: str
    reason: str
    loops: tuple[str, ...] = BOTH
    since: tuple[int, ...] = (3, 11)
    until: tuple[int, ...] = (3, 99)

    def concerns(self, loop: str, module: str, version: sys._version_info) -> bool:
        """Say whether this entry applies to a run of `module` on `loop` under CPython `version`."""
        return (
            loop in self.loops
            and self.test.startswith(module.rpartition(".")[2] + ".")
            and self.since <= version[: len(self.since)]
            and version[: len(self.until)] <= self.until
        )


DIFFERENCES: tuple[Difference, ...] = ()
