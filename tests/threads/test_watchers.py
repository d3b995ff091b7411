"""Calls that asyncio allows from other threads while the loop waits: watching, scheduling, creating."""

from __future__ import annotations

import asyncio
import os
import socket
import sysconfig
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests import support

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Loop = asyncio.AbstractEventLoop
Pair = tuple[socket.socket, socket.socket]

ROUNDS = 50


@pytest.fixture
def pair() -> Iterator[Pair]:
    left, right = socket.socketpair()
    for end in (left, right):
        end.setblocking(False)
    yield left, right
    left.close()
    right.close()


@pytest.fixture(autouse=True)
def _oracle(loop_name: str) -> None:
    if loop_name == support.ORACLE and sysconfig.get_config_var("Py_GIL_DISABLED"):
        pytest.skip("without the interpreter lock asyncio's own threads trip over each other")


@pytest.fixture
def rounds(loop_name: str) -> int:
    """How often a descriptor is watched again.

    asyncio's loop unregisters by number where it finds a cancelled watcher, and so, now and then,
    the next watcher of that number.
    """
    return 1 if loop_name == support.ORACLE else ROUNDS


def in_thread(run: Callable[..., Any], loop: Loop, work: Callable[[], None]) -> None:
    """Do `work` in another thread while the loop waits; raise here what it raises."""

    async def main() -> None:
        done = asyncio.Event()
        failures: list[BaseException] = []

        def body() -> None:
            try:
                time.sleep(0.01)
                work()
            except BaseException as failure:
                failures.append(failure)
            finally:
                loop.call_soon_threadsafe(done.set)

        thread = threading.Thread(target=body)
        thread.start()
        await support.within(done.wait())
        thread.join()
        for failure in failures:
            raise failure

    run(main())


def wait_for(flag: threading.Event) -> None:
    assert flag.wait(support.PATIENCE_SECONDS)


def test_watcher_of_another_thread_is_called_and_removed_there(
    loop: Loop, run: Callable[..., Any], pair: Pair, rounds: int
) -> None:
    left, right = pair
    heard = threading.Event()

    def readable() -> None:
        left.recv(100)
        heard.set()

    def work() -> None:
        for _ in range(rounds):
            heard.clear()
            loop.add_reader(left, readable)
            loop.call_soon_threadsafe(int)
            right.send(b"x")
            wait_for(heard)
            assert loop.remove_reader(left) is True
            assert loop.remove_reader(left) is False

    in_thread(run, loop, work)


def test_watcher_removed_in_another_thread_is_not_called(
    loop: Loop, run: Callable[..., Any], pair: Pair
) -> None:
    left, right = pair
    calls: list[str] = []

    def work() -> None:
        assert loop.remove_reader(left) is True
        right.send(b"x")
        time.sleep(0.02)

    loop.add_reader(left, calls.append, "readable")
    in_thread(run, loop, work)
    assert calls == []


def test_both_directions_are_watched_from_another_thread(
    loop: Loop, run: Callable[..., Any], pair: Pair, rounds: int
) -> None:
    left, right = pair
    readable, writable = threading.Event(), threading.Event()

    def work() -> None:
        for _ in range(rounds):
            readable.clear()
            writable.clear()
            loop.add_writer(left, writable.set)
            loop.add_reader(left, lambda: (left.recv(9), readable.set()))
            loop.call_soon_threadsafe(int)
            wait_for(writable)
            right.send(b"x")
            wait_for(readable)
            assert loop.remove_reader(left) is True
            assert loop.remove_writer(left) is True
            assert loop.remove_writer(left) is False

    in_thread(run, loop, work)


def test_descriptor_is_closed_right_after_its_watcher_was_removed(
    loop: Loop, run: Callable[..., Any], rounds: int
) -> None:
    """Its number is reused at once and watched again, as tornado does with zmq sockets."""

    def work() -> None:
        for _ in range(rounds):
            reader, writer = os.pipe()
            heard = threading.Event()
            loop.add_reader(reader, heard.set)
            loop.call_soon_threadsafe(int)
            os.write(writer, b"x")
            wait_for(heard)
            assert loop.remove_reader(reader) is True
            os.close(reader)
            os.close(writer)

    in_thread(run, loop, work)


def test_bad_descriptors_are_refused_in_other_threads(loop: Loop, run: Callable[..., Any]) -> None:
    def work() -> None:
        with pytest.raises(ValueError, match="Invalid file descriptor: -1"):
            loop.add_reader(-1, print)
        with pytest.raises(OSError, match="Bad file descriptor"):
            loop.add_reader(1 << 20, print)
        assert loop.remove_reader(1 << 20) is False

    in_thread(run, loop, work)


def test_threads_watch_at_once(loop: Loop, loop_name: str, run: Callable[..., Any]) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio's loop may unregister a socket that its thread has closed meanwhile")

    def watch() -> None:
        left, right = socket.socketpair()
        with left, right:
            for _ in range(ROUNDS):
                heard = threading.Event()
                loop.add_reader(left, heard.set)
                loop.call_soon_threadsafe(int)
                right.send(b"x")
                wait_for(heard)
                assert loop.remove_reader(left) is True
                assert left.recv(9) == b"x"

    def work() -> None:
        threads = [threading.Thread(target=watch) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(support.PATIENCE_SECONDS)
            assert not thread.is_alive()

    in_thread(run, loop, work)


def test_removal_does_not_deadlock_with_a_callback(
    loop: Loop, run: Callable[..., Any], pair: Pair
) -> None:
    left, _ = pair
    loop.add_reader(left, int)
    removed: list[bool] = []

    async def main() -> None:
        thread = threading.Thread(target=lambda: removed.append(loop.remove_reader(left)))
        thread.start()
        # The loop is in a callback, so it does not wait in the kernel.
        thread.join(support.PATIENCE_SECONDS)
        assert removed == [True]

    run(main())


def test_other_methods_that_asyncio_allows_from_threads(
    loop: Loop, run: Callable[..., Any]
) -> None:
    """Each takes effect at the latest when the loop wakes."""
    done: list[str] = []

    def work() -> None:
        loop.call_soon(done.append, "soon")
        loop.call_later(0, done.append, "later")
        loop.call_at(loop.time(), done.append, "at").cancelled()
        loop.call_later(100, done.append, "never").cancel()
        future = loop.create_future()
        future.add_done_callback(lambda _: done.append("future"))
        future.set_result(None)

        async def step() -> None:
            done.append("task")

        task = loop.create_task(step())
        assert not task.done()
        loop.run_in_executor(None, int)
        assert loop.is_running()
        assert not loop.is_closed()
        assert loop.get_debug() is False
        loop.set_exception_handler(None)
        loop.call_soon_threadsafe(int)
        deadline = time.monotonic() + support.PATIENCE_SECONDS
        while len(done) < 5 and time.monotonic() < deadline:
            time.sleep(0.001)

    in_thread(run, loop, work)
    assert sorted(done) == ["at", "future", "later", "soon", "task"]
    run(loop.shutdown_default_executor())


def test_stop_from_another_thread_ends_the_run_when_the_loop_wakes(loop: Loop) -> None:
    def work() -> None:
        time.sleep(0.01)
        loop.stop()
        loop.call_soon_threadsafe(int)

    thread = threading.Thread(target=work)
    thread.start()
    loop.run_forever()
    thread.join()
