"""`ringloop.testing.VirtualLoop`: a clock that jumps, and that waits for what is real.

Programs of timers give the same order of events there as on asyncio's loop in real time.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from ringloop.testing import DeadlockError, VirtualLoop, _virtual
from tests import support

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.one_thread("the clock looks at the threads of the process")

HOUR = 3600.0
# How little an hour may take on a busy machine.
SOON = 30.0


@pytest.fixture(params=support.DRIVERS)
def virtual(request: pytest.FixtureRequest, leak_check: None) -> Iterator[VirtualLoop]:
    support.usable_loop(f"ringloop-{request.param}")
    loop = VirtualLoop(driver=request.param)
    yield loop
    if left := support.close_loop(loop):
        pytest.fail("tasks left on the loop: " + "; ".join(left))


def test_an_hour_of_sleeps_takes_no_time(virtual: VirtualLoop) -> None:
    async def main() -> None:
        for _ in range(3600):
            await asyncio.sleep(1)

    began = time.monotonic()
    virtual.run_until_complete(main())
    assert virtual.time() == HOUR
    assert time.monotonic() - began < SOON


def test_clock_starts_where_it_is_told_and_stands_still_between_timers(
    leak_check: None,
) -> None:
    loop = VirtualLoop(start=1000.0)
    times = []

    async def main() -> None:
        times.append(loop.time())
        for _ in range(1000):
            await asyncio.sleep(0)
        times.append(loop.time())
        await asyncio.sleep(0.25)
        times.append(loop.time())

    loop.run_until_complete(main())
    loop.close()
    assert times == [1000.0, 1000.0, 1000.25]
    for wrong in (-1, float("nan")):
        with pytest.raises(ValueError, match="io_wait is "):
            VirtualLoop(io_wait=wrong)


def test_scheduled_timers_can_be_read(virtual: VirtualLoop) -> None:
    later = virtual.call_later(3600, int)
    soon = virtual.call_later(60, int)
    assert virtual._scheduled == (soon, later)
    virtual.call_later(61, virtual.stop)
    virtual.run_forever()
    assert virtual._scheduled == (later,)


def test_timeouts_fire_at_their_time(virtual: VirtualLoop) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(HOUR):
                await asyncio.sleep(2 * HOUR)
        assert virtual.time() == HOUR
        assert await asyncio.wait_for(asyncio.sleep(10, "slept"), 20) == "slept"
        assert virtual.time() == HOUR + 10
        done, pending = await asyncio.wait(
            [asyncio.ensure_future(asyncio.sleep(seconds)) for seconds in (1, 5, 9)], timeout=5
        )
        assert (len(done), len(pending)) in {(1, 2), (2, 1)}
        await asyncio.wait(pending)
        assert virtual.time() == HOUR + 19

    virtual.run_until_complete(main())


# --- the oracle is asyncio's loop in real time ----------------------------------------------------

# Real seconds of one unit there, and how far timers are apart at least.
UNIT = 0.02


class Story:
    """A program of sleeps, timeouts, queues and cancellations, by chance, that notes its events."""

    def __init__(self, seed: int, unit: float) -> None:
        self.unit = unit
        self.events: list[str] = []
        self.queue: asyncio.Queue[str] = asyncio.Queue(2)
        # No two timers fall together: in real time their order would be chance.
        self.instants = list(range(1, 40))
        random.Random(seed).shuffle(self.instants)

    async def run(self) -> list[str]:
        take = self.instants.pop
        async with asyncio.TaskGroup() as group:
            group.create_task(self.consume(6))
            for name in "ab":
                group.create_task(self.produce(name, take()))
            for name in "cdef":
                group.create_task(self.sleep(name, take()))
            for name in "ghij":
                group.create_task(self.sleep_with_limit(name, take(), take()))
            for name in "kl":
                group.create_task(self.be_cancelled(name, take()))
        return self.events

    async def sleep(self, name: str, units: int) -> None:
        await asyncio.sleep(units * self.unit)
        self.events.append(f"{name} slept")

    async def sleep_with_limit(self, name: str, units: int, limit: int) -> None:
        try:
            async with asyncio.timeout(limit * self.unit):
                await self.sleep(name, units)
        except TimeoutError:
            self.events.append(f"{name} timed out")

    async def produce(self, name: str, units: int) -> None:
        await self.sleep(name, units)
        for number in range(3):
            await self.queue.put(f"{name}{number}")
            self.events.append(f"{name} put {number}")

    async def consume(self, count: int) -> None:
        for _ in range(count):
            item = await self.queue.get()
            self.events.append(f"got {item}")

    async def be_cancelled(self, name: str, units: int) -> None:
        sleeping = asyncio.ensure_future(asyncio.sleep(1000 * self.unit))
        asyncio.get_running_loop().call_later(units * self.unit, sleeping.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await sleeping
        self.events.append(f"{name} was cancelled")


@pytest.mark.parametrize("seed", range(6))
def test_events_come_in_the_order_of_real_time(virtual: VirtualLoop, seed: int) -> None:
    expected: list[str] = []

    async def in_real_time() -> None:
        expected[:] = await Story(seed, UNIT).run()

    async def attempt() -> None:
        # On the oracle, for as long as this machine lets it run in time.
        await support.while_scheduled(in_real_time, UNIT / 2)

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(attempt())
    began = virtual.time()
    assert virtual.run_until_complete(Story(seed, UNIT).run()) == expected
    # And whatever the unit is.
    assert virtual.run_until_complete(Story(seed, HOUR).run()) == expected
    assert virtual.time() - began > HOUR


# --- what is real is waited for -------------------------------------------------------------------


def test_job_of_an_executor_holds_the_clock(virtual: VirtualLoop) -> None:
    gate = threading.Event()

    async def main() -> None:
        job = virtual.run_in_executor(None, gate.wait)
        sleeping = asyncio.ensure_future(asyncio.sleep(1))
        # Real time passes, virtual time does not.
        threading.Timer(0.1, gate.set).start()
        assert await job is True
        assert virtual.time() == 0
        await sleeping
        assert virtual.time() == 1
        assert await asyncio.to_thread(threading.active_count) >= 1
        assert virtual.time() == 1

    virtual.run_until_complete(main())
    virtual.run_until_complete(virtual.shutdown_default_executor())


def test_look_up_and_child_hold_the_clock(virtual: VirtualLoop) -> None:
    async def main() -> None:
        sleeping = asyncio.ensure_future(asyncio.sleep(HOUR))
        found = await virtual.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)
        assert found
        program = "import time; time.sleep(0.1); print('done')"
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, stdout=subprocess.PIPE
        )
        output, _ = await child.communicate()
        assert output == b"done\n"
        assert virtual.time() == 0
        await sleeping

    virtual.run_until_complete(main())


def test_sockets_work_and_no_timeout_fires_while_they_do(virtual: VirtualLoop) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await asyncio.sleep(0.5)
            writer.write(data)
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        for _ in range(20):
            writer.write(b"x" * 1000)
            async with asyncio.timeout(0.6):
                assert await reader.readexactly(1000) == b"x" * 1000
        assert virtual.time() == 10
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()

    virtual.run_until_complete(main())


def test_silent_peer_is_waited_for_until_io_wait_is_over(leak_check: None) -> None:
    loop = VirtualLoop(io_wait=0.05)
    ours, theirs = socket.socketpair()

    async def main() -> float:
        reader, writer = await asyncio.open_connection(sock=ours)
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(HOUR):
                await reader.read(1)
        took = time.monotonic() - began
        writer.close()
        await writer.wait_closed()
        return took

    with theirs:
        assert 0.05 <= loop.run_until_complete(main()) < SOON
    assert loop.time() == HOUR
    loop.close()


def test_peer_that_answers_in_time_comes_before_the_timer(virtual: VirtualLoop) -> None:
    ours, theirs = socket.socketpair()

    async def main() -> None:
        reader, writer = await asyncio.open_connection(sock=ours)
        with virtual.holding_time():
            threading.Timer(0.1, theirs.sendall, (b"late",)).start()
            async with asyncio.timeout(0.001):
                assert await reader.readexactly(4) == b"late"
        writer.close()
        await writer.wait_closed()

    with theirs:
        virtual.run_until_complete(main())
    assert virtual.time() == 0


def test_thread_that_reports_by_itself_is_waited_for(virtual: VirtualLoop) -> None:
    async def main() -> str:
        future: asyncio.Future[str] = virtual.create_future()

        def report() -> None:
            time.sleep(0.05)
            virtual.call_soon_threadsafe(future.set_result, "reported")

        threading.Thread(target=report).start()
        return await future

    assert virtual.run_until_complete(main()) == "reported"


# --- deadlocks ------------------------------------------------------------------------------------


def test_deadlock_names_the_tasks_and_where_they_wait(virtual: VirtualLoop) -> None:
    async def inner(lock: asyncio.Lock) -> None:
        await lock.acquire()

    async def holder() -> None:
        lock = asyncio.Lock()
        await lock.acquire()
        await inner(lock)

    async def main() -> None:
        await asyncio.sleep(5)
        task = asyncio.create_task(holder(), name="the holder")
        await task

    with pytest.raises(DeadlockError) as caught:
        virtual.run_until_complete(main())
    text = str(caught.value)
    assert text.startswith("nothing can happen any more at virtual time 5: ")
    assert "\n  the holder: " in text
    assert "holder > " in text
    assert "inner > Lock.acquire (" in text
    assert "main (" in text
    for task in asyncio.all_tasks(virtual):
        task.cancel()
    virtual.run_until_complete(asyncio.sleep(0))


def test_deadlock_without_tasks_says_so(virtual: VirtualLoop) -> None:
    with pytest.raises(DeadlockError, match="no task waits: stop the loop"):
        virtual.run_forever()
    # It goes on.
    virtual.call_later(3, virtual.stop)
    virtual.run_forever()
    assert virtual.time() == 3


def test_stop_before_and_inside_of_a_run(virtual: VirtualLoop) -> None:
    ran: list[int] = []
    virtual.call_soon(ran.append, 1)
    virtual.call_later(5, ran.append, 5)
    virtual.stop()
    virtual.run_forever()  # one turn
    assert ran == [1]
    assert virtual.time() == 0
    virtual.call_later(7, virtual.stop)
    virtual.call_later(7, ran.append, 7)
    virtual.call_later(8, ran.append, 8)
    virtual.run_forever()
    assert ran == [1, 5, 7]
    assert virtual.time() == 7
    virtual.run_until_complete(asyncio.sleep(1))
    assert ran == [1, 5, 7, 8]


def test_timers_are_handles_that_can_be_cancelled(virtual: VirtualLoop) -> None:
    ran: list[int] = []
    handles = [virtual.call_later(number, ran.append, number) for number in range(1, 6)]
    assert [handle.when() for handle in handles] == [1, 2, 3, 4, 5]
    handles[1].cancel()
    virtual.call_later(2.5, handles[3].cancel)
    virtual.run_until_complete(asyncio.sleep(10))
    assert ran == [1, 3, 5]
    with pytest.raises(TypeError, match="delay must not be None"):
        virtual.call_later(None, print)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="when cannot be None"):
        virtual.call_at(None, print)  # type: ignore[arg-type]


def test_error_of_a_callback_goes_to_the_handler(virtual: VirtualLoop) -> None:
    contexts: list[dict[str, object]] = []
    virtual.set_exception_handler(lambda _, context: contexts.append(context))
    virtual.call_later(5, lambda: 1 / 0)
    virtual.run_until_complete(asyncio.sleep(6))
    assert [type(context["exception"]) for context in contexts] == [ZeroDivisionError]


def test_interrupt_leaves_the_loop_and_it_goes_on(virtual: VirtualLoop) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    virtual.call_later(5, interrupt)
    with pytest.raises(KeyboardInterrupt):
        virtual.run_until_complete(asyncio.sleep(0))
        virtual.run_forever()
    virtual.run_until_complete(asyncio.sleep(5))
    assert virtual.time() == 10


def test_watched_descriptor_and_socket_methods_are_waited_for(virtual: VirtualLoop) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)

    async def main() -> None:
        receiving = asyncio.ensure_future(virtual.sock_recv(ours, 10))
        virtual.call_soon(theirs.send, b"first")
        async with asyncio.timeout(0.001):
            assert await receiving == b"first"
        arrived = asyncio.Event()
        virtual.add_reader(ours, arrived.set)
        virtual.call_soon(theirs.send, b"second")
        async with asyncio.timeout(0.001):
            await arrived.wait()
        assert virtual.remove_reader(ours)
        # Nothing is open any more: no time passes for the next jump.
        assert not _virtual._may_get_io(virtual)
        await asyncio.sleep(HOUR)

    with ours, theirs:
        virtual.run_until_complete(main())


def test_messages_of_protocols_come_before_timers(virtual: VirtualLoop) -> None:
    """Nothing but the loop's own callbacks runs: no future, no task, no call_soon."""
    volleys = 200

    class Player(asyncio.Protocol):
        def __init__(self) -> None:
            self.count = 0

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport: asyncio.WriteTransport = transport  # type: ignore[assignment]

        def data_received(self, data: bytes) -> None:
            self.count += 1
            if self.count < volleys:
                self.transport.write(data)

    async def main() -> None:
        one, other = socket.socketpair()
        left, first = await virtual.create_connection(Player, sock=one)
        right, second = await virtual.create_connection(Player, sock=other)
        left.write(b"ball")
        await asyncio.sleep(0.001)
        assert (first.count, second.count) == (volleys - 1, volleys)
        for transport in (left, right):
            transport.close()
        await asyncio.sleep(1)

    virtual.run_until_complete(main())


