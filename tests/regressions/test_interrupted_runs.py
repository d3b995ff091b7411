"""An interrupt at the very beginning or end of a run leaves no state of the run behind.

A loop that counts as running creates futures for its thread's current loop, and a thread that still
has a running loop can run no other. Uses real signals: only the interpreter decides when they arrive.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import support

OURS = [name for name in support.LOOPS if name != support.ORACLE]

PROGRAM = """
import asyncio, random, signal, sys
from tests import support

def interrupt(*_):
    raise KeyboardInterrupt

def run():
    loop.call_soon(loop.stop)
    signal.setitimer(signal.ITIMER_REAL, dice.uniform(1e-6, 1e-4))
    loop.run_forever()

signal.signal(signal.SIGALRM, interrupt)
dice = random.Random(22)
loop = support.loop_factory(sys.argv[1])()
hooks = sys.get_asyncgen_hooks()
interrupts = 0
for _ in range(4000):
    try:
        try:
            run()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupts += 1
    assert not loop.is_running()
    assert asyncio._get_running_loop() is None
    assert sys.get_asyncgen_hooks() == hooks
# A run that was interrupted before its first turn has left its stop() to the next one.
loop.call_soon(loop.stop)
loop.run_forever()
loop.run_until_complete(asyncio.sleep(0))
loop.close()
print(interrupts)
"""


@pytest.mark.parametrize("name", OURS)
def test_interrupted_run_leaves_nothing_behind(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0
