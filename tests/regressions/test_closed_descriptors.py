"""Closing all descriptors (`os.closerange`, as daemons do) while a loop exists.

The ring continued with its registered descriptor, which the call does not close, and waited forever;
dropping it aborted debug builds. asyncio raises EBADF at the next wait, and so do both drivers.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests import support

PROGRAM = """
import asyncio, errno, os, sys, threading
import ringloop

loop = ringloop.Loop(driver=sys.argv[1])

def close_all():
    os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)

async def main():
    await asyncio.sleep(0.001)
    close_all()
    if sys.argv[2] == "reused":
        main.files = [open("/dev/null") for _ in range(10)]
    await loop.create_future()

def run():
    if sys.argv[2] == "between runs":
        loop.run_until_complete(asyncio.sleep(0.001))
        close_all()
    try:
        loop.run_until_complete(main())
    except OSError as error:
        assert error.errno == errno.EBADF, error
        try:
            loop.close()
        except OSError as error:  # of the socket pair, as asyncio says it
            assert error.errno == errno.EBADF, error
        assert loop.is_closed()
        print("EBADF")

if sys.argv[2] == "in a thread":
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
else:
    run()
"""


@pytest.mark.parametrize("case", ["inside", "in a thread", "between runs", "reused"])
@pytest.mark.parametrize("driver", support.DRIVERS)
def test_loop_with_closed_descriptors_raises(driver: str, case: str) -> None:
    support.usable_loop(f"ringloop-{driver}")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, driver, case],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "EBADF\n"), done.stderr
