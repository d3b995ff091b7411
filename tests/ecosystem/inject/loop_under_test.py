"""Replaces the default loop of a process with the loop under test, and counts which loops ran.

Owns: the counts of this process. Called by: `sitecustomize` at start, `outcome_plugin` once per test.
The class itself is used and not a subclass, because suites check its exact type.

The counts prove that a run used the loop under test: stock asyncio's loops are counted in the same way,
and each process writes its counts to a file when it ends.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import sys
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

# One of "asyncio", "ringloop-uring", "ringloop-epoll", "uvloop".
LOOP = "RINGLOOP_ECOSYSTEM_LOOP"
# The folder for one file of counts per process.
CENSUS = "RINGLOOP_ECOSYSTEM_CENSUS"

created: Counter[str] = Counter()
runs: Counter[str] = Counter()
_counted: list[Any] = []


def put_in_place() -> None:
    """Do what the environment asks for, if anything."""
    name = os.environ.get(LOOP)
    if name is None or _in_sub_interpreter():
        return
    import asyncio.base_events

    _count(asyncio.base_events.BaseEventLoop)
    if name == "uvloop":
        import uvloop

        _count(uvloop.Loop)
        _inject(uvloop.Loop)
    elif name != "asyncio":
        import ringloop

        _count(ringloop.Loop)
        _inject(ringloop.Loop)
    os.register_at_fork(after_in_child=_forget)
    atexit.register(_leave_counts)


def _in_sub_interpreter() -> bool:
    """Say whether this is a sub-interpreter: suites start them for work without a loop."""
    if sys.version_info < (3, 13):
        return False  # nothing in the standard library starts one
    import _interpreters

    current: Any = _interpreters.get_current()
    return bool(current != _interpreters.get_main())


def _inject(loop_class: Any) -> None:
    """Replace what `asyncio.new_event_loop`, `Runner`, the policy and direct users create."""
    import asyncio.unix_events

    for place in (asyncio, asyncio.unix_events):
        place.SelectorEventLoop = loop_class  # type: ignore[attr-defined]
        if hasattr(place, "EventLoop"):
            place.EventLoop = loop_class  # type: ignore[attr-defined]
    unix: Any = asyncio.unix_events
    policy = getattr(unix, "_DefaultEventLoopPolicy", None) or unix._UnixDefaultEventLoopPolicy
    policy._loop_factory = loop_class


def _count(loop_class: Any) -> None:
    """Count the loops of the class, when they are created and when they run."""
    make, run_forever = loop_class.__init__, loop_class.run_forever

    @functools.wraps(make)
    def counted_make(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        if _counts_as(self) is loop_class:
            created[name_of(self)] += 1

    @functools.wraps(run_forever)
    def counted_run_forever(self: Any) -> Any:
        if _counts_as(self) is loop_class:
            runs[name_of(self)] += 1
        return run_forever(self)

    loop_class.__init__ = counted_make
    loop_class.run_forever = counted_run_forever
    _counted.append(loop_class)


def _counts_as(loop: Any) -> Any:
    """Return the most derived of the counted classes: ours is a `BaseEventLoop` too."""
    return next(kind for kind in reversed(_counted) if isinstance(loop, kind))


def name_of(loop: Any) -> str:
    """Name the kind of a loop, with the driver that it reports."""
    if "ringloop" in sys.modules and isinstance(loop, sys.modules["ringloop"].Loop):
        return f"ringloop-{loop.driver}"
    if "uvloop" in sys.modules and isinstance(loop, sys.modules["uvloop"].Loop):
        return "uvloop"
    return "asyncio"


def _forget() -> None:
    created.clear()
    runs.clear()


def _leave_counts() -> None:
    folder = os.environ.get(CENSUS)
    if folder and Path(folder).is_dir() and (created or runs):
        path = Path(folder, f"{os.getpid()}-{uuid.uuid4().hex}.json")
        path.write_text(json.dumps({"created": created, "runs": runs, "argv": sys.argv}))
