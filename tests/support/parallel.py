"""Runs each test in several threads at once, each with its own loops: `RINGLOOP_TEST_THREADS=4`.

For free-threaded builds, where the threads really run in parallel; it works with the GIL too. Each
thread sets up the fixtures of this suite for itself, so it has its own loop, sockets and files; what
pytest itself provides is shared. The leak check surrounds all of them.

A test that uses process-global state cannot run this way: the log, warnings, signals, children, a
patched class. It is recognized by its fixtures, by what it, they and the helpers that they use in this
suite call, or by the mark `one_thread` with the reason. Such tests run in one thread and are counted at
the end of the run.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import inspect
import os
import threading
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import pytest

from tests import support

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

THREADS = int(os.environ.get("RINGLOOP_TEST_THREADS", "1"))

# Fixtures that use process-global state.
_OF_THE_PROCESS = {
    "caplog": "reads the process's log",
    "capfd": "reads the process's output",
    "capsys": "reads the process's output",
    "few_descriptors": "limits the process's descriptors",
    "loop_log": "reads the process's log",
    "monkeypatch": "patches what all threads use",
}
# Names in a test's code that use such state.
_CALLS = {
    "MonkeyPatch": "replaces what the process has",
    "collect": "waits for the collector, which runs in one thread at a time",
    "catch_warnings": "catches the process's warnings",
    "half_made": "catches the process's warnings",
    "dup2": "counts on the numbers of new descriptors",
    "fork": "forks",
    "get_objects": "looks at all the process's objects",
    "waitpid": "waits for the process's children",
    "set_event_loop_policy": "sets the process's policy",
    "setrlimit": "limits the process's descriptors",
    "setswitchinterval": "sets the process's switch interval",
    "add_signal_handler": "signals arrive in the main thread",
    "warns": "catches the process's warnings",
}
# Fixtures that surround all threads.
_AROUND = {"alone_with_children", "leak_check", "loop_log"}
# Modules below `tests`, and why their tests run once.
OF_ONE_THREAD = {
    "compatibility.test_matrix": "many rows look at the process, and each has its tests elsewhere",
    "loop.test_debug_mode": "reads the process's log",
    "processes.test_fork": "forks",
    "regressions.test_number_of_a_closed_socket": "counts on the numbers of new descriptors",
    "sock.test_closed": "counts on the numbers of new descriptors",
    "regressions.test_closed_while_watched": "counts what the process owns",
    "regressions.test_refused_polls": "each test refuses the calls of a thread of its own",
    "tcp.test_differential_server": "compares when the peer sees the end, which other threads delay",
    "tcp.test_differential": "compares when the peer sees the end, which other threads delay",
    "tls.test_differential": "compares when the peer sees the end, which other threads delay",
    "tls.test_differential_sides": "compares when the peer sees the end, which other threads delay",
    "streams.test_differential": "compares results, which other threads have no part in",
    "streams.test_differential_writer": "compares results, which other threads have no part in",
    "fs.test_differential": "compares results, which other threads have no part in",
    "loop.test_dns": "counts the process's threads",
    "datagrams.test_floods": "counts what the process owns",
    "fs.test_cancelled": "counts what the process owns, and closes a descriptor that a file has",
    "programs.test_closed_streams": "in processes of its own",
    "cpython.test_suite": "CPython's own tests, in processes of their own",
    "service.test_service": "drives a service in a process of its own",
    "test_harness": "tests the fixtures themselves",
    "memory.test_memory": "counts what the process owns",
    "tls.test_memory": "counts what the process owns",
    "processes.test_subinterpreters": "looks at the process's interpreters",
    "processes.test_unsupported": "in processes of its own",
    "processes.test_system": "changes the module os",
    "loop.test_refused_ring": "in processes of its own",
    "processes.test_signals": "signals arrive in the main thread",
    "processes.test_interrupts": "signals arrive in the main thread",
    "docs.test_blocks": "in processes of their own",
    "extension.test_guide": "in processes of its own",
    "extension.test_table": "in processes of its own",
    "observe.test_command": "drives programs in processes of their own",
    "reliability.test_kernels": "in processes of its own",
    "reliability.test_peers": "reads the process's log and warnings",
    "reliability.test_soak": "reads the process's log and warnings",
    "reliability.test_strain": "reads the process's log and warnings",
}

excluded: collections.Counter[str] = collections.Counter()


def reason_for_one_thread(item: pytest.Function) -> str | None:
    """Say why a test cannot run in several threads; None if it can."""
    if mark := item.get_closest_marker("one_thread"):
        if len(mark.args) != 1:
            raise pytest.UsageError(f"{item.nodeid}: mark one_thread needs its reason")
        return str(mark.args[0])
    if item.get_closest_marker("loop_errors"):
        return "reads the process's log"
    if reason := OF_ONE_THREAD.get(item.module.__name__.removeprefix("tests.")):
        return reason
    # `loop_log` surrounds every test; only tests that request it read it.
    for name in item._fixtureinfo.argnames:
        if reason := _OF_THE_PROCESS.get(name):
            return reason
    # What a decorator has wrapped, too.
    functions = [item.function, inspect.unwrap(item.function), *_own_fixtures(item)]
    names = frozenset[str]().union(*map(names_in, functions))
    return next((reason for name, reason in _CALLS.items() if name in names), None)


def _own_fixtures(item: pytest.Function) -> Iterator[FunctionType]:
    """Yield the functions of the fixtures that each thread sets up."""
    for definitions in item._fixtureinfo.name2fixturedefs.values():
        if _is_ours(definitions[-1]):
            yield inspect.unwrap(definitions[-1].func)


@functools.cache
def names_in(function: FunctionType) -> frozenset[str]:
    """Return the global and attribute names of a function and of the helpers it names in this suite."""
    names: set[str] = set()
    seen = {function}
    left = [function]
    while left:
        current = left.pop()
        own = set(_names_of_code(current.__code__))
        names |= own
        for name in own:
            helper = current.__globals__.get(name)
            if callable(helper):
                helper = inspect.unwrap(helper)
            if isinstance(helper, FunctionType) and helper not in seen and _is_of_suite(helper):
                seen.add(helper)
                left.append(helper)
    return frozenset(names)


def _names_of_code(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_of_code(constant)


def _is_of_suite(function: FunctionType) -> bool:
    return function.__module__.partition(".")[0] == "tests"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run the test in threads, unless it needs to run alone."""
    if THREADS == 1:
        return None
    if reason := reason_for_one_thread(pyfuncitem):
        excluded[reason] += 1
        return None
    _run_in_threads(pyfuncitem)
    return True


