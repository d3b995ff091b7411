"""Ctrl-C: it ends a wait, and how it leaves the loop and its tasks."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ringloop
from tests import support
from tests.support.signals import kill_later

if TYPE_CHECKING:
    from tests.support import LoopFactory

Loop = asyncio.AbstractEventLoop

pytestmark = pytest.mark.usefixtures("signals_restored")


def test_interrupt_ends_a_wait_at_once(loop: Loop) -> None:
    thread = kill_later(signal.SIGINT, loop)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    assert time.monotonic() - start < support.PATIENCE_SECONDS
    thread.join()
    assert loop.run_until_complete(asyncio.sleep(0.001, 5)) == 5


def end_interrupted_run(loop: Any) -> None:
    """Clean up as `run_forever` does in `finally`, which one interrupt in some hundred jumps over."""
    loop._thread_id = None
    loop._stopping = False
    asyncio._set_running_loop(None)
    sys.set_asyncgen_hooks(None, None)


def test_interrupt_ends_a_busy_chain(loop: Loop) -> None:
    stop = False

    def link() -> None:
        if not stop:
            loop.call_soon(link)

    loop.call_soon(link)
    thread = kill_later(signal.SIGINT, loop)
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    thread.join()
    stop = True
    if loop.is_running() and not isinstance(loop, ringloop.Loop):
        end_interrupted_run(loop)
        pytest.skip("asyncio's loop misses its clean-up if it is interrupted between two turns")
    loop.call_soon(loop.stop)
    loop.run_forever()


def test_interrupt_in_a_runner_cancels_the_main_task(loop_factory: LoopFactory) -> None:
    cancelled: list[bool] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        threads.append(kill_later(signal.SIGINT, loop))
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    threads: list[threading.Thread] = []
    with pytest.raises(KeyboardInterrupt), asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())
    assert cancelled == [True]
    threads[0].join()


def test_interrupt_of_a_program(loop_name: str) -> None:
    program = textwrap.dedent(f"""
        import asyncio
        from tests import support

        async def main():
            print("ready", flush=True)
            await asyncio.sleep(60)

        with asyncio.Runner(loop_factory=support.loop_factory({loop_name!r})) as runner:
            runner.run(main())
    """)
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=support.PATIENCE_SECONDS)
    assert time.monotonic() - start < support.PATIENCE_SECONDS
    assert "KeyboardInterrupt" in errors
    assert process.returncode == -signal.SIGINT


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_rest_of_the_batch_stays_queued(loop: Loop, error: type[BaseException]) -> None:
    order: list[Any] = []

    def leave() -> None:
        raise error("leaving")

    for entry in (lambda: order.append(1), leave, lambda: order.append(2), leave):
        loop.call_soon(entry)
    loop.call_soon(order.append, 3)
    for expected in ([1], [1, 2]):
        with pytest.raises(error, match="leaving"):
            loop.run_forever()
        assert order == expected
        assert not loop.is_running()
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert order == [1, 2, 3]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.loop_errors
def test_interrupt_in_a_task_leaves_the_loop_usable(loop: Loop, error: type[BaseException]) -> None:
    async def leave() -> None:
        await asyncio.sleep(0)
        raise error

    async def other() -> int:
        await asyncio.sleep(0.005)
        return 7

    leaving, going_on = loop.create_task(leave()), loop.create_task(other())
    with pytest.raises(error):
        loop.run_until_complete(going_on)
    assert leaving.done()
    assert isinstance(leaving.exception(), error)
    assert loop.run_until_complete(going_on) == 7


def test_handler_may_interrupt_the_run(loop: Loop) -> None:
    def handler() -> None:
        raise KeyboardInterrupt

    loop.add_signal_handler(signal.SIGUSR1, handler)
    os.kill(os.getpid(), signal.SIGUSR1)
    with pytest.raises(KeyboardInterrupt):
        loop.run_forever()
    loop.remove_signal_handler(signal.SIGUSR1)


def test_interrupt_goes_to_the_main_thread(
    loop_factory: LoopFactory,
) -> None:
    loop = loop_factory()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    support.wait_until_blocking(loop.is_running)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(support.PATIENCE_SECONDS)
    assert loop.is_running()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
