"""Loops with a custom clock: `time()` overridden in a subclass, or set on the loop itself."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests import support

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Clock:
    """A clock that advances only when told to, as in simulations."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.asked = 0

    def time(self) -> float:
        self.asked += 1
        return self.now


def make_loop(name: str, **members: Any) -> Any:
    """Create a loop of the kind called `name`, of a subclass if there are `members`."""
    base: Any = asyncio.SelectorEventLoop
    keywords = {}
    if name != support.ORACLE:
        import ringloop

        base = ringloop.Loop
        keywords["driver"] = name.removeprefix("ringloop-")
    return (type("Subclass", (base,), members) if members else base)(**keywords)


@pytest.fixture(params=["subclass", "instance"])
def clocked(request: pytest.FixtureRequest, loop_name: str) -> Iterator[tuple[Any, Clock]]:
    """A loop and its clock, which is set on a subclass or on the loop itself."""
    clock = Clock()
    if request.param == "subclass":
        loop = make_loop(loop_name, time=lambda _self: clock.time())
    else:
        loop = make_loop(loop_name)
        loop.time = clock.time
    yield loop, clock
    loop.close()


def run_pending(loop: Any, passes: int = 3) -> None:
    for _ in range(passes):
        loop.call_soon(loop.stop)
        loop.run_forever()


def test_call_later_counts_from_the_loops_time(clocked: tuple[Any, Clock]) -> None:
    loop, _ = clocked
    assert loop.call_later(5, print).when() == 1005.0
    assert loop.call_later(0, print).when() == 1000.0
    assert loop.call_at(7, print).when() == 7


def test_timers_run_by_the_loops_time(clocked: tuple[Any, Clock]) -> None:
    loop, clock = clocked
    ran: list[str] = []
    loop.call_later(60, ran.append, "minute")
    loop.call_later(3600, ran.append, "hour")
    run_pending(loop)
    assert ran == []
    clock.now += 60
    run_pending(loop)
    assert ran == ["minute"]
    clock.now += 3600
    run_pending(loop)
    assert ran == ["minute", "hour"]


def test_timers_set_while_the_loop_runs_use_its_time(clocked: tuple[Any, Clock]) -> None:
    loop, clock = clocked
    started = time.monotonic()

    async def main() -> list[float]:
        readings = []
        for _ in range(3):
            # Advances the clock: a simulation with nothing else to do.
            loop.call_soon(advance)
            await asyncio.sleep(100)
            readings.append(loop.time())
        return readings

    def advance() -> None:
        clock.now += 100

    assert loop.run_until_complete(main()) == [1100.0, 1200.0, 1300.0]
    assert time.monotonic() - started < support.PATIENCE_SECONDS


def test_timeouts_use_the_loops_time(clocked: tuple[Any, Clock]) -> None:
    loop, clock = clocked

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1000):
                loop.call_soon(advance)
                await loop.create_future()

    def advance() -> None:
        clock.now += 1000

    loop.run_until_complete(main())


def test_clock_that_jumps_forward_and_back(clocked: tuple[Any, Clock]) -> None:
    loop, clock = clocked
    ran: list[str] = []
    clock.now = 5000.0
    loop.call_later(0, ran.append, "late")
    clock.now = 10.0
    loop.call_later(0, ran.append, "early")
    run_pending(loop)
    assert ran == ["early"]
    clock.now = 5000.0
    run_pending(loop)
    assert ran == ["early", "late"]


def test_clock_that_raises_ends_the_run_only(loop_name: str) -> None:
    loop = make_loop(loop_name)
    loop.call_later(0.01, int)

    def broken() -> float:
        raise OverflowError("no time")

    loop.time = broken
    with pytest.raises(OverflowError, match="no time"):
        loop.call_later(1, print)
    with pytest.raises(OverflowError, match="no time"):
        run_pending(loop)
    del loop.time
    run_pending(loop)
    assert loop.run_until_complete(asyncio.sleep(0.001, "done")) == "done"
    loop.close()


def test_clock_taken_off_the_loop_leaves_the_monotonic_one(loop_name: str) -> None:
    loop = make_loop(loop_name)
    clock = Clock()
    loop.time = clock.time
    run_pending(loop)
    del loop.time
    before = time.monotonic()
    when = loop.call_later(5, print).when()
    assert before + 5 <= when <= time.monotonic() + 5
    loop.close()


def test_clock_set_on_a_running_loop_applies_at_once(loop_name: str) -> None:
    loop = make_loop(loop_name)

    async def main() -> None:
        clock = Clock()
        fired = loop.create_future()
        loop.call_later(1000, fired.set_result, "fired")
        loop.time = lambda: clock.time() + 1e9
        assert await asyncio.wait_for(fired, None) == "fired"
        del loop.time
        assert loop.call_later(5, print).when() < time.monotonic() + 6

    loop.run_until_complete(main())
    loop.close()


def test_clock_set_on_the_class_applies_from_the_next_run(
    loop_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio asks self.time() each time")
    loop = make_loop(loop_name)

    async def main() -> None:
        monkeypatch.setattr(type(loop), "time", lambda _self: 0.0)
        assert loop.call_later(5, print).when() > 5

    loop.run_until_complete(main())
    assert loop.call_later(5, print).when() == 5.0
    loop.close()


def test_subclass_without_time_uses_the_monotonic_clock(
    loop_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use: Callable[[Any], str] = lambda _self: "unrelated"  # noqa: E731
    loop = make_loop(loop_name, another=use)
    before = time.monotonic()
    assert before + 1 <= loop.call_later(1, print).when() <= time.monotonic() + 1
    # Patching a class later counts too.
    monkeypatch.setattr(type(loop), "time", lambda _self: 50.0, raising=False)
    assert loop.call_later(1, print).when() == 51.0
    loop.close()


def test_time_of_a_class_set_between_runs_counts_at_once(loop_name: str) -> None:
    first = make_loop(loop_name, inherited=True)
    kind = type(first)
    with contextlib.closing(first):
        assert first.call_later(1.0, print).when() < 1e9
        for number in range(3):
            kind.time = lambda _, number=number: 1e12 + number
            assert first.call_later(1.0, print).when() == 1e12 + number + 1.0
        del kind.time
        assert first.call_later(1.0, print).when() < 1e9


@pytest.mark.parametrize("where", ["subclass", "instance"])
def test_call_later_uses_an_overridden_call_at(loop_name: str, where: str) -> None:
    """As subclasses for simulations do, which override `call_at` alone."""
    calls: list[tuple[float, Any]] = []

    def call_at(self: Any, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        calls.append((when, context))
        return base.call_at(self, when, callback, *args, context=context)

    base: Any
    if where == "subclass":
        loop = make_loop(loop_name, call_at=call_at)
        base = type(loop).__mro__[1]
    else:
        loop = make_loop(loop_name)
        base = type(loop)
        loop.call_at = lambda *args, **keywords: call_at(loop, *args, **keywords)
    ran: list[int] = []
    try:
        before = loop.time()
        handle = loop.call_later(0.001, ran.append, 1)
        assert isinstance(handle, asyncio.TimerHandle)

        async def main() -> None:
            await asyncio.sleep(0.002)

        loop.run_until_complete(main())
        assert ran == [1]
        assert len(calls) == 2
        assert before <= calls[0][0] - 0.001 <= loop.time()
        if where == "instance":
            del loop.call_at
            loop.call_later(0, ran.append, 2)
            assert len(calls) == 2
        with pytest.raises(TypeError):
            loop.call_later("1", ran.append)
    finally:
        loop.close()
