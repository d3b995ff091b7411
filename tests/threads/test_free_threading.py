"""Loops in several threads, and one loop used from several: nothing is lost, nothing crashes.

With the GIL these tests show little; without it the threads really run in parallel. Each runs for a
fixed amount of work, and `RINGLOOP_STRESS=10` multiplies it by ten.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import sys
import sysconfig
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from tests import support

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from tests.support import LoopFactory

T = TypeVar("T")

FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
THREADS = 4
STRESS = int(os.environ.get("RINGLOOP_STRESS", "1"))

pytestmark = pytest.mark.one_thread("has threads of its own")


def in_threads(bodies: list[Callable[[], T]]) -> list[T]:
    """Run each body in its own thread, all at once; return their results."""
    results: dict[int, T] = {}
    failures: list[BaseException] = []
    start = threading.Barrier(len(bodies))

    def run(index: int) -> None:
        try:
            start.wait(support.PATIENCE_SECONDS)
            results[index] = bodies[index]()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * support.PATIENCE_SECONDS)
        assert not thread.is_alive(), "a thread does not end"
    if failures:
        raise failures[0]
    return [results[index] for index in range(len(bodies))]


def rounds_of(count: int) -> Iterator[int]:
    """Count, and stop early if that takes long: a busy machine gets less done.

    Without the GIL a thread that waits for a lock yields the CPU to whatever runs.
    """
    deadline = time.monotonic() + 15 * STRESS
    for number in range(count):
        yield number
        if time.monotonic() > deadline:
            return


def in_loops(
    loop_factory: LoopFactory, mains: list[Callable[[], Coroutine[Any, Any, T]]]
) -> list[T]:
    """Run each coroutine on its own loop in its own thread, all at once."""

    def body(main: Callable[[], Coroutine[Any, Any, T]]) -> Callable[[], T]:
        def run() -> T:
            with asyncio.Runner(loop_factory=loop_factory) as runner:
                return runner.run(main())

        return run

    return in_threads([body(main) for main in mains])


@contextlib.contextmanager
def running(loop_factory: LoopFactory) -> Any:
    """A loop that runs in another thread."""
    loop = loop_factory()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    support.wait_until_blocking(loop.is_running)
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(support.PATIENCE_SECONDS)
        assert not thread.is_alive()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


@pytest.mark.skipif(not FREE_THREADED, reason="this build has the lock")
def test_interpreter_lock_stays_off() -> None:
    import ringloop

    ringloop.Loop().close()
    # By now the modules of all tests of this run are imported too.
    assert sys._is_gil_enabled() is False


def test_echo_in_every_loop(loop_factory: LoopFactory) -> None:
    connections, messages = 4, 50 * STRESS

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def client(port: int, number: int) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        total = 0
        for turn in range(messages):
            message = bytes([number, turn % 256]) * (1 + (turn * 37) % 5000)
            writer.write(message)
            assert await reader.readexactly(len(message)) == message
            total += len(message)
        writer.close()
        await writer.wait_closed()
        return total

    async def main() -> int:
        before = asyncio.all_tasks()
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            totals = await asyncio.gather(*(client(port, n) for n in range(connections)))
        await support.wait_until(lambda: asyncio.all_tasks() <= before, "the handlers' end")
        return sum(totals)

    totals = in_loops(loop_factory, [main] * THREADS)
    assert len(set(totals)) == 1


def test_timers_in_every_loop(loop_factory: LoopFactory) -> None:
    count = 2000 * STRESS

    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        ran: list[int] = []
        handles = [loop.call_later(n % 7 / 1000, ran.append, n) for n in range(count)]
        for handle in handles[::3]:
            handle.cancel()
        await support.wait_until(lambda: len(ran) == count - len(handles[::3]))
        return sorted(ran)

    expected = [n for n in range(count) if n % 3]
    assert in_loops(loop_factory, [main] * THREADS) == [expected] * THREADS


def test_tasks_in_every_loop(loop_factory: LoopFactory) -> None:
    async def child(number: int) -> int:
        await asyncio.sleep(0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        return number

    async def main() -> int:
        total = 0
        for _ in range(5 * STRESS):
            total += sum(await asyncio.gather(*(child(n) for n in range(100))))
        return total

    assert in_loops(loop_factory, [main] * THREADS) == [5 * STRESS * 4950] * THREADS


def test_every_loop_sends_to_every_other(loop_factory: LoopFactory) -> None:
    messages = 1000 * STRESS
    loops: list[Any] = [None] * THREADS
    ready = threading.Barrier(THREADS)

    def main_of(me: int) -> Callable[[], Coroutine[Any, Any, list[list[int]]]]:
        async def main() -> list[list[int]]:
            got: list[list[int]] = [[] for _ in range(THREADS)]
            inboxes[me] = got
            loops[me] = asyncio.get_running_loop()
            ready.wait(support.PATIENCE_SECONDS)
            for number in range(messages):
                for other, loop in enumerate(loops):
                    loop.call_soon_threadsafe(inboxes[other][me].append, number)
                if number % 50 == 0:
                    await asyncio.sleep(0)
            await support.wait_until(lambda: all(len(one) == messages for one in got))
            ready.wait(support.PATIENCE_SECONDS)  # no thread ends before all have sent
            return got

        return main

    inboxes: list[list[list[int]]] = [[] for _ in range(THREADS)]
    results = in_loops(loop_factory, [main_of(me) for me in range(THREADS)])
    # Every message of each sender once, in order.
    assert results == [[list(range(messages))] * THREADS] * THREADS


def test_two_loops_exchange(loop_factory: LoopFactory) -> None:
    rounds = 300 * STRESS

    async def increment(value: int) -> int:
        await asyncio.sleep(0)
        return value + 1

    with running(loop_factory) as other:

        async def main() -> int:
            value = 0
            for _ in range(rounds):
                future = asyncio.run_coroutine_threadsafe(increment(value), other)
                value = await support.within(asyncio.wrap_future(future))
            return value

        assert in_loops(loop_factory, [main] * 2) == [rounds] * 2


def test_results_of_executors(loop_factory: LoopFactory) -> None:
    async def main() -> set[int]:
        loop = asyncio.get_running_loop()
        sums = set()
        for _ in rounds_of(10 * STRESS):
            jobs = [loop.run_in_executor(None, int, str(n)) for n in range(50)]
            sums.add(sum(await support.within(asyncio.gather(*jobs))))
        return sums

    assert in_loops(loop_factory, [main] * THREADS) == [{1225}] * THREADS


@pytest.mark.loop_errors
@pytest.mark.parametrize("kind", ["soon", "later", "at once", "threadsafe"])
def test_handles_are_cancelled_by_other_threads(
    loop_name: str, loop_log: support.LoopLog, kind: str
) -> None:
    """A cancelled handle runs at most once; each other one runs exactly once."""
    if loop_name == support.ORACLE:
        pytest.skip("asyncio's handles are emptied while they run: it promises nothing here")
    loop_factory = support.loop_factory(loop_name)
    batches, size = 60 * STRESS, 100
    handles: list[asyncio.Handle] = []
    batch_done, batch_ready = threading.Barrier(THREADS + 1), threading.Barrier(THREADS + 1)
    ran: list[int] = []

    done_count, over = 0, threading.Event()

    def cancel(me: int) -> Callable[[], None]:
        def body() -> None:
            while True:
                batch_ready.wait(support.PATIENCE_SECONDS)
                if over.is_set():
                    return
                # All threads cancel the same ones, so that they race.
                for handle in handles[me % 2 :: 2]:
                    repr(handle)
                    handle.cancel()
                    assert handle.cancelled()
                    assert handle.get_context() is not None
                batch_done.wait(support.PATIENCE_SECONDS)

        return body

    def run() -> None:
        nonlocal done_count
        loop = loop_factory()
        schedule: dict[str, Any] = {
            "soon": loop.call_soon,
            "later": lambda *args: loop.call_later(0.0001, *args),
            "at once": lambda *args: loop.call_later(0, *args),
            "threadsafe": loop.call_soon_threadsafe,
        }
        for _ in rounds_of(batches):
            handles[:] = [schedule[kind](ran.append, n, *()) for n in range(size)]
            kept = [schedule[kind](ran.append, -1) for n in range(size)]
            batch_ready.wait(support.PATIENCE_SECONDS)
            loop.run_until_complete(asyncio.sleep(0.001))
            batch_done.wait(support.PATIENCE_SECONDS)
            assert not any(handle.cancelled() for handle in kept)
            done_count += 1
        over.set()
        batch_ready.wait(support.PATIENCE_SECONDS)
        loop.run_until_complete(asyncio.sleep(0.002))
        loop.close()

    in_threads([run, *(cancel(n) for n in range(THREADS))])
    assert done_count > 0
    assert ran.count(-1) == done_count * size
    for number in range(size):
        assert ran.count(number) <= done_count
    assert not loop_log.take()


def test_last_handle_is_cancelled_while_it_runs(loop_factory: LoopFactory) -> None:
    """The callable and its arguments outlive the call, whichever thread clears the handle."""

    class Callback:
        def __call__(self, *args: object) -> None:
            started.set()
            assert cancelled.wait(support.PATIENCE_SECONDS)
            seen.append([type(arg) for arg in args])

    started, cancelled = threading.Event(), threading.Event()
    seen: list[Any] = []
    with running(loop_factory) as loop:
        made: list[asyncio.Handle] = []

        def schedule() -> None:
            made.append(loop.call_soon(Callback(), object(), bytearray(100)))

        for _ in range(50 * STRESS):
            loop.call_soon_threadsafe(schedule)
            assert started.wait(support.PATIENCE_SECONDS)
            made.pop().cancel()
            started.clear()
            cancelled.set()
            support.wait_until_blocking(lambda: seen)
            cancelled.clear()
            assert seen.pop() == [object, bytearray]


class Onlookers:
    """Threads that inspect a server's transports, and how often each has."""

    def __init__(self, loop_name: str) -> None:
        # asyncio's repr fails if its loop is closed meanwhile.
        self.sees_repr = loop_name != support.ORACLE
        self.transports: list[Any] = []
        self.looks = [0, 0]
        self.done = threading.Event()

    def look(self, place: int) -> None:
        while not self.done.is_set():
            for transport in self.transports[-3:]:
                assert transport.is_closing() in {True, False}
                assert transport.get_write_buffer_size() >= 0
                assert transport.get_extra_info("sockname")
                assert not self.sees_repr or "transport" in repr(transport).lower()
                transport.get_protocol()
                transport.is_reading()
                self.looks[place] += 1
            time.sleep(0)


