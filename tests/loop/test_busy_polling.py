"""`busy_polling`: a loop that looks for what has arrived before it sleeps does what others do."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest

import ringloop
from ringloop import _busy_polling
from tests import support

DRIVERS = [name.removeprefix("ringloop-") for name in support.LOOPS if name != support.ORACLE]


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    support.usable_loop(f"ringloop-{request.param}")
    name: str = request.param
    return name


def run(main: Any, driver: Any) -> Any:
    loop = ringloop.new_event_loop(driver=driver, busy_polling=_busy_polling.SECONDS_MAX)
    try:
        return loop.run_until_complete(main)
    finally:
        support.close_loop(loop)


def test_bytes_arrive(driver: str) -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        with theirs:
            for number in range(100):
                theirs.send(b"%d\n" % number)
                assert await reader.readline() == b"%d\n" % number
        writer.close()
        await writer.wait_closed()

    run(main(), driver)


def test_other_threads_wake_it(driver: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for _ in range(100):
            woken = asyncio.Event()
            thread = threading.Thread(target=loop.call_soon_threadsafe, args=(woken.set,))
            thread.start()
            await woken.wait()
            thread.join()

    run(main(), driver)


def test_timers_are_not_early(driver: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for delay in (0.0001, 0.001, _busy_polling.SECONDS_MAX * 1.5):
            due = loop.time() + delay
            await asyncio.sleep(delay)
            assert loop.time() >= due

    run(main(), driver)


@pytest.mark.parametrize("seconds", [-0.001, _busy_polling.SECONDS_MAX * 2, float("nan")])
def test_out_of_bounds(seconds: float) -> None:
    with pytest.raises(ValueError, match=r"^busy_polling must be between 0 and 0\.01 seconds"):
        ringloop.Loop(busy_polling=seconds)


@pytest.mark.parametrize("seconds", ["0.001", True])
def test_no_number(seconds: Any) -> None:
    with pytest.raises(TypeError, match=r"^busy_polling must be a number of seconds"):
        ringloop.Loop(busy_polling=seconds)


@pytest.mark.parametrize("text", ["soon", "1", "-0.001"])
def test_environment_is_checked(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("RINGLOOP_BUSY_POLLING", text)
    with pytest.raises(ValueError, match=r"^RINGLOOP_BUSY_POLLING must be"):
        ringloop.Loop()
    # What the program asks for counts, and the environment is not read.
    ringloop.Loop(busy_polling=0).close()


def test_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _busy_polling.span_ns(None) == 0
    monkeypatch.setenv("RINGLOOP_BUSY_POLLING", "0.00005")
    assert _busy_polling.span_ns(None) == 50_000
    assert _busy_polling.span_ns(0.001) == 1_000_000
