"""fork(2) in a process with loops: the child creates new ones, the parent is not affected.

A child shares the parent's epoll instance and ring, so it cannot use a loop created before the fork:
the loop raises an error, can be closed, and never touches what is shared.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import itertools
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import Factory, Recorder, ask, closed, serving, socket_pair

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from tests.support import LoopFactory

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

BELONGS_TO_PARENT = (
    "this loop was made before a fork and belongs to the parent process; make a new one"
)
GRACE_SECONDS = int(2 * support.PATIENCE_SECONDS)


@pytest.fixture(autouse=True)
def forks_are_meant() -> Iterator[None]:
    """Since 3.12 Python warns of a fork in a process with threads, rightly."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        yield


def in_child(body: Callable[[], Any]) -> int:
    """Run `body` in a forked child; return its pid. An exception there is exit code 1."""
    sys.stdout.flush()
    sys.stderr.flush()
    if pid := os.fork():
        return pid
    signal.alarm(GRACE_SECONDS)
    code = 1
    try:
        body()
        code = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def assert_succeeds(pid: int) -> None:
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


async def until_succeeds(pid: int) -> None:
    """Wait for the child without blocking the loop."""
    await asyncio.to_thread(assert_succeeds, pid)


async def echo_once() -> None:
    async with serving(Factory()) as (_, address):
        assert await ask(address) == b"ping"


def test_child_of_a_running_loop_has_none(loop: Any, run: Run) -> None:
    async def main() -> None:
        def body() -> None:
            if sys.version_info >= (3, 12):
                assert asyncio._get_running_loop() is None
                with pytest.raises(RuntimeError, match="no running event loop"):
                    asyncio.get_running_loop()

        await until_succeeds(in_child(body))

    run(main())


def test_child_runs_a_loop_of_its_own(loop: Any, loop_factory: LoopFactory, run: Run) -> None:
    async def main() -> None:
        def body() -> None:
            asyncio._set_running_loop(None)
            with asyncio.Runner(loop_factory=loop_factory) as runner:
                runner.run(echo_once())

        pids = [in_child(body) for _ in range(3)]
        await echo_once()
        for pid in pids:
            await until_succeeds(pid)
        await echo_once()

    run(main())


def test_child_of_an_idle_loop_runs_a_loop_of_its_own(
    loop: Any, loop_factory: LoopFactory, run: Run
) -> None:
    run(echo_once())

    def body() -> None:
        other = loop_factory()
        other.run_until_complete(echo_once())
        other.close()

    assert_succeeds(in_child(body))
    run(echo_once())


def test_loop_from_before_the_fork_names_the_remedy(loop_name: str, loop: Any, run: Run) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio's child shares the epoll instance with its parent, and goes on")
    run(asyncio.sleep(0.001))
    read_end, write_end = os.pipe()

    def body() -> None:
        uses: list[Callable[[], Any]] = [
            loop.run_forever,
            lambda: loop.run_until_complete(loop.create_future()),
            lambda: loop.add_reader(read_end, print),
        ]
        for use in uses:
            with pytest.raises(RuntimeError) as caught:
                use()
            assert str(caught.value) == BELONGS_TO_PARENT
            assert not loop.is_running()
        loop.close()
        assert loop.is_closed()
        loop.close()

    assert_succeeds(in_child(body))
    loop.add_reader(read_end, loop.stop)
    os.write(write_end, b"x")
    loop.run_forever()
    loop.remove_reader(read_end)
    os.close(read_end)
    os.close(write_end)


def test_fork_without_python_hooks(loop_name: str, loop: Any, run: Run) -> None:
    """For example by a C library: no hook of `os.register_at_fork` runs."""
    if loop_name == support.ORACLE:
        pytest.skip("asyncio does not notice")
    run(asyncio.sleep(0))
    pid = ctypes.PyDLL(None).fork()
    if pid == 0:
        code = 1
        try:
            with pytest.raises(RuntimeError, match=BELONGS_TO_PARENT):
                loop.run_forever()
            loop.close()
            code = 0
        finally:
            os._exit(code)
    assert_succeeds(pid)
    run(asyncio.sleep(0))


def test_message_in_the_child_does_not_wake_the_parent(loop_name: str, loop: Any, run: Run) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio's child writes into the socket pair that wakes its parent")

    async def main() -> None:
        def body() -> None:
            with pytest.raises(RuntimeError) as caught:
                loop.call_soon_threadsafe(print)
            # In the thread that ran the loop it is a call_soon, which would never run.
            assert str(caught.value) == BELONGS_TO_PARENT

        def fork_there() -> None:
            assert_succeeds(in_child(body))

        await asyncio.to_thread(fork_there)

    run(main())


