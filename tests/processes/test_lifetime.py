"""How children end: signals, races, many at once, cancelled starts, loops that are closed first."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import signal
import subprocess
import sys
import warnings
from asyncio.subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import (
    ORACLE,
    PATIENCE_SECONDS,
    alone_on_this_machine,
    children,
    open_descriptors,
    parallel,
    wait_until,
    wait_until_blocking,
    within,
)

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable, Iterator

Run = Any
Factory = Any


def is_ours(loop_name: str) -> bool:
    return loop_name != ORACLE


def state_of(pid: int) -> str:
    """Return the letter of a process's state; "" if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def test_every_waiter_gets_the_exit_code(run: Run) -> None:
    async def main() -> None:
        process = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=DEVNULL)
        waiting = [asyncio.create_task(process.wait()) for _ in range(20)]
        given_up = asyncio.create_task(process.wait())
        await asyncio.sleep(0)
        given_up.cancel()
        assert process.stdin is not None
        process.stdin.close()
        assert await within(asyncio.gather(*waiting)) == [0] * 20
        with pytest.raises(asyncio.CancelledError):
            await given_up
        assert await process.wait() == 0

    run(main())


def test_wait_that_times_out_leaves_the_child(run: Run) -> None:
    async def main() -> None:
        process = await asyncio.create_subprocess_exec("sleep", "100")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(process.wait(), 0.02)
        assert process.returncode is None
        process.terminate()
        assert await within(process.wait()) == -signal.SIGTERM

    run(main())


def test_signals_reach_the_child(run: Run) -> None:
    async def main() -> None:
        for number in (signal.SIGUSR1, signal.SIGHUP, signal.SIGKILL):
            process = await asyncio.create_subprocess_exec("sleep", "100")
            process.send_signal(number)
            assert await within(process.wait()) == -number
        process = await asyncio.create_subprocess_shell(
            'trap "exit 5" TERM; echo ready; while :; do sleep 0.01; done', stdout=PIPE
        )
        assert process.stdout is not None
        await within(process.stdout.readline())
        process.terminate()
        assert await within(process.wait()) == 5
        # Until a child forked by another thread executes its program, it has the pipe open too.
        assert await within(process.stdout.read()) == b""

    run(main())


def test_stopped_child_has_not_ended(run: Run) -> None:
    async def main() -> None:
        process = await asyncio.create_subprocess_exec("sleep", "100")
        process.send_signal(signal.SIGSTOP)
        await wait_until(lambda: state_of(process.pid) == "T")
        await asyncio.sleep(0.01)
        assert process.returncode is None
        process.send_signal(signal.SIGCONT)
        process.kill()
        assert await within(process.wait()) == -signal.SIGKILL

    run(main())


def test_signal_to_a_zombie_keeps_the_exit_code(run: Run, loop_name: str) -> None:
    if loop_name == ORACLE and sys.version_info < (3, 14):
        pytest.skip("asyncio's send_signal reaps the child behind its watcher's back")

    async def main() -> None:
        gate, opener = os.pipe()
        process = await asyncio.create_subprocess_shell("read word; exit 9", stdin=gate)
        os.close(gate)
        os.close(opener)
        # A zombie that the loop has not noticed.
        wait_until_blocking(lambda: state_of(process.pid) == "Z")
        process.send_signal(signal.SIGTERM)
        process.kill()
        assert await within(process.wait()) == 9
        for send in (process.kill, process.terminate):
            with pytest.raises(ProcessLookupError):
                send()

    run(main())


def test_close_of_the_transport_kills_the_child(run: Run) -> None:
    class Protocol(asyncio.SubprocessProtocol):
        exited = False

        def process_exited(self) -> None:
            self.exited = True

    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.subprocess_exec(Protocol, "sleep", "100")
        assert not transport.is_closing()
        transport.close()
        transport.close()
        assert transport.is_closing()
        await wait_until(lambda: protocol.exited)
        assert transport.get_returncode() == -signal.SIGKILL
        assert "closed" in repr(transport)

    run(main())