def test_asyncio_run_takes_it_as_factory(leak_check: None) -> None:
    async def main() -> float:
        await asyncio.sleep(HOUR)
        return asyncio.get_running_loop().time()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(main()) == HOUR


def test_sleep_for_ever_is_never_over(virtual: VirtualLoop) -> None:
    async def main() -> None:
        await asyncio.sleep(math.inf)

    with pytest.raises(TimeoutError):
        virtual.run_until_complete(asyncio.wait_for(main(), HOUR))
    assert virtual.time() == HOUR
    with pytest.raises(DeadlockError, match="nothing can happen any more at virtual time 3600"):
        virtual.run_until_complete(main())
    assert virtual.time() == HOUR
    for task in asyncio.all_tasks(virtual):
        task.cancel()
    virtual.run_until_complete(asyncio.sleep(0))


def test_time_that_is_no_number_is_due_at_once(virtual: VirtualLoop) -> None:
    """As on asyncio's loop; the clock stood still for ever."""
    ran: list[str] = []
    virtual.call_later(1, ran.append, "later")
    virtual.call_later(math.nan, ran.append, "nan")
    virtual.call_at(math.nan, ran.append, "at nan")
    virtual.call_later(2, virtual.stop)
    virtual.run_forever()
    assert ran == ["nan", "at nan", "later"]
    assert virtual.time() == 2


@pytest.mark.parametrize("wrong", ["1", None, 1j, []])
def test_wrong_times_leave_the_timers_as_they_were(virtual: VirtualLoop, wrong: Any) -> None:
    virtual.call_later(1, virtual.stop)
    for schedule in (virtual.call_at, virtual.call_later):
        with pytest.raises(TypeError):
            schedule(wrong, print)
    virtual.call_later(0.5, int)
    virtual.run_forever()
    assert virtual.time() == 1


@pytest.mark.parametrize("start", [math.nan, math.inf])
def test_clock_starts_at_a_finite_time(start: float) -> None:
    with pytest.raises(ValueError, match="give seconds, a finite number"):
        VirtualLoop(start=start)


def test_watcher_of_a_socket_closed_before_it_is_removed(virtual: VirtualLoop) -> None:
    """It counted as open I/O for ever: a deadlock was waited for."""
    left, right = socket.socketpair()
    virtual.add_reader(left, print)
    left.close()
    assert virtual.remove_reader(left)
    right.close()
    with pytest.raises(DeadlockError):
        virtual.run_until_complete(virtual.create_future())
