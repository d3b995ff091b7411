"""`loop._scheduled`, the timers that wait: Home Assistant and the tests of several packages read it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import heapq
import threading
from typing import Any

import pytest

from tests import support


def test_scheduled_timers_can_be_read(loop: Any) -> None:
    """What Home Assistant does at its end: it cancels some of the timers, by their arguments."""
    assert not loop._scheduled
    ran: list[str] = []
    soon = loop.call_later(0.01, ran.append, "soon")
    hour = loop.call_later(3600, ran.append, "in an hour")
    day = loop.call_at(loop.time() + 86400, ran.append, "tomorrow")
    timers = loop._scheduled
    assert timers[0] is soon
    assert sorted(timers, key=asyncio.TimerHandle.when) == [soon, hour, day]
    for timer in timers:
        if not timer.cancelled() and timer._args == ("in an hour",):
            timer.cancel()
    assert hour.cancelled()
    assert hour in loop._scheduled

    loop.call_at(soon.when(), lambda: loop.call_soon(loop.stop))
    loop.run_forever()

    async def main() -> None:
        # A timer that is due stays among them until its turn.
        loop.call_later(0, ran.append, "now")
        assert [timer._args for timer in loop._scheduled if timer._args == ("now",)] == [("now",)]
        await asyncio.sleep(0.01)

    loop.run_until_complete(main())
    assert ran == ["soon", "now"]
    assert day in loop._scheduled
    assert soon not in loop._scheduled
    loop.close()
    assert not loop._scheduled


def test_scheduled_timers_are_read_by_other_threads_and_collections(loop: Any) -> None:
    """Thousands are copied while the loop adds, runs and cancels them, and the collector visits them."""
    stop = threading.Event()
    seen = 0

    def read() -> None:
        nonlocal seen
        while not stop.is_set():
            with contextlib.suppress(RuntimeError):  # asyncio's list changes while it is copied
                seen += sum(timer.when() > 0 for timer in tuple(loop._scheduled))

    async def main() -> None:
        for number in range(2000):
            timer = loop.call_later(number % 7 / 1000, int)
            loop.call_later(3600, int)
            if number % 3 == 0:
                timer.cancel()
            if number % 100 == 0:
                gc.collect()
                await asyncio.sleep(0)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        loop.run_until_complete(main())
    finally:
        stop.set()
        reader.join()
    assert seen > 0
    assert len([timer for timer in loop._scheduled if not timer.cancelled()]) >= 2000


def test_scheduled_timers_are_no_list_to_put_callbacks_into(loop_name: str, loop: Any) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio's is its own heap")
    with pytest.raises(TypeError):
        heapq.heappush(loop._scheduled, loop.call_later(3600, int))
    assert isinstance(loop._scheduled, tuple)