class Echo(asyncio.Protocol):
    """Echoes, and passes its transport to the onlookers."""

    def __init__(self, onlookers: Onlookers) -> None:
        self.onlookers = onlookers

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.onlookers.transports.append(transport)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


async def converse(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(20):
        writer.write(b"x" * 3000)
        assert len(await support.within(reader.readexactly(3000))) == 3000
    writer.close()
    await writer.wait_closed()


def test_transport_is_inspected_by_other_threads(loop_name: str) -> None:
    """Methods that only read may be called from any thread, and return what they should."""
    loop_factory = support.loop_factory(loop_name)
    onlookers = Onlookers(loop_name)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Echo(onlookers), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        for _ in range(20 * STRESS):
            await converse(port)
        # A busy machine may not have run an inspecting thread yet.
        while not all(onlookers.looks):
            await converse(port)
        server.close()
        await server.wait_closed()

    def serve() -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory) as runner:
                runner.run(support.within(main()))
        finally:
            onlookers.done.set()

    in_threads([serve, lambda: onlookers.look(0), lambda: onlookers.look(1)])
    assert all(onlookers.looks)
    onlookers.transports.clear()


def test_use_from_a_wrong_thread_does_not_harm_the_loop(
    loop_factory: LoopFactory,
) -> None:
    """Misuse that asyncio detects only in debug mode: the loop keeps working."""
    wrong = 200 * STRESS
    ran: list[int] = []

    with running(loop_factory) as loop:

        def misuse() -> None:
            for number in range(wrong):
                with contextlib.suppress(RuntimeError):
                    loop.call_soon(ran.append, number)
                with contextlib.suppress(RuntimeError):
                    loop.call_later(60, ran.append, number).cancel()
                with contextlib.suppress(RuntimeError):
                    loop.create_future().cancel()
                loop.time()
                loop.is_closed()
                repr(loop)

        async def work() -> int:
            total = 0
            for number in range(500):
                await asyncio.sleep(0.0001 if number % 50 == 0 else 0)
                total += number
            return total

        future = asyncio.run_coroutine_threadsafe(work(), loop)
        in_threads([misuse] * THREADS)
        assert future.result(support.PATIENCE_SECONDS) == 499 * 250
    assert len(ran) <= wrong * THREADS