def test_close_in_the_child_leaves_the_parents_descriptors_alone(
    loop_name: str, loop: Any, run: Run
) -> None:
    """Watched descriptors, a server and a connection of the parent survive the close in the child."""
    if loop_name == support.ORACLE:
        pytest.skip(
            "asyncio's child unregisters the parent's descriptors from the epoll they share"
        )
    ours, theirs = socket_pair()
    theirs.setblocking(False)
    got: list[bytes] = []
    left, right = socket.socketpair()
    left.setblocking(False)

    async def main() -> None:
        protocol = Recorder()
        transport: Any
        transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
        loop.add_reader(left, lambda: got.append(left.recv(100)))
        async with serving(Factory()) as (_, address):
            assert await ask(address) == b"ping"
            transport.write(b"unsent when the child begins")

            def body() -> None:
                # As if it had left run_forever, which is still in the child's frames.
                loop._thread_id = None
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ResourceWarning)
                    loop.close()
                    del transport_of_the_child[:]
                assert loop.is_closed()

            transport_of_the_child = [transport]
            await until_succeeds(in_child(body))
            assert await ask(address) == b"ping"
            right.send(b"watched")
            theirs.send(b"received")
            await support.wait_until(lambda: got and protocol.data)
            assert got == [b"watched"]
            assert bytes(protocol.data) == b"received"
            await support.wait_until(lambda: received(theirs))
        loop.remove_reader(left)
        transport.abort()
        await protocol.until_lost()
        await closed(transport)

    def received(sock: socket.socket) -> bool:
        with contextlib.suppress(BlockingIOError):
            assert sock.recv(100) == b"unsent when the child begins"
            return True
        return False

    run(main())
    for sock in (theirs, left, right):
        sock.close()


def test_child_that_returns_into_the_loop_is_stopped(
    loop_name: str, loop_factory: LoopFactory
) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio's child takes events from its parent")

    def body() -> None:
        loop = loop_factory()
        read_end, write_end = os.pipe()

        async def main() -> str:
            if os.fork() == 0:
                await loop.create_future()
            loop.add_reader(read_end, done.set_result, None)
            await done
            return "parent"

        done = loop.create_future()
        try:
            result = loop.run_until_complete(main())
        except RuntimeError as error:
            # The child: out of run_forever, and free to continue as a process of its own.
            assert str(error) == BELONGS_TO_PARENT
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                loop.close()
                asyncio.set_event_loop(None)
                other = loop_factory()
                other.run_until_complete(echo_once())
                other.close()
            os.write(write_end, b"x")
            os._exit(0)
        assert result == "parent"
        os.wait()

    assert_succeeds(in_child(body))


# How a child of a running loop may end, and its exit status.
ENDINGS = {"exit": 5, "interrupt": -signal.SIGINT, "error": 1, "return": 0}
# What else is under way at the fork; asyncio's child would take its events from the parent.
PENDING = (
    "sleep",
    "timeout",
    "generator",
    "thread",
    "receive",
    "stream",
    "watcher",
    "child",
    "file",
)
PROGRAM = """
import asyncio, os, signal, socket, sys
from ringloop import fs
from tests import support

async def generate():
    try:
        yield
    finally:
        await asyncio.sleep(0)

async def wait(pending, sock, kept):
    loop = asyncio.get_running_loop()
    match pending:
        case "sleep":
            await asyncio.sleep(100)
        case "timeout":
            async with asyncio.timeout(100):
                await loop.create_future()
        case "generator":
            kept.append(generate())
            await anext(kept[-1])
        case "thread":
            await asyncio.to_thread(int)
        case "receive":
            await loop.sock_recv(sock, 1)
        case "watcher":
            loop.add_reader(sock, sock.recv, 1)
        case "child":
            process = await asyncio.create_subprocess_exec("sleep", "0.3")
            await process.wait()
        case "file":
            async with fs.open("/dev/zero", "rb", buffering=0) as file:
                while True:
                    await file.read(1)

async def main(ending, pending):
    sock, peer = socket.socketpair()
    sock.setblocking(False)
    kept = []
    task = asyncio.create_task(wait(pending, sock, kept))
    await asyncio.sleep(0.02)
    if (child := os.fork()) == 0:
        signal.alarm(60)
        match ending:
            case "exit":
                sys.exit(5)
            case "interrupt":
                raise KeyboardInterrupt
            case "error":
                raise ValueError("an error of the child's")
        return
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    # The parent's loop is as it was.
    peer.send(b"x")
    await asyncio.sleep(0.01)
    if pending == "receive":
        await asyncio.wait_for(task, 10)
    task.cancel()
    print(status)

with asyncio.Runner(loop_factory=support.loop_factory(sys.argv[1])) as runner:
    runner.run(main(*sys.argv[2:]))
"""


