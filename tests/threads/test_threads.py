"""Loops and threads: created in one and run in another, several at once, and used from a wrong one."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import (
    Echo,
    Factory,
    Recorder,
    ask,
    closed,
    connected,
    pattern,
    serving,
    socket_pair,
)
from tests.support.tls import connected_tls

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.support import LoopFactory
    from tests.support.tls import Certificates

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

NOT_THREAD_SAFE = "Non-thread-safe operation invoked on an event loop other than the current one"


def in_thread(use: Callable[[], Any]) -> Any:
    """Call `use` in a new thread; return or raise its result."""
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        return executor.submit(use).result(timeout=support.PATIENCE_SECONDS)


async def echo_once() -> bytes:
    async with serving(Factory()) as (_, address):
        return await ask(address)


# --- which thread runs a loop ---------------------------------------------------------------------


def test_loop_built_in_one_thread_runs_in_another(loop_factory: LoopFactory) -> None:
    loop = loop_factory()
    assert in_thread(lambda: loop.run_until_complete(echo_once())) == b"ping"
    loop.close()


def test_loop_built_and_scheduled_on_runs_in_another_thread(loop_factory: LoopFactory) -> None:
    loop = loop_factory()
    order: list[str] = []
    loop.call_soon(order.append, "soon")
    loop.call_later(0.001, order.append, "later")
    loop.call_soon_threadsafe(order.append, "threadsafe")
    read_end, write_end = os.pipe()
    loop.add_reader(read_end, lambda: (order.append("readable"), os.read(read_end, 10)))
    os.write(write_end, b"x")
    everything = support.wait_until(lambda: len(order) >= 4)
    in_thread(lambda: loop.run_until_complete(everything))
    assert sorted(order) == ["later", "readable", "soon", "threadsafe"]
    assert order.index("soon") < order.index("threadsafe")
    loop.remove_reader(read_end)
    loop.close()
    os.close(read_end)
    os.close(write_end)


def test_loop_continues_in_one_thread_after_another(loop_factory: LoopFactory) -> None:
    loop = loop_factory()
    for _ in range(3):
        assert in_thread(lambda: loop.run_until_complete(echo_once())) == b"ping"
        assert loop.run_until_complete(echo_once()) == b"ping"
    loop.close()


def test_loop_that_ran_in_a_thread_is_closed_in_another(loop_factory: LoopFactory) -> None:
    loop = loop_factory()
    in_thread(lambda: loop.run_until_complete(asyncio.sleep(0.001)))
    loop.close()
    other = loop_factory()
    other.run_until_complete(asyncio.sleep(0.001))
    in_thread(other.close)
    assert other.is_closed()


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_running_loop_is_not_run_twice(loop_factory: LoopFactory) -> None:
    loop = loop_factory()
    said: list[str] = []

    def again(use: Callable[[], Any]) -> None:
        with pytest.raises(RuntimeError) as caught:
            use()
        said.append(str(caught.value))

    async def main() -> None:
        again(loop.run_forever)
        again(lambda: loop.run_until_complete(loop.create_future()))
        await asyncio.to_thread(again, loop.run_forever)
        with contextlib.closing(loop_factory()) as other:
            again(other.run_forever)
        again(loop.close)

    loop.run_until_complete(main())
    assert said == [
        "This event loop is already running",
        "This event loop is already running",
        "This event loop is already running",
        "Cannot run the event loop while another loop is running",
        "Cannot close a running event loop",
    ]
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


# --- several loops --------------------------------------------------------------------------------


def test_loops_in_threads_side_by_side(loop_factory: LoopFactory) -> None:
    def work() -> int:
        async def main() -> int:
            async with serving(Factory()) as (_, address):
                answers = [await ask(address, b"%d" % number) for number in range(20)]
            return len(set(answers))

        loop = loop_factory()
        try:
            return loop.run_until_complete(main())
        finally:
            loop.close()

    with concurrent.futures.ThreadPoolExecutor(4) as executor:
        done = [executor.submit(work) for _ in range(8)]
        assert [future.result(timeout=60) for future in done] == [20] * 8


def test_loops_call_each_other(loop: Any, loop_factory: LoopFactory) -> None:
    other: Any = loop_factory()
    thread = threading.Thread(target=other.run_forever)
    thread.start()

    async def double(number: int) -> int:
        await asyncio.sleep(0)
        assert asyncio.get_running_loop() is other
        return 2 * number

    async def main() -> list[int]:
        futures = [
            asyncio.wrap_future(asyncio.run_coroutine_threadsafe(double(number), other))
            for number in range(100)
        ]
        return await support.within(asyncio.gather(*futures))

    assert loop.run_until_complete(main()) == [2 * number for number in range(100)]
    other.call_soon_threadsafe(other.stop)
    thread.join(support.PATIENCE_SECONDS)
    other.close()


def test_stop_from_another_thread(loop: Any) -> None:
    def stop() -> None:
        support.wait_until_blocking(loop.is_running)
        loop.call_soon_threadsafe(loop.stop)

    thread = threading.Thread(target=stop)
    thread.start()
    loop.run_forever()
    thread.join()


# --- a wrong thread -------------------------------------------------------------------------------


def from_a_thread(use: Callable[[], Any]) -> list[BaseException]:
    """Call `use` in a new thread; return what it raised."""
    try:
        in_thread(use)
    except BaseException as error:
        return [error]
    return []


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(lambda loop: loop.call_soon(print), id="call_soon"),
        pytest.param(lambda loop: loop.call_later(1, print), id="call_later"),
        pytest.param(lambda loop: loop.call_at(1, print), id="call_at"),
    ],
)
def test_debug_mode_names_the_wrong_thread(loop: Any, run: Run, use: Callable[[Any], Any]) -> None:
    loop.set_debug(True)

    async def main() -> list[BaseException]:
        return from_a_thread(lambda: use(loop))

    (error,) = run(main())
    assert type(error) is RuntimeError
    assert str(error) == NOT_THREAD_SAFE
    # A loop that does not run has no thread.
    assert from_a_thread(lambda: use(loop).cancel()) == []
    loop.set_debug(False)


def test_debug_mode_allows_call_soon_threadsafe(loop: Any, run: Run) -> None:
    loop.set_debug(True)
    ran: list[int] = []

    async def main() -> None:
        assert from_a_thread(lambda: loop.call_soon_threadsafe(ran.append, 1)) == []
        await support.wait_until(lambda: ran)

    run(main())
    loop.set_debug(False)


@pytest.mark.parametrize(
    "method", ["write", "writelines", "write_eof", "pause_reading", "close", "abort"]
)
def test_debug_mode_names_the_wrong_thread_of_a_transport(
    loop_name: str, loop: Any, run: Run, method: str
) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio sends from any thread and does not notice")
    loop.set_debug(True)
    arguments = {"write": (b"x",), "writelines": ([b"x", b"y"],)}.get(method, ())

    async def main() -> None:
        async with connected(Recorder()) as (transport, peer):
            (error,) = from_a_thread(lambda: getattr(transport, method)(*arguments))
            assert type(error) is RuntimeError
            assert str(error) == NOT_THREAD_SAFE
            # It had no effect.
            transport.write(b"right")
            assert await peer.receive(5) == b"right"
            assert transport.is_reading()

    run(main())
    loop.set_debug(False)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_write_in_a_wrong_thread_arrives(run: Run, kind: Callable[[bytes], Any]) -> None:
    async def main() -> None:
        async with connected(Recorder()) as (transport, peer):
            data = kind(b"from elsewhere")

            def use() -> None:
                transport.write(data)
                transport.writelines([kind(b", and"), kind(b" more")])

            # The loop is asleep: only the write itself may wake it.
            await asyncio.to_thread(use)
            assert await peer.receive(24) == b"from elsewhere, and more"

    run(main())


def test_write_in_a_wrong_thread_wakes_a_loop_that_sleeps(loop: Any) -> None:
    ours, theirs = socket_pair()
    theirs.settimeout(support.PATIENCE_SECONDS)
    transport, _ = loop.run_until_complete(loop.create_connection(Recorder, sock=ours))
    got: list[bytes] = []

    def other() -> None:
        support.wait_until_blocking(loop.is_running)
        time.sleep(0.02)  # so that it sleeps, without a timeout
        transport.write(b"wake up")
        got.append(theirs.recv(100))
        loop.call_soon_threadsafe(loop.stop)

    thread = threading.Thread(target=other)
    thread.start()
    loop.run_forever()
    thread.join()
    assert got == [b"wake up"]
    transport.abort()
    loop.run_until_complete(closed(transport))
    theirs.close()


@pytest.mark.parametrize("kind", ["pipe", "datagrams"])
def test_other_transports_in_a_wrong_thread_wake_the_loop(loop: Any, kind: str) -> None:
    async def make() -> tuple[Any, Callable[[], bytes]]:
        if kind == "pipe":
            read_end, write_end = os.pipe()
            file = os.fdopen(write_end, "wb", buffering=0)
            transport, _ = await loop.connect_write_pipe(asyncio.Protocol, file)
            reading = os.fdopen(read_end, "rb", buffering=0)
            ends.append(reading)
            return transport, lambda: reading.read(100)
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(support.PATIENCE_SECONDS)
        ends.append(receiver)
        transport, _ = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, remote_addr=receiver.getsockname()
        )
        return transport, lambda: receiver.recv(100)

    ends: list[Any] = []
    transport, read = loop.run_until_complete(make())
    send = transport.write if kind == "pipe" else transport.sendto
    got: list[bytes] = []

    def other() -> None:
        support.wait_until_blocking(loop.is_running)
        time.sleep(0.02)  # so that it sleeps, without a timeout
        send(b"wake up")
        got.append(read())
        transport.abort()
        loop.call_soon_threadsafe(loop.stop)

    thread = threading.Thread(target=other)
    thread.start()
    loop.run_forever()
    thread.join()
    assert got == [b"wake up"]
    assert transport.is_closing()
    loop.run_until_complete(asyncio.sleep(0.01))
    for end in ends:
        end.close()


@pytest.mark.parametrize("kind", ["pipe", "tls"])
def test_late_writes_of_a_wrong_thread_are_counted_in_the_loop_thread(
    loop_name: str,
    loop: Any,
    run: Run,
    certificates: Certificates,
    caplog: pytest.LogCaptureFixture,
    kind: str,
) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio writes in the thread that calls")

    def write_late(transport: Any) -> None:
        for _ in range(limit):
            if kind == "pipe":
                transport.write(b"late")
            else:
                transport.writelines([b"late"])

    async def check(transport: Any) -> None:
        in_thread(lambda: write_late(transport))
        assert not caplog.records
        await support.wait_until(lambda: caplog.records)

    async def over_tls() -> None:
        async with connected_tls(Recorder(), certificates) as (transport, _peer):
            transport.abort()
            await check(transport)

    async def over_a_pipe() -> None:
        left, right = socket_pair()
        transport, _ = await loop.connect_write_pipe(asyncio.Protocol, left)
        transport.close()
        await check(transport)
        right.close()

    # More than asyncio ignores silently.
    limit = 8
    run(over_a_pipe() if kind == "pipe" else over_tls())
    assert {record.thread for record in caplog.records} == {threading.get_ident()}


def test_writes_of_a_wrong_thread_keep_their_order(loop_name: str, run: Run) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio's two threads may both send what did not fit at once")
    sent = pattern(300_000)

    async def main() -> None:
        async with connected(Recorder()) as (transport, peer):

            def use() -> None:
                for start in range(0, len(sent), 1000):
                    transport.write(sent[start : start + 1000])

            writing = asyncio.ensure_future(asyncio.to_thread(use))
            assert await peer.receive(len(sent)) == sent
            await writing

    run(main())


def test_wrong_data_in_a_wrong_thread_raises_there(run: Run) -> None:
    async def main() -> None:
        async with connected(Recorder()) as (transport, peer):
            (error,) = from_a_thread(lambda: transport.write("text"))
            assert isinstance(error, TypeError)
            transport.write_eof()
            (error,) = from_a_thread(lambda: transport.write(b"late"))
            assert str(error) == "Cannot call write() after write_eof()"
            assert await peer.receive_all() == b""

    run(main())


@pytest.mark.parametrize("method", ["close", "abort"])
def test_end_in_a_wrong_thread_ends_the_connection(loop_name: str, run: Run, method: str) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected(protocol) as (transport, peer):
            await asyncio.to_thread(getattr(transport, method))
            await protocol.until_lost()
            assert await peer.receive_all() == b""

    run(main())


def test_transport_in_many_threads_at_once(loop_name: str, loop: Any, run: Run) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio promises nothing here")
    left, right = socket_pair()
    right.setblocking(False)
    protocol = Recorder()
    errors: list[BaseException] = []

    def abuse(use: Callable[[], Any]) -> None:
        for _ in range(500):
            try:
                use()
            except BaseException as error:
                errors.append(error)
            # Sometimes while the loop sleeps.
            time.sleep(0.0001)

    async def main() -> None:
        transport: Any
        transport, _ = await loop.create_connection(lambda: protocol, sock=left)
        uses = (
            lambda: transport.write(b"x" * 100),
            lambda: transport.writelines([b"y" * 100, b"z"]),
            transport.pause_reading,
            transport.resume_reading,
            lambda: repr(transport),
            transport.get_write_buffer_size,
        )
        threads = [threading.Thread(target=abuse, args=(use,)) for use in uses]
        received = 0
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            await asyncio.sleep(0.001)
            with contextlib.suppress(BlockingIOError):
                right.send(b"in")
                received += len(right.recv(1 << 20))
        transport.write(b"end")
        while received < 500 * 201 + 3:
            await asyncio.sleep(0.001)
            with contextlib.suppress(BlockingIOError):
                received += len(right.recv(1 << 20))
        assert received == 500 * 201 + 3
        transport.abort()
        await protocol.until_lost()
        await closed(transport)

    run(support.within(main(), 60))
    right.close()
    assert errors == []
    # The loop still works.
    assert run(asyncio.sleep(0.001, "alive")) == "alive"


def test_thread_switches_do_not_corrupt_an_iteration(loop: Any, run: Run) -> None:
    """Threads that take the GIL at every opportunity, next to a loop with traffic."""
    over = threading.Event()
    interval = sys.getswitchinterval()
    spinning = [
        threading.Thread(target=lambda: [None for _ in iter(over.is_set, True)]) for _ in range(2)
    ]
    sys.setswitchinterval(1e-5)
    try:
        for thread in spinning:
            thread.start()

        async def main() -> None:
            async with serving(Factory(Echo)) as (_, address):
                for number in range(20):
                    assert await ask(address, b"%04d" % number) == b"%04d" % number

        run(support.within(main(), 60))
    finally:
        over.set()
        sys.setswitchinterval(interval)
        for thread in spinning:
            thread.join()
