"""Run one module of CPython's test suite on the loop under test, in a process started by `runner`.

`python child.py MODULE LOOP REPORT SKIP SECONDS`: LOOP is "asyncio", "ringloop" or "ringloop+fast",
with native streams; REPORT is a file that gets a line of JSON when a test starts and when it ends; SKIP
is a file of name patterns to leave out; a test that takes longer than SECONDS ends the process. Of ours
only what is tested is imported; the interpreter's own `test` package runs.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import importlib
import json
import signal
import sys
import unittest
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator

IS_WINDOWS = sys.platform == "win32"
# For the first run; `runner` allows more for repetitions.
HANG_SECONDS = 30
# The classes that choose a selector themselves; `LoopUnderTest` below replaces them.
REPLACED = {
    "SelectEventLoopTests",
    "PollEventLoopTests",
    "EPollEventLoopTests",
    "KqueueEventLoopTests",
    "ProactorEventLoopTests",
}
# What those classes test, by module; the rest of a module runs unchanged.
MIXINS: dict[str, str] = {
    "test_events": "EventLoopTestsMixin",
    "test_sendfile": "SendfileTestsBase",
    "test_sock_lowlevel": "BaseSockTestsMixin",
}
if IS_WINDOWS:
    # There the proactor loop is the default one, and these classes make one each.
    REPLACED, MIXINS = {"SelectEventLoopTests"}, {}


def inject(loop_class: Any) -> None:
    """Make `loop_class` the default loop wherever the stdlib and its tests get it from.

    The class itself and not a subclass: checks of the exact type must see the tested class.
    """
    name = "windows_events" if IS_WINDOWS else "unix_events"
    system: Any = importlib.import_module(f"asyncio.{name}")
    kind = "ProactorEventLoop" if IS_WINDOWS else "SelectorEventLoop"
    place: Any
    for place in (asyncio, system):
        setattr(place, kind, loop_class)
        if hasattr(place, "EventLoop"):
            place.EventLoop = loop_class
    policy: Any = getattr(system, "_DefaultEventLoopPolicy", None) or system.DefaultEventLoopPolicy
    policy._loop_factory = loop_class


def inject_streams() -> None:
    """Make the native classes asyncio's own, too: tests make readers by hand."""
    import ringloop
    from ringloop import _native

    ringloop.use_fast_streams()
    for place in (asyncio, asyncio.streams):
        for name in ("StreamReader", "StreamWriter", "StreamReaderProtocol"):
            setattr(place, name, getattr(_native, name))


def load(module_name: str) -> unittest.TestSuite:
    """Load a test module, with its mixin on the loop under test."""
    module = importlib.import_module(module_name)
    for name in REPLACED & vars(module).keys():
        delattr(module, name)
    if mixin_name := MIXINS.get(module_name.rpartition(".")[2]):
        mixin: Any = getattr(module, mixin_name)
        utils = importlib.import_module("test.test_asyncio.utils")

        class LoopUnderTest(mixin, utils.TestCase):  # type: ignore[misc,name-defined]
            def create_event_loop(self) -> asyncio.AbstractEventLoop:
                return asyncio.SelectorEventLoop()

        LoopUnderTest.__module__ = module_name
        LoopUnderTest.__qualname__ = "LoopUnderTest"
        module.LoopUnderTest = LoopUnderTest  # type: ignore[attr-defined]
    return unittest.defaultTestLoader.loadTestsFromModule(module)


def flatten(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    """Yield every test of a suite of suites."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from flatten(test)
        else:
            yield test


class Report(unittest.TestResult):
    """Writes results immediately, so that a crash names the test that caused it."""

    def __init__(self, out: TextIO, prefix: str, hang_seconds: int) -> None:
        super().__init__()
        self.out = out
        self.prefix = prefix
        self.hang_seconds = hang_seconds
        self.outcome = ("passed", "")

    def line(self, test: unittest.TestCase, outcome: str, detail: str = "") -> None:
        """Write one line."""
        name = test.id().removeprefix(self.prefix)
        json.dump({"test": name, "outcome": outcome, "detail": detail}, self.out)
        self.out.write("\n")
        self.out.flush()

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.outcome = ("passed", "")
        faulthandler.dump_traceback_later(self.hang_seconds, exit=True)
        self.line(test, "started")

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        faulthandler.cancel_dump_traceback_later()
        self.line(test, *self.outcome)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        super().addFailure(test, err)
        self.outcome = ("failed", self.failures[-1][1])

    def addError(self, test: Any, err: Any) -> None:
        super().addError(test, err)
        self.outcome = ("failed", self.errors[-1][1])
        if not isinstance(test, unittest.TestCase):  # a class or module whose set-up fails
            self.line(test, *self.outcome)

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.outcome = ("failed", (self.failures + self.errors)[-1][1])

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        self.outcome = ("skipped", reason)


def main(module_name: str, loop: str, report: str, skip: str, hang_seconds: str) -> None:
    """Run the module and write the report."""
    # The runner may have been started with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if loop != "asyncio":
        import ringloop

        inject(ringloop.Loop)
    if loop.endswith("+fast"):
        inject_streams()
    prefix = module_name.removesuffix(module_name.rpartition(".")[2])
    left_out = Path(skip).read_text().splitlines()
    with Path(report).open("a") as out:
        result = Report(out, prefix, int(hang_seconds))
        tests = unittest.TestSuite()
        for test in flatten(load(module_name)):
            name = test.id().removeprefix(prefix)
            if any(fnmatchcase(name, pattern) for pattern in left_out):
                result.line(test, "left out")
            else:
                tests.addTest(test)
        # The suite collects after each test; most of that would be the modules imported by now.
        gc.collect()
        gc.freeze()
        tests.run(result)


if __name__ == "__main__":
    main(*sys.argv[1:])