def test_only_one_thread_runs_a_loop(loop_name: str) -> None:
    if loop_name == support.ORACLE and FREE_THREADED:
        pytest.skip("asyncio looks and then marks, and two threads can look at once")
    for _ in range(20 * STRESS):
        loop = support.loop_factory(loop_name)()
        refused: list[str] = []

        def stop(loop: Any = loop, refused: list[str] = refused) -> None:
            if len(refused) == THREADS - 1:
                loop.stop()

        def run(loop: Any = loop, refused: list[str] = refused, stop: Any = stop) -> None:
            try:
                loop.run_forever()
            except RuntimeError as error:
                refused.append(str(error))
                loop.call_soon_threadsafe(stop)

        in_threads([run] * THREADS)
        loop.close()
        assert refused == ["This event loop is already running"] * (THREADS - 1)


def test_call_before_the_loop_runs_elsewhere_wakes_it(loop_factory: LoopFactory) -> None:
    """The loop starts to run, and to sleep, at the moment of the call."""
    for _ in range(50 * STRESS):
        loop: Any = loop_factory()
        stop = functools.partial(loop.call_soon_threadsafe, loop.stop)
        in_threads([loop.run_forever, stop])
        loop.close()


def test_collector_runs_while_loops_do(loop_factory: LoopFactory) -> None:
    """The collector stops all threads wherever they are and visits every queue."""
    import gc

    done = threading.Event()

    def collect() -> int:
        count = 0
        while not done.is_set():
            gc.collect()
            count += 1
        return count

    async def main() -> int:
        loop = asyncio.get_running_loop()
        ran = 0

        def callback(cycle: list[Any]) -> None:
            nonlocal ran
            ran += 1

        for _ in range(30 * STRESS):
            for _ in range(50):
                cycle: list[Any] = []
                cycle.append(cycle)
                loop.call_soon(callback, cycle)
                loop.call_later(0.001, callback, cycle).cancel()
                loop.call_soon_threadsafe(callback, cycle)
            await asyncio.sleep(0)
        return ran

    def run() -> int:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(main())

    def run_all() -> list[int]:
        try:
            return in_threads([run] * 2)
        finally:
            done.set()

    results: list[Any] = in_threads([run_all, collect])
    assert results[0] == [30 * STRESS * 100] * 2
    assert results[1] > 0
