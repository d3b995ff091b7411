"""Fixtures of all tests: the loop under test, and the check that a test leaves nothing behind."""

from __future__ import annotations

import gc
import itertools
import logging
import signal
import sys
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from tests import support
from tests.support import sample
from tests.support.parallel import (
    pytest_pyfunc_call,
    pytest_sessionfinish,
    pytest_terminal_summary,
    pytest_testnodedown,
)
from tests.support.tls import Certificates

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine, Iterator

    from tests.support import LoopFactory

T = TypeVar("T")

_TESTS = itertools.count()

# Hooks: pytest finds them here.
__all__ = [
    "pytest_pyfunc_call",
    "pytest_sessionfinish",
    "pytest_terminal_summary",
    "pytest_testnodedown",
]

# A shell starts background jobs with SIGINT ignored, nohup with SIGHUP, and every process that
# tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def loop_log(request: pytest.FixtureRequest) -> Iterator[support.LoopLog]:
    """The errors that asyncio logged; a test that expects some takes this fixture or has the mark."""
    handler = support.LoopLog()
    logger = logging.getLogger("asyncio")
    logger.addHandler(handler)
    try:
        yield handler
    finally:
        _forget_failure()
        logger.removeHandler(handler)
    if handler.records and request.node.get_closest_marker("loop_errors") is None:
        pytest.fail("the loop logged: " + "; ".join(handler.take()))


def _forget_failure() -> None:
    """Collect what a failed test left, so that it counts for that test and not for a later one.

    Its frames are referenced by the exception, which pytest stores for debuggers (`sys.last_value`).
    """
    if hasattr(sys, "last_value"):
        for name in ("last_exc", "last_type", "last_value", "last_traceback"):
            vars(sys).pop(name, None)
        gc.collect()


@pytest.fixture(autouse=True)
def leak_check(loop_log: support.LoopLog) -> Iterator[None]:
    """Fail a test that leaves descriptors or threads open; collecting it may still log errors."""
    check = support.LeakCheck.begin()
    if next(_TESTS) % 50 == 0:
        # pytest keeps a report of each test: every collection would traverse all of them again.
        gc.freeze()
    yield
    check.assert_clean()


@pytest.fixture(params=support.LOOPS)
def loop_name(request: pytest.FixtureRequest) -> str:
    """One of "asyncio" (the oracle), "ringloop-uring", "ringloop-epoll"."""
    return support.usable_loop(request.param)


@pytest.fixture
def loop_factory(loop_name: str, leak_check: None) -> LoopFactory:
    """Create a loop of the kind under test; the caller closes it."""
    return support.loop_factory(loop_name)


@pytest.fixture
def loop(loop_factory: LoopFactory) -> Iterator[asyncio.AbstractEventLoop]:
    """A loop of the kind under test; fails a test that leaves tasks on it."""
    loop = loop_factory()
    yield loop
    if left := support.close_loop(loop):
        pytest.fail("tasks left on the loop: " + "; ".join(left))


@pytest.fixture
def run(loop: asyncio.AbstractEventLoop) -> Callable[[Coroutine[Any, Any, T]], T]:
    """Run a coroutine on the loop under test to its end."""
    return loop.run_until_complete


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates trusted only by the tests of this run."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(params=["direct", "bio"])
def tls_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """One of the two engines of our TLS; `test_tls_*` run with each."""
    name: str = request.param
    # If libssl is not accessible there is one engine, and "auto" selects it.
    monkeypatch.setenv("RINGLOOP_TLS", "auto" if name == "direct" else name)
    return name


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the oracle once, as it has one engine only, and in CI this interpreter's part."""
    items[:] = [item for item in items if not _is_left_out(item)]


def _is_left_out(item: pytest.Item) -> bool:
    arguments = getattr(getattr(item, "callspec", None), "params", {})
    loop = arguments.get("loop_name")
    if support.SAMPLE and not sample.contains(support.SAMPLE, item.nodeid, loop):
        return True
    return loop == support.ORACLE and arguments.get("tls_engine") == "bio"


def pytest_collection_finish() -> None:
    """Hide everything imported so far from the collector, which runs twice per test."""
    gc.collect()
    gc.freeze()
