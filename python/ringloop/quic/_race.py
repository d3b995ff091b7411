"""Several addresses of one server: the first handshake to complete wins (RFC 8305).

Owns: the order of attempts, and their tasks while they run. Called by: `_connect`. Never does: leave
an attempt running.
"""

from __future__ import annotations

import asyncio
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, TypeAlias

from ringloop.quic.errors import (
    ConnectError,
    ConnectionClosed,
    HandshakeTimeout,
    IdleTimeout,
    QuicError,
    Unreachable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from ringloop.quic._connection import Connection

    _Target: TypeAlias = tuple[int, Any]
    _Failures: TypeAlias = list[tuple[Any, OSError]]

__all__ = ["ATTEMPT_DELAY_SECONDS", "alternated", "first_of"]

ATTEMPT_DELAY_SECONDS = 0.25
"""Delay before the next attempt starts alongside (RFC 8305 §5)."""


def alternated(found: Iterable[_Target]) -> list[_Target]:
    """Interleave the address families, the first family first (RFC 8305 §4)."""
    targets = list(dict.fromkeys(found))
    preferred = [target for target in targets if target[0] == targets[0][0]]
    others = [target for target in targets if target[0] != targets[0][0]]
    pairs = chain.from_iterable(zip_longest(preferred, others))
    return [target for target in pairs if target is not None]


async def first_of(
    targets: Sequence[_Target],
    attempt: Callable[[_Target], Coroutine[Any, Any, Connection]],
) -> Connection:
    """Connect to the target that answers first; close the other connections.

    Errors: the most informative `OSError` of the failed attempts, which names all; any other error at
    once.
    """
    if len(targets) == 1:
        return await attempt(targets[0])
    loop = asyncio.get_running_loop()
    waiting = list(reversed(targets))
    tasks: dict[asyncio.Task[Connection], _Target] = {}
    running: set[asyncio.Task[Connection]] = set()
    failures: _Failures = []
    winner = None
    try:
        while winner is None and (waiting or running):
            if waiting:
                task = loop.create_task(attempt(waiting[-1]))
                tasks[task] = waiting.pop()
                running.add(task)
            delay = ATTEMPT_DELAY_SECONDS if waiting else None
            done, running = await asyncio.wait(
                running, timeout=delay, return_when=asyncio.FIRST_COMPLETED
            )
            winner = _winner(done, tasks, failures)
        if winner is None:
            raise _told(failures)
        return winner.result()
    finally:
        await _close(task for task in tasks if task is not winner)


def _winner(
    done: set[asyncio.Task[Connection]],
    tasks: dict[asyncio.Task[Connection], _Target],
    failures: _Failures,
) -> asyncio.Task[Connection] | None:
    winners = []
    for task in done:
        error = task.exception()
        if error is None:
            winners.append(task)
        elif isinstance(error, OSError):
            failures.append((tasks[task][1], error))
        else:
            raise error
    return min(winners, key=list(tasks).index, default=None)


async def _close(losers: Iterable[asyncio.Task[Connection]]) -> None:
    """Close established connections, and cancel the attempts."""
    losers = list(losers)
    running = [task for task in losers if not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)
    for task in losers:
        if not task.cancelled() and task.exception() is None:
            connection = task.result()
            connection.close()
            await connection.endpoint._after_close(connection)


def _told(failures: _Failures) -> Exception:
    """Return the failure of a server that answered, else the last one; its text names all addresses."""
    told = failures[-1][1]
    for _, error in failures:
        is_silence = isinstance(error, (Unreachable, HandshakeTimeout, IdleTimeout))
        if isinstance(error, ConnectionClosed) and not is_silence:
            told = error
    attempts = [(address, str(error)) for address, error in failures]
    if not isinstance(told, QuicError):
        errno, told = told.errno, ConnectError(str(told))
        told.errno = errno
    told.attempts = attempts
    return told
