"""`Loop.metrics()`: what each number counts, and that any thread may ask."""

from __future__ import annotations

import asyncio
import json
import math
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import ringloop
from ringloop.metrics import Histogram, LoopMetrics, snapshots
from ringloop.metrics._snapshot import BOUNDS
from tests import support
from tests.support import wait_until, wait_until_blocking, within

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

SIZE = 100_000


@pytest.fixture(autouse=True)
def ours(loop_name: str) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio's loops have no metrics")


def numbers() -> LoopMetrics:
    loop: Any = asyncio.get_running_loop()
    found: LoopMetrics = loop.metrics()
    return found


# --- counters -------------------------------------------------------------------------------------


def test_callbacks_and_turns_are_counted(run: Run) -> None:
    async def main() -> None:
        before = numbers()
        for _ in range(100):
            await asyncio.sleep(0)
        after = numbers()
        assert after.callbacks - before.callbacks >= 100
        assert after.turns > before.turns
        await asyncio.sleep(0.001)
        assert numbers().sleeps > after.sleeps

    run(main())


def test_idle_and_busy_time_are_distinguished(run: Run) -> None:
    async def main() -> None:
        before = numbers()
        await asyncio.sleep(0.05)
        asleep = numbers()
        assert asleep.waited_seconds - before.waited_seconds > 0.04
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            pass
        await asyncio.sleep(0.001)
        after = numbers()
        assert after.busy_seconds - asleep.busy_seconds > 0.049
        assert 0 < after.utilisation < 1
        # What the loop did between two polls is lag, which the callback's length is a part of.
        assert after.lag.max >= 0.05
        assert after.lag.since(asleep.lag).quantile(1) >= 0.05

    run(main())


def test_time_between_runs_is_neither(loop: Any) -> None:
    loop.run_until_complete(asyncio.sleep(0))
    before = loop.metrics()
    time.sleep(0.1)
    loop.run_until_complete(asyncio.sleep(0))
    after = loop.metrics()
    passed = after.busy_seconds + after.waited_seconds - before.busy_seconds - before.waited_seconds
    assert passed < after.at - before.at - 0.1 + 0.001
    assert after.thread is None


