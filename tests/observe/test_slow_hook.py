"""`Loop.set_slow_callback_hook`: tells of slow callbacks outside of debug mode, and in it."""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import exceptions_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

SECONDS = 0.02


@pytest.fixture(autouse=True, params=[False, True], ids=["", "debug"])
def ours(loop_name: str, request: pytest.FixtureRequest) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio's loops have no such hook")


@pytest.fixture
def told(loop: Any, request: pytest.FixtureRequest) -> list[tuple[Any, float]]:
    """What the hook is told, of callbacks that take as long as `slow`."""
    loop.set_debug(request.node.callspec.params["ours"])
    # The log is another matter.
    loop.slow_callback_duration = 1000
    told: list[tuple[Any, float]] = []
    loop.set_slow_callback_hook(SECONDS, lambda what, seconds: told.append((what, seconds)))
    return told


def slow() -> None:
    time.sleep(SECONDS * 1.5)


def of(told: list[tuple[Any, float]], kind: type) -> list[Any]:
    """Others may be slow on a busy machine."""
    assert all(seconds >= SECONDS for _, seconds in told)
    return [what for what, _ in told if isinstance(what, kind)]


def test_slow_step_is_reported_with_its_task(run: Run, told: Any) -> None:
    async def main() -> asyncio.Task[None]:
        async def sluggish() -> None:
            await asyncio.sleep(0)
            slow()

        task = asyncio.create_task(sluggish(), name="sluggish")
        await task
        return task

    task = run(main())
    assert task in of(told, asyncio.Task)


def test_slow_step_after_a_future_is_reported_with_its_task(run: Run, told: Any) -> None:
    async def main() -> asyncio.Task[Any] | None:
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_result, None)
        await future
        slow()
        return asyncio.current_task()

    assert run(main()) in of(told, asyncio.Task)


@pytest.mark.parametrize("schedule", ["call_soon", "call_later", "call_soon_threadsafe"])
def test_slow_callback_is_reported_with_its_handle(loop: Any, told: Any, schedule: str) -> None:
    def ends() -> None:
        slow()
        loop.stop()

    arguments = (0.001, ends) if schedule == "call_later" else (ends,)
    getattr(loop, schedule)(*arguments)
    loop.run_forever()
    assert any(handle._callback is ends for handle in of(told, asyncio.Handle))
    assert "ends" in repr(of(told, asyncio.Handle)[0])


def test_slow_protocol_is_reported_with_its_transport(run: Run, told: Any) -> None:
    class Protocol(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            transports.append(transport)

        def data_received(self, data: bytes) -> None:
            slow()
            ended.set()

    ended = asyncio.Event()
    transports: list[asyncio.BaseTransport] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Protocol, "127.0.0.1", 0)
        async with server:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"data")
            await ended.wait()
            writer.close()
            await writer.wait_closed()

    run(main())
    assert transports[0] in of(told, asyncio.BaseTransport)


def test_quick_callbacks_are_not_reported(loop: Any, told: Any) -> None:
    loop.set_slow_callback_hook(1000, lambda what, seconds: told.append((what, seconds)))
    loop.run_until_complete(asyncio.sleep(0.001))
    assert told == []


def test_hook_is_taken_away(loop: Any, told: Any) -> None:
    loop.set_slow_callback_hook(0, None)
    loop.call_soon(slow)
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert told == []
    assert loop._debug or loop._beat()[3] >= 2


def test_failing_hook_goes_to_the_exception_handler(loop: Any, told: Any) -> None:
    def hook(what: Any, seconds: float) -> None:
        raise ZeroDivisionError

    loop.set_slow_callback_hook(SECONDS, hook)
    loop.call_soon(slow)
    loop.call_soon(loop.stop)
    with exceptions_of(loop) as reports:
        loop.run_forever()
    assert any(isinstance(report["exception"], ZeroDivisionError) for report in reports)
    loop.set_slow_callback_hook(0, None)


def test_hook_set_while_the_loop_runs_takes_effect_at_once(run: Run, loop: Any) -> None:
    told: list[Any] = []

    async def main() -> None:
        loop.set_slow_callback_hook(SECONDS, lambda what, seconds: told.append(what))
        await asyncio.sleep(0)
        slow()
        await asyncio.sleep(0)

    run(main())
    assert any(isinstance(what, asyncio.Task) for what in told)


@pytest.mark.parametrize("threshold", [-1, math.nan, math.inf])
def test_wrong_thresholds_are_refused(loop: Any, threshold: float) -> None:
    with pytest.raises(ValueError, match="threshold must be a number of seconds"):
        loop.set_slow_callback_hook(threshold, print)


def test_wrong_hooks_are_refused(loop: Any) -> None:
    with pytest.raises(TypeError, match="hook must be callable or None"):
        loop.set_slow_callback_hook(1, "log")
