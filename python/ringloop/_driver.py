"""Which driver a loop uses, as shown to users: in its repr, and in the log if io_uring was refused."""

from __future__ import annotations

import logging
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal, TypeAlias

    from ringloop._loop import Loop

    # What `driver=` takes; "io_uring" is another name of "uring".
    Driver: TypeAlias = Literal["auto", "uring", "io_uring", "epoll"]

# What this system has, the one without a ring last.
NAMES: tuple[str, ...] = {"darwin": ("auto", "kqueue"), "win32": ("auto", "afd")}.get(
    sys.platform, ("auto", "uring", "epoll")
)

logger = logging.getLogger("ringloop")

_told: list[str] = []


def tell_refusal(loop: Loop) -> None:
    """Log why the loop does not use io_uring; once per process, since the reason does not change."""
    if not _told:
        _told.append(str(loop.driver_reason))
        logger.info("the driver is %s: %s", loop.driver, loop.driver_reason)


def describe(loop: Loop) -> str:
    """Return the repr: asyncio's, with the driver and the reason for it."""
    kind = type(loop)
    name = "ringloop.Loop"
    if kind.__module__ != "ringloop._loop":
        name = f"{kind.__name__}({name})"
    return (
        f"<{name} driver={loop.driver} running={loop.is_running()} closed={loop.is_closed()} "
        f"debug={loop.get_debug()} reason={loop.driver_reason!r}>"
    )
