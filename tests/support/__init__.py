"""What the tests share: the loops under test, waiting for a state, and the leak check.

Used by `conftest.py` and by the tests; contains nothing specific to one topic. It never sleeps a
fixed time: every wait names its condition and fails when that does not become true.

Programs that the tests start import this module too: pytest, which takes longer to import than ringloop,
is imported only where a test is skipped or fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import gc
import logging
import os
import secrets
import socket
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator
    from typing import NoReturn

    LoopFactory = Callable[[], asyncio.AbstractEventLoop]

T = TypeVar("T")

ORACLE = "asyncio"
DRIVERS = ("uring", "epoll")
# The oracle first: a test that fails there is wrong.
# RINGLOOP_TEST_LOOPS="asyncio ringloop-epoll" narrows the choice.
LOOPS = tuple(
    os.environ.get("RINGLOOP_TEST_LOOPS", "").split()
    or [ORACLE, *(f"ringloop-{driver}" for driver in DRIVERS)]
)
# Runs the part of the tests that `sample.py` gives to the interpreter of this name.
SAMPLE = os.environ.get("RINGLOOP_TEST_SAMPLE")
# Bytes of the large transfers; `make test` sets 1 GiB.
TEST_BYTES = int(os.environ.get("RINGLOOP_TEST_BYTES", str(16 << 20)))

_POLL_SECONDS = 0.002
# How long to wait for a condition. Only failures wait that long: on a machine that tests several
# interpreters at once a thread, a child or a whole process may not run for seconds.
PATIENCE_SECONDS = 40.0


def fail(message: str) -> NoReturn:
    """Fail the test."""
    import pytest

    pytest.fail(message)


def skip(reason: str) -> NoReturn:
    """Skip the test."""
    import pytest

    pytest.skip(reason)


def loop_factory(name: str) -> LoopFactory:
    """Return the factory of the loop called `name`, one of `LOOPS`."""
    if name == ORACLE:
        return asyncio.SelectorEventLoop
    import ringloop

    driver: Any = name.removeprefix("ringloop-")
    return functools.partial(ringloop.Loop, driver=driver)


@functools.cache
def refusal(name: str) -> str | None:
    """Say why this machine cannot run the loop called `name`; None if it can.

    Only the ring may be refused, and not on CI: a missing ring would pass for a tested one there.
    """
    if name != "ringloop-uring":
        return None
    try:
        loop_factory(name)().close()
    except OSError as error:
        if os.environ.get("CI") and os.environ.get("RINGLOOP_ALLOW_NO_URING") != "1":
            raise
        return str(error)
    return None


def usable_loop(name: str) -> str:
    """Return `name`, or skip the test with the reason."""
    if reason := refusal(name):
        skip(reason)
    return name


async def wait_until(
    condition: Callable[[], object], what: str = "the condition", timeout: float = PATIENCE_SECONDS
) -> None:
    """Let the loop run until `condition()` is true; fail after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            fail(f"{what} did not come within {timeout} s")
        await asyncio.sleep(_POLL_SECONDS)


def wait_until_blocking(
    condition: Callable[[], object], what: str = "the condition", timeout: float = PATIENCE_SECONDS
) -> None:
    """Like `wait_until`, for threads without a loop."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            fail(f"{what} did not come within {timeout} s")
        time.sleep(_POLL_SECONDS)


async def within(awaitable: Awaitable[T], timeout: float = PATIENCE_SECONDS) -> T:
    """Await with a deadline, so that a lost wake-up is a failure and not a hang."""
    return await asyncio.wait_for(awaitable, timeout)


@contextlib.contextmanager
def alone_on_this_machine(what: str) -> Iterator[None]:
    """Wait for tests of other interpreters that use the same machine resource, such as a port."""
    with open(Path(tempfile.gettempdir(), f"ringloop-tests-{what}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


async def while_scheduled(attempt: Callable[[], Awaitable[None]], stall_seconds: float) -> None:
    """Await `attempt()`; retry if it fails and the loop was late by `stall_seconds` in total.

    For guarantees that hold only while the machine lets the process run, such as preventing a peer's
    timeout.
    """
    import pytest

    failure: BaseException | None = None
    for _ in range(20):
        ticker = _Ticker()
        ticking = asyncio.ensure_future(ticker.run())
        try:
            await attempt()
        except (Exception, pytest.fail.Exception) as error:
            if ticker.late_seconds() < stall_seconds:
                raise
            failure = error
        else:
            return
        finally:
            ticking.cancel()
            await asyncio.wait([ticking])
    raise AssertionError(
        f"this machine never let the loop run without being late by {stall_seconds} s"
    ) from failure


class _Ticker:
    """Sums up how late the loop returned to its timers."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._late = 0.0

    def late_seconds(self) -> float:
        now = time.monotonic()
        # A timer that waits for the end of an iteration, or of the kernel's tick, is not late.
        self._late += max(0.0, now - self._last - 2 * _POLL_SECONDS)
        self._last = now
        return self._late

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            self.late_seconds()


