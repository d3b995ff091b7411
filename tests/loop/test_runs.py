"""Consecutive and nested runs: `asyncio.run`, runners, policies, factories."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import subprocess
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import Factory, ask, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from tests.support import LoopFactory

    Run = Callable[[Coroutine[Any, Any, Any]], Any]


async def echo_once() -> bytes:
    async with serving(Factory()) as (_, address):
        return await ask(address)


def run_once(loop_factory: LoopFactory, coroutine: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(coroutine)


def test_a_thousand_runs_leave_nothing(loop_factory: LoopFactory) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(1000, print)
        loop.call_soon(len, "")
        await asyncio.sleep(0)

    def round_of_runs(count: int) -> None:
        for _ in range(count):
            run_once(loop_factory, main())

    round_of_runs(20)
    gc.collect()
    descriptors = len(support.open_descriptors())
    for _ in support.until_memory_stays(4 << 20):
        round_of_runs(1000)
        gc.collect()
        assert len(support.open_descriptors()) == descriptors


def test_runs_with_connections_leave_nothing(loop_factory: LoopFactory) -> None:
    for _ in range(10):
        assert run_once(loop_factory, echo_once()) == b"ping"
    gc.collect()
    descriptors = len(support.open_descriptors())
    for _ in range(20):
        assert run_once(loop_factory, echo_once()) == b"ping"
    gc.collect()
    assert len(support.open_descriptors()) == descriptors


def test_one_loop_runs_a_thousand_times(loop: Any) -> None:
    ran = 0

    async def main() -> None:
        nonlocal ran
        ran += 1
        await asyncio.sleep(0)

    for _ in range(1000):
        loop.run_until_complete(main())
    assert ran == 1000


def test_runner_keeps_its_loop_and_context_between_runs(loop_factory: LoopFactory) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        loop = runner.get_loop()

        async def which() -> asyncio.AbstractEventLoop:
            return asyncio.get_running_loop()

        assert [runner.run(which()) for _ in range(3)] == [loop] * 3
        assert runner.run(echo_once()) == b"ping"

        async def inside() -> None:
            other = which()
            try:
                runner.run(other)
            finally:
                other.close()

        with pytest.raises(RuntimeError, match="cannot be called from a running event loop"):
            runner.run(inside())
    assert loop.is_closed()
    other = which()
    with pytest.raises(RuntimeError, match="Runner is closed"):
        runner.run(other)
    other.close()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="loop_factory is new in 3.12")
def test_run_accepts_a_loop_factory(loop_factory: LoopFactory) -> None:
    async def main() -> type:
        return type(asyncio.get_running_loop())

    arguments: Any = {"loop_factory": loop_factory}
    made = loop_factory()
    assert asyncio.run(main(), **arguments) is type(made)
    made.close()


def test_end_of_a_run_cancels_remaining_tasks(loop_factory: LoopFactory) -> None:
    ended: list[str] = []

    async def linger() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append("cancelled")

    async def generate() -> Any:
        try:
            while True:
                yield 1
        finally:
            await asyncio.sleep(0)
            ended.append("generator closed")

    async def main() -> None:
        asyncio.get_running_loop().lingering = asyncio.ensure_future(linger())  # type: ignore[attr-defined]
        kept.append(generate())
        await anext(kept[0])

    kept: list[Any] = []
    run_once(loop_factory, main())
    assert sorted(ended) == ["cancelled", "generator closed"]


@pytest.mark.one_thread("looks at the executor's threads, which the other threads have too")
@pytest.mark.parametrize("used", [False, True])
def test_shutdown_of_the_default_executor(loop: Any, run: Run, used: bool) -> None:
    if used:
        assert run(loop.run_in_executor(None, threading.get_ident)) != threading.get_ident()
    run(loop.shutdown_default_executor())
    run(loop.shutdown_default_executor())
    with pytest.raises(RuntimeError, match="Executor shutdown has been called"):
        loop.run_in_executor(None, print)
    assert not [t for t in threading.enumerate() if t.name.startswith("asyncio_")]


@pytest.mark.one_thread("looks at the executor's threads, which the other threads have too")
@pytest.mark.skipif(sys.version_info < (3, 13), reason="3.12 waits for the threads all the same")
def test_shutdown_of_a_stuck_executor_times_out(loop: Any, run: Run) -> None:
    release = threading.Event()

    async def main() -> None:
        stuck = loop.run_in_executor(None, release.wait)
        try:
            with pytest.warns(RuntimeWarning, match="The executor did not"):
                await loop.shutdown_default_executor(timeout=0.01)
        finally:
            release.set()
        await stuck

    run(main())


def test_only_thread_pools_are_default_executors(loop: Any) -> None:
    with pytest.raises(TypeError, match="executor must be ThreadPoolExecutor instance"):
        loop.set_default_executor(object())
    assert loop._default_executor is None


def test_asyncgens_after_shutdown_are_reported(loop: Any, run: Run) -> None:
    async def generate() -> Any:
        yield 1

    async def main() -> None:
        await loop.shutdown_asyncgens()
        with pytest.warns(ResourceWarning, match="was scheduled after loop.shutdown_asyncgens"):
            async for _ in generate():
                pass

    run(main())


# --- nested runs ----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_run_inside_a_run_is_refused(loop_factory: LoopFactory, run: Run) -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="cannot be called from a running event loop"):
            asyncio.run(echo_once())
        with (
            contextlib.closing(loop_factory()) as other,
            pytest.raises(RuntimeError, match="another loop is running"),
        ):
            other.run_until_complete(echo_once())

    run(main())


def test_stop_before_and_during_a_run(loop: Any) -> None:
    order: list[int] = []
    loop.stop()
    loop.call_soon(order.append, 1)
    loop.run_forever()
    assert order == [1], "a stop before the run lets one pass through"
    loop.call_soon(loop.stop)
    loop.call_soon(order.append, 2)
    loop.call_soon(loop.call_soon, order.append, 3)
    loop.run_forever()
    assert order == [1, 2]
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert order == [1, 2, 3]


def test_stopped_run_until_complete_raises(loop: Any) -> None:
    future = loop.create_future()
    loop.call_soon(loop.stop)
    with pytest.raises(RuntimeError, match=r"Event loop stopped before Future completed\."):
        loop.run_until_complete(future)
    future.set_result(3)
    assert loop.run_until_complete(future) == 3


# --- policies -------------------------------------------------------------------------------------


@pytest.fixture
def policy_restored() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        before = asyncio.get_event_loop_policy()
        yield
        asyncio.set_event_loop_policy(before)


@pytest.mark.usefixtures("policy_restored")
def test_installed_policy_makes_our_loops() -> None:
    import ringloop

    ringloop.install()

    async def main() -> type:
        return type(asyncio.get_running_loop())

    assert asyncio.run(main()) is ringloop.Loop
    loop = asyncio.new_event_loop()
    assert type(loop) is ringloop.Loop
    asyncio.set_event_loop(loop)
    assert asyncio.get_event_loop_policy().get_event_loop() is loop
    asyncio.set_event_loop(None)
    loop.close()


@pytest.mark.parametrize("driver", support.DRIVERS)
def test_ways_to_run(driver: Any) -> None:
    import ringloop

    support.usable_loop(f"ringloop-{driver}")

    async def main() -> tuple[str | None, bool]:
        loop: Any = asyncio.get_running_loop()
        return loop.driver, loop.get_debug()

    assert ringloop.run(main(), driver=driver, debug=True) == (driver, True)
    factory = functools.partial(ringloop.Loop, driver=driver)
    assert run_once(factory, main()) == (driver, False)
    assert ringloop.run(main(), loop_factory=factory, debug=True) == (driver, True)
    with pytest.raises(ValueError, match="driver and loop_factory exclude each other"):
        ringloop.run(main(), loop_factory=factory, driver=driver)
    for loop in (ringloop.new_event_loop(), ringloop.new_event_loop(driver=driver)):
        assert isinstance(loop, ringloop.Loop)
        loop.close()
    assert loop.driver == driver


@pytest.mark.parametrize("driver", support.DRIVERS)
def test_repr_names_the_loop_and_its_driver(driver: Any) -> None:
    import ringloop

    class Mine(ringloop.Loop):
        pass

    support.usable_loop(f"ringloop-{driver}")
    for kind, name in ((ringloop.Loop, "ringloop.Loop"), (Mine, "Mine(ringloop.Loop)")):
        loop = kind(driver=driver)
        reason = f"reason={loop.driver_reason!r}"
        assert repr(loop) == (
            f"<{name} driver={driver} running=False closed=False debug=False {reason}>"
        )
        loop.close()
        assert repr(loop) == (
            f"<{name} driver={driver} running=False closed=True debug=False {reason}>"
        )


# What 3.16 no longer has, removed before the package is imported.
WITHOUT_POLICIES = """
import asyncio
from asyncio import events, unix_events
events.set_event_loop = lambda loop: None
for module in (asyncio, events, unix_events):
    for name in [name for name in vars(module) if "olicy" in name]:
        delattr(module, name)
