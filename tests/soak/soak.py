"""The state of a run: its loop, its random generator, what was moved, and what was wrong.

Every part of the load is a coroutine function with a `Soak` as its argument; it performs one
transaction, compares each byte, and raises what it does not expect.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
import struct
import sys
import time
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.injection.__main__ import tls_contexts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    Part = Callable[["Soak"], Awaitable[None]]

# A prime period, so that bytes of another place or of another connection differ.
PERIOD = 65_521
LENGTH_MAX = 1 << 20
_MATERIAL = random.Random(1).randbytes(PERIOD) * (LENGTH_MAX // PERIOD + 3)
# A request: its seed, the length of its body, the length of the wanted response.
HEADER = struct.Struct(">QII")
# A part that takes longer is stuck: the machine may be busy, and injected faults delay.
PART_SECONDS = 90.0
FAULTS_MAX = 40


def material(seed: int, length: int) -> bytes:
    """Return the bytes that belong to `seed`; `length` is at most `LENGTH_MAX`."""
    start = seed % PERIOD
    return _MATERIAL[start : start + length]


def waits_at(task: asyncio.Task[None]) -> str:
    """Name the functions that await each other in a task, with their lines."""
    places = []
    awaited: Any = task.get_coro()
    while (frame := getattr(awaited, "cr_frame", None)) is not None:
        places.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
        awaited = awaited.cr_await
    return " > ".join([*places, type(awaited).__name__])


class WrongBytesError(Exception):
    """Received bytes differ from the bytes that were sent."""


class CutError(EOFError):
    """The bytes are right, and ended too early without an error."""


class Soak:
    """One loop under load."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, folder: Path, seed: int, *, tolerant: bool = False
    ) -> None:
        self.loop = loop
        self.folder = folder
        self.rng = random.Random(seed)
        # In a run with injected errors any part may fail with an error; none may have wrong bytes.
        self.tolerant = tolerant
        self.server_context, self.client_context = tls_contexts(folder)
        self.authority = folder / "authority.pem"
        self.addresses: dict[str, Any] = {}
        self.done: Counter[str] = Counter()
        # Errors that a fault of the run's own brought, by part and type.
        self.told: Counter[str] = Counter()
        self.bytes_checked = 0
        self.faults: list[str] = []
        # Objects that stay open between parts.
        self.kept: dict[str, Any] = {}
        self._expected: list[re.Pattern[str]] = []
        self._disturbances = 0
        self._last_disturbance = 0.0

    def fault(self, text: str) -> None:
        """Record what must not happen."""
        if len(self.faults) < FAULTS_MAX:
            self.faults.append(text)

    def same(self, got: bytes | bytearray | memoryview, wanted: bytes, where: str) -> None:
        """Compare what was received with what was sent."""
        if got != wanted:
            got = bytes(got)
            if wanted.startswith(got):
                raise CutError(f"{where}: ended after {len(got)} of {len(wanted)} bytes")
            at = next((i for i, (a, b) in enumerate(zip(got, wanted, strict=False)) if a != b), -1)
            raise WrongBytesError(
                f"{where}: {len(got)} bytes instead of {len(wanted)}, the first wrong one at {at}"
            )
        self.bytes_checked += len(wanted)

    def length(self, most: int = 300_000) -> int:
        """Return a random length: mostly small, sometimes `most`."""
        return self.rng.choice((1, 20, 300, 300, 3000, 20_000, min(70_000, most), most))

    # --- what a fault brings ----------------------------------------------------------------------

    @contextlib.contextmanager
    def disturbing(self, *expected: str) -> Iterator[None]:
        """While descriptors are short or servers are gone, parts may fail, and log lines come."""
        self._disturbances += 1
        try:
            with self.expecting(*expected):
                yield
        finally:
            self._disturbances -= 1
            self._last_disturbance = time.monotonic()

    @contextlib.contextmanager
    def expecting(self, *lines: str) -> Iterator[None]:
        """Meanwhile lines that match one of these patterns may be logged."""
        patterns = [re.compile(one) for one in lines]
        self._expected += patterns
        try:
            yield
        finally:
            for one in patterns:
                self._expected.remove(one)

    def is_expected(self, line: str) -> bool:
        """Say whether a running fault explains a log line."""
        return self.tolerant or any(one.search(line) for one in self._expected)

    async def play(self, part: Part) -> None:
        """Run a part once; what it raises is a fault, unless a disturbance explains it."""
        name = part.__name__
        began = time.monotonic()
        task = asyncio.ensure_future(part(self))
        try:
            finished, _ = await asyncio.wait([task], timeout=PART_SECONDS)
            if not finished:
                self.fault(f"{name} is stuck after {PART_SECONDS} s at {waits_at(task)}")
                task.cancel()
                await asyncio.wait([task], timeout=5)
                return
            task.result()
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            raise
        except Exception as error:
            if self._explains(error, began):
                self.told[f"{name} {type(error).__name__}"] += 1
                # What fails at once would be tried again at once.
                await asyncio.sleep(0.02)
            else:
                notes = getattr(error, "__notes__", [])
                self.fault(" ".join([f"{name}: {type(error).__name__}: {error}", *notes]))
        else:
            self.done[name] += 1

    def _explains(self, error: Exception, began: float) -> bool:
        disturbed = self._disturbances or self._last_disturbance >= began
        if isinstance(error, WrongBytesError) or not (self.tolerant or disturbed):
            return False
        if isinstance(error, CutError):
            # Connections that are open need no descriptor, and go on.
            return self.tolerant
        return isinstance(error, (OSError, EOFError)) or type(error).__module__.startswith(
            "websockets"
        )

    @contextlib.contextmanager
    def telling(self, what: str) -> Iterator[None]:
        """Count an error that this part brings about itself; those of TLS are OSErrors."""
        try:
            yield
        except (OSError, EOFError) as error:
            self.told[f"{what} {type(error).__name__}"] += 1

    # --- what a loop reports ----------------------------------------------------------------------

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Make warnings, log lines, unraisable exceptions and reports of the loop faults."""
        old_hook, old_show = sys.unraisablehook, warnings.showwarning
        sys.unraisablehook = self._unraisable
        handler = _Lines(self)
        root = logging.getLogger()
        root.addHandler(handler)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", ResourceWarning)
                warnings.simplefilter("always", RuntimeWarning)
                warnings.showwarning = lambda message, *_, **__: self.reported(
                    f"warning: {message}"
                )
                yield
        finally:
            root.removeHandler(handler)
            sys.unraisablehook = old_hook
            warnings.showwarning = old_show

    def _unraisable(self, hook: Any) -> None:
        is_oracle = isinstance(self.loop, asyncio.SelectorEventLoop)
        if is_oracle and isinstance(hook.exc_value, BlockingIOError) and hook.object is None:
            # asyncio's pipe for signals is that of messages, and was full of these.
            self.told["full pipe of signals"] += 1
            return
        self.fault(f"unraisable: {hook.exc_value!r} {hook.object!r}")

    def reported(self, line: str) -> None:
        """Judge a line that was logged."""
        if self.is_expected(line):
            self.told[f"log: {line.splitlines()[0][:60]}"] += 1
        else:
            self.fault(f"reported: {line}")


class _Lines(logging.Handler):
    """Hands every warning and error of any logger to the run."""

    def __init__(self, soak: Soak) -> None:
        super().__init__(level=logging.WARNING)
        self._soak = soak

    def emit(self, record: logging.LogRecord) -> None:
        text = f"{record.name}: {record.getMessage()}"
        if record.exc_info and record.exc_info[1] is not None:
            text += f" {record.exc_info[1]!r}"
        self._soak.reported(text)
