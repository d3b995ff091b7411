"""Loops by name.

Owns: the list of compared loops and how each is created.
Called by: every workload, and `comparison` for the names. Sets no policy and does not patch asyncio.
"""

import asyncio
import importlib
import os
import sys

OURS_PREFIX = "ringloop-"

# Name: module and factory. The order is the order of the columns in every table.
FACTORIES: dict[str, tuple[str, str]] = {
    "asyncio": ("asyncio", "SelectorEventLoop"),
    "uvloop": ("uvloop", "new_event_loop"),
    "rloop": ("rloop", "new_event_loop"),
    "zloop": ("zloop", "new_event_loop"),
    "zuvloop": ("zuvloop", "new_event_loop"),
    "rsloop": ("rsloop", "new_event_loop"),
    "blazio": ("blazio", "new_event_loop"),
    # Not a loop: uvloop with networking of its own.
    "aiofastnet": ("aiofastnet", "loop_factory"),
    "ringloop-uring": ("ringloop", "new_event_loop"),
    "ringloop-epoll": ("ringloop", "new_event_loop"),
}


def is_ours(name: str) -> bool:
    """Tell whether a loop is this project's own (the others are its peers)."""
    return name.startswith(OURS_PREFIX)


def new_loop(name: str) -> asyncio.AbstractEventLoop:
    """Create the loop called `name`, with debug mode off.

    Our own loop gets its driver from the environment, before it is imported; a driver requested by
    name is never replaced by the other one.
    """
    if is_ours(name):
        os.environ["RINGLOOP_DRIVER"] = name.removeprefix(OURS_PREFIX)
    module, factory = FACTORIES[name]
    made = getattr(importlib.import_module(module), factory)
    if name == "aiofastnet":
        made = made(importlib.import_module("uvloop").new_event_loop)
    loop: asyncio.AbstractEventLoop = made()
    if loop.get_debug():
        sys.exit("the loop is in debug mode: unset PYTHONASYNCIODEBUG and do not use -X dev")
    return loop


def pin_to_cpu(cpu: int | None) -> None:
    """Pin this process, and the threads it will start, to one CPU."""
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