def test_late_timers_are_measured(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        called = loop.create_future()
        loop.call_later(0.001, called.set_result, None)
        time.sleep(0.06)  # noqa: ASYNC251
        await called
        assert numbers().timer_delay.max >= 0.05

    run(main())


def test_queue_delay_of_a_turn_with_several_ready(loop: Any) -> None:
    loop.call_soon(time.sleep, 0.05)
    loop.call_soon(time.sleep, 0)
    loop.call_soon(loop.stop)
    loop.run_forever()
    delay = loop.metrics().queue_delay
    assert delay.count == 1
    assert delay.max >= 0.05


def test_bytes_and_connections_of_streams(run: Run) -> None:
    async def main() -> None:
        arrived = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readexactly(SIZE)
            arrived.set()
            await reader.read()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            before = numbers()
            assert before.listeners == 1
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            for _ in range(10):
                writer.write(bytes(SIZE // 10))
            await writer.drain()
            await within(arrived.wait())
            after = numbers()
            assert after.transports - before.transports == 2
            assert after.accepted - before.accepted == 1
            assert after.received_bytes - before.received_bytes == SIZE
            assert after.sent_bytes - before.sent_bytes == SIZE
            assert after.operations_submitted > before.operations_submitted
            assert after.operations_completed > before.operations_completed
            writer.close()
            await writer.wait_closed()
            await wait_until(lambda: numbers().transports == before.transports)
        await wait_until(lambda: numbers().listeners == 0)

    run(main())


class Datagrams(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.received: list[bytes] = []

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.received.append(data)


@pytest.mark.parametrize("count", [1, 20])
def test_bytes_of_datagrams(run: Run, count: int) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        receiver, protocol = await loop.create_datagram_endpoint(
            Datagrams, local_addr=("127.0.0.1", 0)
        )
        address = receiver.get_extra_info("sockname")
        sender, _ = await loop.create_datagram_endpoint(Datagrams, remote_addr=address)
        before = numbers()
        for _ in range(count):
            sender.sendto(bytes(100))
        await wait_until(lambda: len(protocol.received) == count)
        after = numbers()
        assert after.sent_bytes - before.sent_bytes == 100 * count
        assert after.received_bytes - before.received_bytes == 100 * count
        sender.close()
        receiver.close()
        await asyncio.sleep(0)

    run(main())


def test_bytes_of_pipes(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        read_end, write_end = os.pipe()
        reader = asyncio.StreamReader()
        reading, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", 0)
        )
        writing, _ = await loop.connect_write_pipe(
            asyncio.BaseProtocol, os.fdopen(write_end, "wb", 0)
        )
        before = numbers()
        writing.write(bytes(1000))
        await within(reader.readexactly(1000))
        after = numbers()
        assert after.sent_bytes - before.sent_bytes == 1000
        assert after.received_bytes - before.received_bytes == 1000
        writing.close()
        reading.close()
        await asyncio.sleep(0)

    run(main())


# --- gauges ---------------------------------------------------------------------------------------


def test_queues_are_counted(loop: Any) -> None:
    before = loop.metrics()
    timers = [loop.call_later(60, print) for _ in range(5)]
    timers[0].cancel()
    handles = [loop.call_soon(int) for _ in range(3)]
    after = loop.metrics()
    assert after.timers - before.timers == 4
    assert after.ready - before.ready == 3
    for handle in (*timers, *handles):
        handle.cancel()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        loop.add_reader(ours, int)
        assert loop.metrics().watchers == before.watchers + 1
        loop.remove_reader(ours)
        assert loop.metrics().watchers == before.watchers


def test_calls_of_other_threads_that_wait_are_counted(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()

        def send() -> None:
            for _ in range(7):
                loop.call_soon_threadsafe(int)

        thread = threading.Thread(target=send)
        thread.start()
        thread.join()
        assert numbers().inbox == 7
        await asyncio.sleep(0.001)
        assert numbers().inbox == 0

    run(main())


def test_driver_and_features(run: Run, loop_name: str) -> None:
    async def main() -> LoopMetrics:
        return numbers()

    found = run(main())
    assert found.driver == loop_name.removeprefix("ringloop-")
    assert found.driver_reason
    assert bool(found.ring_features) == (found.driver == "uring")
    assert not any("instead of io_uring" in reason for reason in found.fallbacks)
    assert found.thread == threading.current_thread().name


def test_slow_callbacks_are_kept_with_where(run: Run, loop: Any) -> None:
    loop.set_slow_callback_hook(0.01, lambda what, seconds: None)

    async def main() -> None:
        for _ in range(20):
            time.sleep(0.011)  # noqa: ASYNC251
            await asyncio.sleep(0)

    run(main())
    found = loop.metrics()
    assert found.slow_callbacks_total >= 20
    assert len(found.slow_callbacks) == 16
    assert any("main" in slow.what for slow in found.slow_callbacks)
    assert all(slow.seconds >= 0.01 for slow in found.slow_callbacks)


@pytest.mark.one_thread("the watchdog watches every loop of the process")
def test_stalls_are_kept_too(run: Run, loop: Any) -> None:
    told = threading.Event()

    async def main() -> None:
        with ringloop.watchdog(0.02, hook=lambda stall: told.set()):
            assert told.wait(support.PATIENCE_SECONDS)
            await wait_until(lambda: loop.metrics().slow_callbacks_total, "the end of the stall")

    run(main())
    assert any("main" in slow.what for slow in loop.metrics().slow_callbacks)


# --- threads and ends -----------------------------------------------------------------------------


def test_any_thread_may_ask_and_does_not_wake_the_loop(run: Run) -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()

        def ask() -> tuple[LoopMetrics, LoopMetrics]:
            wait_until_blocking(lambda: loop._beat()[0] == 2, "a loop that sleeps")
            first = loop.metrics()
            for _ in range(100):
                loop.metrics()
            return first, loop.metrics()

        first, last = await within(asyncio.to_thread(ask))
        assert last.turns - first.turns <= 1

    run(main())


def test_threads_ask_while_the_loop_works(run: Run) -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        ends = threading.Event()
        failures: list[BaseException] = []
        asked = [0, 0]

        def ask(number: int) -> None:
            try:
                last = 0
                while not ends.is_set():
                    found = loop.metrics()
                    assert found.callbacks >= last
                    last = found.callbacks
                    asked[number] += 1
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        while min(asked) < 50 and not failures:
            timers = [loop.call_later(60, int) for _ in range(20)]
            for timer in timers:
                timer.cancel()
            await asyncio.sleep(0)
        ends.set()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        assert failures == []

    run(main())


def test_closed_loop_has_its_last_numbers(loop: Any) -> None:
    loop.run_until_complete(asyncio.sleep(0))
    turns = loop.metrics().turns
    loop.close()
    found = loop.metrics()
    assert found.turns == turns
    assert found.loop == 0
    assert all(found != one for one in snapshots())


def test_every_open_loop_is_in_the_snapshots(loop: Any) -> None:
    numbered = loop.metrics().loop
    assert numbered >= 1
    assert numbered in [found.loop for found in snapshots()]
    assert json.loads(json.dumps(loop.metrics().as_dict()))["loop"] == numbered


@pytest.mark.one_thread("it forks")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_child_of_fork_sees_no_loop_of_its_parent(loop: Any) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(len(snapshots()))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


# --- histograms -----------------------------------------------------------------------------------


def histogram(*counts: int, largest: float = 1.0) -> Histogram:
    padded = (*counts, *(0,) * (len(BOUNDS) + 1 - len(counts)))
    return Histogram(BOUNDS, padded, 1.0, largest)


def test_quantiles_are_bounds_of_buckets() -> None:
    found = histogram(50, 49, 0, 1, largest=7e-6)
    assert found.count == 100
    assert found.quantile(0) == found.quantile(0.5) == BOUNDS[0]
    assert found.quantile(0.51) == found.quantile(0.99) == BOUNDS[1]
    assert found.quantile(1) == 7e-6
    assert histogram(largest=0).quantile(0.99) == 0
    assert histogram(largest=0).mean == 0
    for part in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="part must be between 0 and 1"):
            found.quantile(part)


def test_last_bucket_has_no_bound() -> None:
    found = histogram(*(0,) * len(BOUNDS), 3, largest=100.0)
    assert found.quantile(0.5) == 100.0


def test_difference_of_histograms() -> None:
    earlier = histogram(5, 1, largest=2e-6)
    later = Histogram(BOUNDS, (6, 1, *earlier.counts[2:]), 1.5, 2e-6)
    found = later.since(earlier)
    assert (found.count, found.counts[0], found.sum) == (1, 1, 0.5)
    assert found.max == BOUNDS[0]