import ringloop
from ringloop import *

async def main():
    return type(asyncio.get_running_loop()).__name__

assert ringloop.run(main()) == "Loop"
assert not hasattr(ringloop, "EventLoopPolicy")
try:
    ringloop.EventLoopPolicy
except AttributeError as error:
    assert "loop_factory=ringloop.new_event_loop" in str(error), error
else:
    raise AssertionError("there is no policy")
"""


def test_a_python_without_policies() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT_POLICIES],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_unknown_attribute_of_the_package() -> None:
    import ringloop

    with pytest.raises(AttributeError, match="module 'ringloop' has no attribute 'nonsense'"):
        ringloop.nonsense  # noqa: B018
    assert ringloop.EventLoopPolicy is ringloop.EventLoopPolicy


def test_run_inside_of_a_loop_is_refused_at_once() -> None:
    """It said of its own clean-up that another loop runs, and left coroutines that never ran."""
    import ringloop

    async def main() -> None:
        inner = asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="cannot be called from a running event loop"):
            ringloop.run(inner)
        inner.close()

    ringloop.run(main())


def test_run_of_what_is_no_coroutine() -> None:
    import ringloop

    wrong: Any = 5
    with pytest.raises(ValueError, match="exclude each other"):
        ringloop.run(wrong, driver="epoll", loop_factory=ringloop.Loop)
