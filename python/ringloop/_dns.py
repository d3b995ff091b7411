"""Name lookups: numeric addresses are resolved at once, names by a thread that is not joined.

asyncio uses the default executor, whose threads are joined by `asyncio.run` and at the interpreter's
exit; a name server that does not answer then delays both. The threads here are daemons, limited in
number and asked to end by `loop.close()`, which does not wait for them. An executor that the user has
set as the loop's default is used as in asyncio.

Called by: `Loop.getaddrinfo` and `Loop.getnameinfo`. Never does: parse an answer; the functions are
`socket.getaddrinfo` and `socket.getnameinfo`, with their results and errors.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import threading
from asyncio import base_events

TYPE_CHECKING = False
if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable
    from typing import Any

    from ringloop._loop import Loop

# Threads of one loop: as many as asyncio's default executor has.
THREADS_MAX = min(32, (os.cpu_count() or 1) + 4)


class Job:
    """A lookup and its waiter."""

    __slots__ = ("arguments", "function", "future", "loop")

    def __init__(
        self,
        loop: Loop,
        future: Future[Any],
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
    ) -> None:
        self.loop, self.future = loop, future
        self.function, self.arguments = function, arguments


class Resolver:
    """The lookup threads of one loop, started one by one as lookups wait."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        # Jobs that no thread has taken, and threads that wait for one.
        self._waiting = 0
        self._idle = 0
        self._thread_count = 0

    def submit(self, job: Job) -> None:
        """Hand it to a thread. RuntimeError if there is no thread and none can be started."""
        with self._lock:
            self._waiting += 1
            wants_thread = self._waiting > self._idle and self._thread_count < THREADS_MAX
            if wants_thread:
                self._idle += 1
                self._thread_count += 1
        self._jobs.put(job)
        if wants_thread:
            self._start_thread(job)

    def _start_thread(self, job: Job) -> None:
        thread = threading.Thread(
            target=self._work, name=f"ringloop-resolver-{self._thread_count}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            with self._lock:
                self._idle -= 1
                self._thread_count -= 1
            if self._thread_count:
                return  # one of the others will come to it
            job.future.cancel()
            raise

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            with self._lock:
                self._idle -= 1
                self._waiting -= 1
            _look_up(job)
            del job
            with self._lock:
                self._idle += 1

    def close(self) -> None:
        """Have the threads end once they are idle."""
        for _ in range(self._thread_count):
            self._jobs.put(None)
        self._thread_count = 0


def _look_up(job: Job) -> None:
    if job.future.cancelled():
        return
    answer, error = None, None
    try:
        answer = job.function(*job.arguments)
    except BaseException as raised:  # noqa: BLE001 - the awaiter of the lookup gets it
        error = raised
    with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
        job.loop._answer(_finish, job.future, answer, error)


def _finish(future: Future[Any], answer: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(answer)
    else:
        future.set_exception(error)


async def getaddrinfo(loop: Loop, host: Any, port: Any, *hints: int) -> Any:
    """Return what `socket.getaddrinfo` returns; `hints` are family, type, proto and flags."""
    # Where `BaseEventLoop` finds it, for programs that replace it there.
    function = loop._getaddrinfo_debug if loop._debug else base_events.socket.getaddrinfo  # type: ignore[attr-defined]
    arguments = (host, port, *hints)
    if is_numeric_host(host) and is_numeric_port(port):
        _check(loop)
        return function(*arguments)
    return await _in_thread(loop, function, arguments)


async def getnameinfo(loop: Loop, sockaddr: Any, flags: int) -> Any:
    """Return what `socket.getnameinfo` returns."""
    function = base_events.socket.getnameinfo  # type: ignore[attr-defined]
    numeric = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
    host = sockaddr[0] if isinstance(sockaddr, tuple) and sockaddr else ""
    if flags & numeric == numeric and is_numeric_host(host):
        _check(loop)
        return function(sockaddr, flags)
    return await _in_thread(loop, function, (sockaddr, flags))


def is_numeric_host(host: Any) -> bool:
    """Return whether no name server is needed: an address, or None for this machine."""
    if host is None:
        return True
    if isinstance(host, bytes):
        host = host.decode("latin-1")
    if not isinstance(host, str):
        return False
    address, _, zone = host.partition("%")
    family = socket.AF_INET6 if zone or ":" in address else socket.AF_INET
    try:
        socket.inet_pton(family, address)
    except (OSError, ValueError):
        return False
    return True


def is_numeric_port(port: Any) -> bool:
    """Return whether the services file need not be read."""
    if isinstance(port, (str, bytes)):
        return not port or port.isdigit()
    return port is None or isinstance(port, int)


async def _in_thread(loop: Loop, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    if loop._executor_is_given:
        return await loop.run_in_executor(None, function, *arguments)
    _check(loop)
    future = loop.create_future()
    loop._resolver.submit(Job(loop, future, function, arguments))
    return await future


def _check(loop: Loop) -> None:
    """Refuse where `run_in_executor` would: a closed loop, and one whose executor was shut down."""
    loop._check_closed()  # type: ignore[attr-defined]
    loop._check_default_executor()  # type: ignore[attr-defined]
