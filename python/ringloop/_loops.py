"""The open loops of this process, for tools that inspect all of them: profiles, the watchdog, metrics.

Called by: `Loop`, when it is created and when it is closed.
"""

from __future__ import annotations

import itertools
import os
import weakref

from ringloop import _system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ringloop._loop import Loop

# By identity, with the number of the loop. Each change is one operation of the dictionary, because
# finalisers run in any thread.
_open: dict[int, tuple[int, weakref.ref[Loop]]] = {}
_numbers = itertools.count(1)
# Whether the environment's wish was looked at.
_offered: list[bool] = []


def add(loop: Loop) -> None:
    """Register a new loop until it is closed or collected."""
    key = id(loop)
    _open[key] = next(_numbers), weakref.ref(loop, lambda _: _open.pop(key, None))
    if not _offered:
        _offered.append(True)
        if os.environ.get("RINGLOOP_TOP", "") not in {"", "0"}:
            _offer()


def _offer() -> None:
    """Serve the metrics, as RINGLOOP_TOP asks for; the program runs without."""
    import logging  # noqa: PLC0415 - not before it is wanted, as the next

    from ringloop import metrics  # noqa: PLC0415

    try:
        metrics.serve()
    except (OSError, NotImplementedError) as error:
        logging.getLogger("ringloop").warning("RINGLOOP_TOP: metrics are not offered: %s", error)


def remove(loop: Loop) -> None:
    """Forget a closed loop."""
    _open.pop(id(loop), None)


def number(loop: Loop) -> int:
    """Return the number of an open loop, from 1 in each process; 0 for a closed one."""
    known = _open.get(id(loop))
    return 0 if known is None else known[0]


def opened() -> list[Loop]:
    """Return the open loops in order of creation."""
    found = [reference() for _, reference in list(_open.values())]
    return [loop for loop in found if loop is not None and not loop.is_closed()]


def running() -> list[Loop]:
    """Return the running loops, in any thread."""
    return [loop for loop in opened() if loop.is_running()]


def _forget_parent() -> None:
    """In a forked child: the parent's loops are poisoned here."""
    _open.clear()
    _offered.clear()


_system.after_fork_in_child(_forget_parent)