def free_port() -> int:
    """Find a port of 127.0.0.1 that is free for TCP and UDP, for a server that is started later.

    It is below those that the kernel chooses for others meanwhile.
    """
    while True:
        at = ("127.0.0.1", 20_000 + secrets.randbelow(10_000))
        with (
            contextlib.suppress(OSError),
            socket.create_server(at),
            socket.socket(type=socket.SOCK_DGRAM) as other,
        ):
            other.bind(at)
            return at[1]


def resident_bytes() -> int:
    """Anonymous memory of this process: its mapped files vary with what other processes do."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) << 10


def until_memory_stays(growth_bytes_max: int) -> Iterator[None]:
    """Let a `for` loop run its body until its memory grows by less, three times at most.

    A leak shows each time; the allocator's own tables and thresholds grow once.
    """
    for last in (False, False, True):
        gc.collect()
        before = resident_bytes()
        yield
        gc.collect()
        grown = resident_bytes() - before
        if grown < growth_bytes_max:
            return
        assert not last, f"{grown >> 10} KiB more, each time"


def open_descriptors() -> dict[int, str]:
    """Map each open descriptor of this process to its file."""
    found = {}
    for entry in os.listdir("/proc/self/fd"):
        try:
            found[int(entry)] = os.readlink(f"/proc/self/fd/{entry}")
        except OSError:
            continue  # the descriptor of the listing itself
    return found


def native_threads() -> set[str]:
    """Names of our threads as the kernel sees them, without its io_uring workers."""
    names = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            name = (task / "comm").read_text().strip()
        except OSError:
            continue
        if not name.startswith(("iou-wrk", "iou-sqp")):
            names.add(f"{task.name} {name}")
    return names


def doing(thread: str) -> str:
    """The kernel's state of one of `native_threads`: running, or where it waits."""
    task = Path("/proc/self/task", thread.split(maxsplit=1)[0])
    try:
        stat = (task / "stat").read_text()
        return f"{stat.rpartition(')')[2].split()[0]}, {(task / 'wchan').read_text()}"
    except OSError:
        return "gone"


def children() -> set[int]:
    """Return the child processes that have not been reaped."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            found.update(map(int, (task / "children").read_text().split()))
    return found


class LoopLog(logging.Handler):
    """The errors that a loop logged: exceptions never retrieved, tasks destroyed while pending."""

    def __init__(self) -> None:
        super().__init__(level=logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def take(self) -> list[str]:
        """Return the messages so far, and clear them."""
        messages = [record.getMessage() for record in self.records]
        self.records.clear()
        return messages


@dataclass
class LeakCheck:
    """A snapshot of the process before a test, compared with one after it."""

    descriptors: Collection[tuple[int, str]]
    threads: Collection[threading.Thread]
    native: Collection[str]
    children: Collection[int]

    @classmethod
    def begin(cls) -> LeakCheck:
        gc.collect()
        return cls(
            descriptors=set(open_descriptors().items()),
            threads=set(threading.enumerate()),
            native=native_threads(),
            children=children(),
        )

    def leaks(self) -> list[str]:
        """Name what exists now and did not before, after a garbage collection."""
        gc.collect()
        found = [
            f"descriptor {fd} -> {target}"
            for fd, target in open_descriptors().items()
            if (fd, target) not in self.descriptors
        ]
        found += [f"thread {t.name}" for t in threading.enumerate() if t not in self.threads]
        # A Python thread leaves `enumerate` slightly before the kernel removes it.
        left = native_threads() - set(self.native)
        found += [f"native thread {name} ({doing(name)})" for name in left]
        found += [f"child process {pid}" for pid in children() - set(self.children)]
        return found

    def assert_clean(self, timeout: float = PATIENCE_SECONDS) -> None:
        """Fail unless all leaks are gone within `timeout` seconds; a busy machine ends threads late."""
        deadline = time.monotonic() + timeout
        while leaks := self.leaks():
            if time.monotonic() > deadline:
                fail("leaked by this test: " + "; ".join(leaks))
            time.sleep(_POLL_SECONDS)


def close_loop(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Close `loop` the way `asyncio.run` does; return what the test left running on it."""
    if loop.is_closed():
        return []
    left = [repr(task) for task in asyncio.all_tasks(loop)]
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(_settle(loop))
    loop.close()
    return left


async def _settle(loop: asyncio.AbstractEventLoop) -> None:
    others = asyncio.all_tasks(loop) - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()