@pytest.mark.parametrize(
    ("ending", "pending"),
    [("interrupt", "sleep"), ("error", "sleep"), *itertools.product(("exit", "return"), PENDING)],
)
def test_child_of_a_running_loop_ends_with_its_own_status(
    loop_name: str, ending: str, pending: str
) -> None:
    if sys.version_info >= (3, 14):
        pytest.skip("asyncio's tasks refuse to run in a child, whose thread has no running loop")
    if loop_name == support.ORACLE and pending not in {"sleep", "timeout"}:
        pytest.skip("asyncio's child takes events from its parent")
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, loop_name, ending, pending]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=support.PATIENCE_SECONDS, check=False
    )
    assert (done.stdout.split(), done.returncode) == ([str(ENDINGS[ending])], 0), done.stderr
    said = {"interrupt": "KeyboardInterrupt", "error": "ValueError: an error of the child's"}
    # Nothing but the exception that the child ends with.
    assert done.stderr.splitlines()[-1:] == ([said[ending]] if ending in said else [])
    assert "During handling" not in done.stderr


def test_fork_in_executor_threads_next_to_the_loop(
    loop_factory: LoopFactory, loop: Any, run: Run
) -> None:
    def fork_there() -> None:
        def body() -> None:
            asyncio._set_running_loop(None)
            other = loop_factory()
            other.run_until_complete(echo_once())
            other.close()

        assert_succeeds(in_child(body))

    async def main() -> None:
        async with serving(Factory()) as (_, address):
            forks = asyncio.gather(*(asyncio.to_thread(fork_there) for _ in range(4)))
            while not forks.done():
                assert await ask(address) == b"ping"
            await forks

    run(support.within(main(), 60))


def test_signals_of_the_child_stay_there(loop_name: str, loop: Any, run: Run) -> None:
    """The wake-up descriptor is shared; a number written by the child would signal the parent."""
    if loop_name == support.ORACLE and sys.version_info < (3, 12):
        pytest.skip("asyncio's child gives the wake-up descriptor up from 3.12 on")
    got: list[int] = []
    loop.add_signal_handler(signal.SIGUSR1, got.append, 1)

    async def main() -> None:
        def body() -> None:
            assert signal.set_wakeup_fd(-1) == -1
            signal.signal(signal.SIGUSR1, lambda *_: None)
            os.kill(os.getpid(), signal.SIGUSR1)

        await until_succeeds(in_child(body))
        assert got == []
        os.kill(os.getpid(), signal.SIGUSR1)
        await support.wait_until(lambda: got == [1])

    run(main())
    loop.remove_signal_handler(signal.SIGUSR1)


def test_subprocesses_before_and_after_a_fork(
    loop: Any, loop_factory: LoopFactory, run: Run
) -> None:
    async def code_of_a_child() -> int:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", "raise SystemExit(5)")
        return await support.within(process.wait(), GRACE_SECONDS)

    async def main() -> None:
        def body() -> None:
            asyncio._set_running_loop(None)
            with asyncio.Runner(loop_factory=loop_factory) as runner:
                assert runner.run(code_of_a_child()) == 5
            assert subprocess.run(["true"], check=False).returncode == 0

        assert await code_of_a_child() == 5
        await until_succeeds(in_child(body))
        assert await code_of_a_child() == 5

    run(main())


def _work(loop_name: str, connection: Any) -> None:
    """The body of a multiprocessing child, for each way to start one."""
    with asyncio.Runner(loop_factory=support.loop_factory(loop_name)) as runner:
        runner.run(echo_once())
    connection.send("worked")


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_multiprocessing(loop_name: str, loop: Any, run: Run, method: str) -> None:
    context: Any = multiprocessing.get_context(method)

    async def main() -> None:
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(loop_name, theirs))
        process.start()
        theirs.close()
        await support.wait_until(ours.poll, "the child's answer", timeout=GRACE_SECONDS)
        assert ours.recv() == "worked"
        await asyncio.to_thread(process.join)
        assert process.exitcode == 0
        process.close()
        ours.close()

    run(main())
    if method == "forkserver":
        # They outlive the test otherwise.
        from multiprocessing import forkserver, resource_tracker

        forkserver._forkserver._stop()  # type: ignore[attr-defined]
        resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]
    if method == "spawn":
        from multiprocessing import resource_tracker

        resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]


def test_unclosed_loop_is_finalized_in_the_child(
    loop_factory: LoopFactory,
) -> None:
    """The finalizer runs in the child: it warns, and the parent's ring still works."""
    loop = loop_factory()
    loop.run_until_complete(asyncio.sleep(0.001))
    held = [loop]
    del loop

    def body() -> None:
        import gc

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            held.clear()
            gc.collect()

    assert_succeeds(in_child(body))
    held[0].run_until_complete(asyncio.sleep(0.001))
    held[0].close()


def test_child_works_without_threads_of_the_parent(loop_factory: LoopFactory) -> None:
    """A fork while another thread runs a loop; the child inherits its locks in their current state."""
    loop = loop_factory()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    support.wait_until_blocking(loop.is_running)

    def body() -> None:
        other = loop_factory()
        other.run_until_complete(echo_once())
        other.close()
        assert "running=True" in repr(loop)

    for _ in range(3):
        assert_succeeds(in_child(body))
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
