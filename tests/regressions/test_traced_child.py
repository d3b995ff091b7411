"""A child held by a debugger has ended for its pidfd, but not for waitpid(2).

The loop took the readable pidfd for a child that can be reaped, and blocked in waitpid(2) until the
tracer waited for it (strace, gdb, a profiler). It calls waitpid with WNOHANG, and retries later.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from asyncio.subprocess import PIPE
from typing import TYPE_CHECKING, Any

import pytest

from tests.processes.test_lifetime import state_of
from tests.support import ORACLE, wait_until, within

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, None]], None]

# Allows any process of its user to trace it, for Yama (prctl(2), PR_SET_PTRACER).
CHILD = """
import ctypes, sys
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_long(-1), 0, 0, 0)
print("runs", flush=True)
sys.stdin.read()
sys.exit(7)
"""
# Never waits for the child it traces, and exits on request or after a while: a loop that blocks on
# the child fails its test.
TRACER = """
import ctypes, select, sys
PTRACE_SEIZE = 0x4206
libc = ctypes.CDLL(None, use_errno=True)
done = libc.ptrace(PTRACE_SEIZE, int(sys.argv[1]), None, None)
print("traces" if done == 0 else "refused", flush=True)
select.select([sys.stdin], [], [], 10)
"""


async def traced_zombie() -> tuple[Any, Any]:
    """Start a child and its tracer; the child has exited, and the tracer has not waited for it."""
    python = sys.executable
    child = await asyncio.create_subprocess_exec(python, "-c", CHILD, stdin=PIPE, stdout=PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    assert await within(child.stdout.readline()) == b"runs\n"
    tracer = await asyncio.create_subprocess_exec(
        python, "-c", TRACER, str(child.pid), stdin=PIPE, stdout=PIPE
    )
    assert tracer.stdout is not None
    word = await within(tracer.stdout.readline())
    child.stdin.close()
    if word != b"traces\n":
        await within(asyncio.gather(child.wait(), tracer.communicate()))
        pytest.skip("this machine lets no process trace another")
    await wait_until(lambda: state_of(child.pid) == "Z")
    return child, tracer


def skip_oracle(loop_name: str) -> None:
    if loop_name == ORACLE:
        pytest.skip("asyncio's pidfd watcher stands in waitpid(2) too")


def test_loop_runs_while_a_child_is_traced(run: Run, loop_name: str) -> None:
    skip_oracle(loop_name)

    async def main() -> None:
        child, tracer = await traced_zombie()
        used, turns = time.process_time(), 0
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            await asyncio.sleep(0.01)
            turns += 1
        assert child.returncode is None
        assert turns > 3
        assert time.process_time() - used < 0.15
        # A zombie accepts signals, and is not reaped by them.
        child.terminate()
        await within(tracer.communicate(b"x"))
        assert await within(child.wait()) == 7

    run(main())


def test_traced_child_reaped_elsewhere(
    run: Run, loop_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    skip_oracle(loop_name)

    async def main() -> None:
        child, tracer = await traced_zombie()
        tracer.stdin.close()
        # Blocks until the tracer is gone; the loop retries later.
        reaped = os.waitpid(child.pid, 0)  # noqa: ASYNC222
        assert reaped == (child.pid, 7 << 8)
        with caplog.at_level(logging.WARNING, "asyncio"):
            assert await within(child.wait()) == 255
        assert "exit status already read" in caplog.text
        await within(tracer.communicate())

    run(main())
