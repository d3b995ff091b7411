"""Names of asyncio's own loop that this one lacks, with errors that say why, or has to read only.

Called by: whoever looks for them on a loop. Never does: stand in for the queues; `hasattr` is false.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


_REMEDY = "which need asyncio's own loop: asyncio.SelectorEventLoop()"


class NativeQueue:
    """A queue or a selector: in asyncio a list that tools read and change."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, loop: Any, owner: type) -> NoReturn:
        raise AttributeError(
            f"{owner.__name__!r} object has no attribute {self._name!r}: the queues of ringloop's loop "
            f"are native, not for tools that work on them, {_REMEDY}"
        )


class ScheduledTimers:
    """asyncio's list of timers, as a tuple of this moment: Home Assistant's shutdown and tests read it.

    In order, so that the first is the earliest, as in asyncio's heap; cancelled ones are in it until the
    loop drops them. A tuple, since what a program put into a list would never run.
    """

    def __get__(self, loop: Any, owner: type) -> Any:
        return self if loop is None else loop._scheduled_timers()


class NestPatched:
    """The mark that nest_asyncio looks for before it patches a loop's class.

    It would then replace `run_forever` with one that works on the lists above. It refuses uvloop's loop
    with a `ValueError`, and so does this.
    """

    def __get__(self, loop: Any, owner: type) -> NoReturn:
        if loop is None:
            raise AttributeError(f"type object {owner.__name__!r} has no attribute '_nest_patched'")
        raise ValueError(
            f"Can't patch loop of type {owner}: its queues are native, not for tools that run a loop "
            f"inside of itself, {_REMEDY}"
        )