def test_groups_are_killed_together(run: Run) -> None:
    async def main() -> None:
        process = await asyncio.create_subprocess_shell(
            "sleep 100 & sleep 100 & echo started; wait", stdout=PIPE, start_new_session=True
        )
        assert process.stdout is not None
        await within(process.stdout.readline())
        os.killpg(process.pid, signal.SIGKILL)
        assert await within(process.wait()) == -signal.SIGKILL
        # The grandchildren held the pipe; EOF shows that they are gone.
        assert await within(process.stdout.read()) == b""

    run(main())


@pytest.fixture
def alone_with_children() -> Iterator[None]:
    """Around all threads that run the test: it needs the limit on processes for itself."""
    with alone_on_this_machine("thousand-children"):
        yield


@pytest.mark.timeout(600)
def test_thousand_children_at_once(run: Run, alone_with_children: None) -> None:
    async def main() -> None:
        gate, opener = os.pipe()
        try:
            slots = asyncio.Semaphore(64)

            async def start(n: int) -> asyncio.subprocess.Process:
                async with slots:
                    return await asyncio.create_subprocess_exec(
                        *("sh", "-c", f"read word; exit {n % 200}"), stdin=gate
                    )

            processes = await asyncio.gather(*(start(n) for n in range(count)))
            assert len(children() & {process.pid for process in processes}) == count
        finally:
            os.close(opener)
            os.close(gate)
        codes = await within(asyncio.gather(*(process.wait() for process in processes)), 300)
        assert codes == [n % 200 for n in range(count)]

    # Shared with the other threads that run this test.
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200
    count = min(1000, descriptors) // parallel.THREADS
    run(main())


@pytest.fixture
def few_descriptors() -> Iterator[Callable[[int], None]]:
    """Limit the free descriptors of the test."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def leave(count: int) -> None:
        # Counting needs a descriptor, too.
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(open_descriptors()) + count, hard))

    yield leave
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_descriptors_a_start_fails_cleanly(
    run: Run, few_descriptors: Callable[[int], None]
) -> None:
    async def main() -> None:
        started: list[asyncio.subprocess.Process] = []
        # Once with nothing to spare, and then with a little more each time.
        for room in range(1, 14):
            before = len(open_descriptors())
            few_descriptors(room)
            try:
                process = await asyncio.create_subprocess_exec(
                    "cat", stdin=PIPE, stdout=PIPE, stderr=PIPE
                )
            except OSError as error:
                assert error.errno == 24
                del error
                few_descriptors(14)
                assert len(open_descriptors()) == before
            else:
                started.append(process)
                assert await within(process.communicate(b"x")) == (b"x", b"")
        assert started
        assert not children()

    run(main())


def test_cancelled_start_leaves_no_zombie_and_no_descriptor(run: Run) -> None:
    async def main() -> None:
        for passes in range(16):
            starting = asyncio.create_task(
                asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE, stderr=PIPE)
            )
            for _ in range(passes):
                await asyncio.sleep(0)
            starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                process = await within(starting)
                assert process.stdin is not None
                process.stdin.close()
                await within(process.wait())
        await wait_until(lambda: not children())

    run(main())


def test_cancelled_communicate_leaves_a_usable_child(run: Run) -> None:
    async def main() -> None:
        process = await asyncio.create_subprocess_exec("sleep", "100", stdin=PIPE, stdout=PIPE)
        talking = asyncio.create_task(process.communicate(b"x" * 1_000_000))
        await asyncio.sleep(0.005)
        talking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await talking
        process.kill()
        out, _ = await within(process.communicate())
        assert out == b""

    run(main())


def test_child_may_outlive_its_loop(loop_factory: Factory, loop_name: str) -> None:
    loop = loop_factory()

    async def main() -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec("sleep", "100")

    process = loop.run_until_complete(main())
    popen = process._transport.get_extra_info("subprocess")  # type: ignore[attr-defined]
    if is_ours(loop_name):
        loop.close()
        assert popen.poll() is None
        popen.kill()
        assert popen.wait(10) == -signal.SIGKILL
    else:
        # asyncio leaves the pidfd, or a thread, behind.
        process.kill()
        loop.run_until_complete(process.wait())
        loop.close()
    process._transport.close()  # type: ignore[attr-defined]


def test_loop_closed_with_pipes_open_closes_them_when_collected(
    loop_factory: Factory, loop_name: str
) -> None:
    if loop_name == ORACLE and sys.version_info < (3, 12):
        pytest.skip("a thread of asyncio's waits for the child, and keeps its loop")
    code = """
