"""The fixtures themselves: a leak check that cannot fail proves nothing."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING

import pytest

from tests import support

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any


def test_open_descriptor_is_a_leak() -> None:
    check = support.LeakCheck.begin()
    read_end, write_end = os.pipe()
    with pytest.raises(pytest.fail.Exception, match="descriptor"):
        check.assert_clean(timeout=0)
    os.close(read_end)
    os.close(write_end)
    check.assert_clean()


def test_running_thread_is_a_leak() -> None:
    check = support.LeakCheck.begin()
    release = threading.Event()
    thread = threading.Thread(target=release.wait, name="left-behind")
    thread.start()
    with pytest.raises(pytest.fail.Exception, match="left-behind"):
        check.assert_clean(timeout=0)
    release.set()
    thread.join()
    check.assert_clean()


def test_unclosed_loop_is_a_leak(loop_factory: support.LoopFactory) -> None:
    check = support.LeakCheck.begin()
    loop = loop_factory()
    with pytest.raises(pytest.fail.Exception, match="descriptor"):
        check.assert_clean(timeout=0)
    loop.close()
    del loop
    check.assert_clean()


def test_task_left_on_loop_is_named(loop_factory: support.LoopFactory) -> None:
    async def stays() -> None:
        await asyncio.Event().wait()

    async def main() -> asyncio.Task[None]:
        return asyncio.create_task(stays(), name="left-running")

    loop = loop_factory()
    task = loop.run_until_complete(main())
    assert ["left-running" in left for left in support.close_loop(loop)] == [True]
    assert task.cancelled()
    assert loop.is_closed()


@pytest.mark.loop_errors
def test_loop_errors_are_logged(loop: asyncio.AbstractEventLoop, loop_log: support.LoopLog) -> None:
    async def main() -> None:
        loop.call_soon(lambda: 1 / 0)
        await support.wait_until(lambda: loop_log.records, "the log record")

    loop.run_until_complete(main())
    messages = loop_log.take()
    assert len(messages) == 1
    assert "ZeroDivisionError" in messages[0] or "Exception in callback" in messages[0]


def test_driver_under_test_is_the_one_asked_for(
    loop_name: str, loop: asyncio.AbstractEventLoop
) -> None:
    if loop_name == support.ORACLE:
        assert isinstance(loop, asyncio.SelectorEventLoop)
    else:
        assert f"ringloop-{loop.driver}" == loop_name  # type: ignore[attr-defined]


def test_wait_until_fails_with_its_words(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    with pytest.raises(pytest.fail.Exception, match="the moon did not come"):
        run(support.wait_until(lambda: False, "the moon", timeout=0))