def _run_in_threads(item: pytest.Function) -> None:
    start = threading.Barrier(THREADS)
    failures: list[BaseException] = []

    def body() -> None:
        try:
            with contextlib.ExitStack() as stack:
                arguments = Arguments(item, stack).of_test()
                start.wait(support.PATIENCE_SECONDS)
                item.obj(**arguments)
        except BaseException as error:
            failures.append(error)
            start.abort()

    threads = [threading.Thread(target=body, name=f"test-{n}") for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # A broken barrier is only the consequence of another failure.
    failures.sort(key=lambda error: isinstance(error, threading.BrokenBarrierError))
    if failures:
        raise failures[0]


class Arguments:
    """The arguments of one test in one thread; its fixtures end with `stack`."""

    def __init__(self, item: pytest.Function, stack: contextlib.ExitStack) -> None:
        self.item = item
        self.stack = stack
        self.made: dict[str, Any] = {}

    def of_test(self) -> dict[str, Any]:
        return {name: self.value(name) for name in self.item._fixtureinfo.argnames}

    def value(self, name: str) -> Any:
        if name not in self.made:
            self.made[name] = self._make(name)
        return self.made[name]

    def _make(self, name: str) -> Any:
        if name == "tmp_path":
            shared: Path = self.item.funcargs[name]  # type: ignore[assignment]
            own = shared / threading.current_thread().name
            own.mkdir()
            return own
        definitions = self.item._fixtureinfo.name2fixturedefs.get(name)
        if not definitions or not _is_ours(definitions[-1]):
            return self.item.funcargs[name]
        definition: Any = definitions[-1]
        values = {
            argument: Request(self.item, name) if argument == "request" else self.value(argument)
            for argument in inspect.signature(definition.func).parameters
        }
        made = definition.func(**values)
        if inspect.isgenerator(made):
            return self.stack.enter_context(_as_context(made))
        return made


class Request:
    """The part of pytest's `request` that the suite's fixtures use."""

    def __init__(self, item: pytest.Function, fixture: str) -> None:
        callspec = getattr(item, "callspec", None)
        self.node = item
        self.param = callspec.params.get(fixture) if callspec else None


def _is_ours(definition: Any) -> bool:
    """Say whether a fixture is set up for each thread."""
    function, scope = definition.func, definition.scope
    ours: bool = function.__module__.startswith("tests.")
    return ours and scope == "function" and function.__name__ not in _AROUND


@contextlib.contextmanager
def _as_context(fixture: Iterator[Any]) -> Iterator[Any]:
    made = next(fixture)
    # A fixture is torn down even if its test failed or was skipped.
    try:
        yield made
    finally:
        next(fixture, None)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Pass the counts of an xdist worker to the process that reports."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["excluded"] = dict(excluded)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Add the counts of an xdist worker; a crashed one has none."""
    excluded.update(getattr(node, "workeroutput", {}).get("excluded", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report how many tests did not run in threads, and why."""
    if THREADS == 1:
        return
    total = sum(excluded.values())
    terminalreporter.write_line(f"in {THREADS} threads each; {total} tests ran in one thread only:")
    for reason, count in excluded.most_common():
        terminalreporter.write_line(f"  {count:4} {reason}")