import asyncio, gc, os, sys, warnings
warnings.simplefilter("ignore")
loop = {factory}
async def main():
    global process
    process = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1, stderr=-1)
loop.run_until_complete(main())
pid = process.pid
loop.close()
del process, loop
gc.collect()
# It was killed, or its input is closed; Popen may have reaped it already.
try:
    assert os.waitpid(pid, 0)[0] == pid
except ChildProcessError:
    pass
left = [os.readlink(f"/proc/self/fd/{{fd}}") for fd in os.listdir("/proc/self/fd") if int(fd) > 2
        and os.path.exists(f"/proc/self/fd/{{fd}}")]
assert not [name for name in left if "pipe:" in name], left
"""
    name = "asyncio.SelectorEventLoop()"
    if driver := getattr(loop_factory, "keywords", {}).get("driver"):
        name = f"__import__('ringloop').Loop(driver='{driver}')"
    done = subprocess.run(
        [sys.executable, "-c", code.format(factory=name)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("pipes", [(), ("stdout",), ("stdin", "stdout", "stderr")])
def test_close_of_the_transport_after_its_loop_kills_the_child(
    loop_factory: Factory, loop_name: str, pipes: tuple[str, ...]
) -> None:
    if loop_name == ORACLE:
        pytest.skip(
            "asyncio kills it, too, from CPython 3.12.2 on, but its pidfd or thread is left"
        )
    loop = loop_factory()

    async def start() -> Process:
        options: Any = dict.fromkeys(pipes, subprocess.PIPE)
        return await asyncio.create_subprocess_exec("sleep", "60", **options)

    process = loop.run_until_complete(start())
    transport = process._transport  # type: ignore[attr-defined]
    popen = transport.get_extra_info("subprocess")
    loop.close()
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        transport.close()
        assert popen.wait(10) == -signal.SIGKILL
        del process, transport
        gc.collect()


def test_child_may_be_reaped_by_popen(run: Run, loop_name: str) -> None:
    if not is_ours(loop_name):
        pytest.skip("asyncio says 255")

    async def main() -> None:
        process = await asyncio.create_subprocess_shell("exit 6")
        popen = process._transport.get_extra_info("subprocess")  # type: ignore[attr-defined]
        assert popen.wait() == 6
        assert await within(process.wait()) == 6

    run(main())


def test_ignored_sigchld_means_an_unknown_exit_code(
    run: Run, loop_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    if not is_ours(loop_name):
        pytest.skip("asyncio before 3.12 and after differ")

    async def main() -> None:
        old = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        try:
            process = await asyncio.create_subprocess_exec("cat", stdin=PIPE)
            assert process.stdin is not None
            process.stdin.close()
            # The kernel reaps it; the code is unknown.
            assert await within(process.wait()) == 255
        finally:
            signal.signal(signal.SIGCHLD, old)

    run(main())
    assert "exit status already read" in caplog.text


def test_children_of_two_loops_in_turn(loop_factory: Factory) -> None:
    first, second = loop_factory(), loop_factory()

    async def start(code: int) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_shell(f"read word; exit {code}", stdin=PIPE)

    async def finish(process: asyncio.subprocess.Process) -> int:
        assert process.stdin is not None
        process.stdin.close()
        return await within(process.wait())

    one = first.run_until_complete(start(1))
    two = second.run_until_complete(start(2))
    assert second.run_until_complete(finish(two)) == 2
    assert first.run_until_complete(finish(one)) == 1
    first.close()
    second.close()


def test_loop_in_another_thread_has_children(loop_factory: Factory) -> None:
    import threading

    codes: list[int] = []

    def work() -> None:
        async def main() -> None:
            process = await asyncio.create_subprocess_shell("exit 8")
            codes.append(await within(process.wait()))

        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(main())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(2 * PATIENCE_SECONDS)
    assert codes == [8]


def test_failing_watch_leaves_no_child(
    run: Run, loop_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_ours(loop_name):
        pytest.skip("what fails here is our own")

    def failing(*args: Any) -> None:
        raise RuntimeError("no watcher")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "_add_child_reader", failing, raising=False)
        with pytest.raises(RuntimeError, match="no watcher"):
            await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)
        monkeypatch.undo()
        assert not children()

    run(main())
