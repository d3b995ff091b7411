"""Programs that exit while daemon threads run loops keep their exit code."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import support

if TYPE_CHECKING:
    from collections.abc import Iterable

# Each function is the body of a daemon thread, and reports when it is running.
THREADS = """
import asyncio, socket, sys, threading, time
from ringloop import quic as quic_api
from ringloop._native.quic import ClientConfig
from tests import support

new_loop = support.loop_factory({loop_name!r})
at_work = []

def run(main):
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())

def idle(ready):
    async def main():
        ready()
        await asyncio.sleep(3600)
    run(main)

def busy(ready):
    async def main():
        ready()
        while True:
            await asyncio.sleep(0)
    run(main)

def callbacks(ready):
    loop = new_loop()
    def again():
        loop.call_soon(again)
        loop.call_later(0, int)
        loop.call_soon_threadsafe(int)
    again()
    loop.call_later(0.01, ready)
    loop.run_forever()

def blocked(ready):
    async def main():
        asyncio.get_running_loop().call_soon(lambda: (ready(), time.sleep(3600)))
        await asyncio.sleep(3600)
    run(main)

def streams(ready):
    async def main():
        left, right = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=left)
        echo_reader, echo_writer = await asyncio.open_connection(sock=right)
        async def echo():
            while True:
                echo_writer.write(await echo_reader.read(99))
        task = asyncio.create_task(echo())
        while True:
            writer.write(b"x")
            await reader.read(99)
            ready()
    run(main)

def sender(ready):
    loop = new_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    while True:
        loop.call_soon_threadsafe(ready).cancel()
        ready()

def loops(ready):
    while True:
        run(lambda: asyncio.sleep(0))
        ready()

def quic(ready):
    async def main():
        asyncio.get_running_loop().call_soon(ready)
        while True:
            try:
                async with quic_api.connect("127.0.0.1", 9, idle_timeout=0.05):
                    pass
            except (OSError, TimeoutError):
                pass
    run(main)

def configurations(ready):
    # Python code below a native frame, in a thread that has never touched a loop.
    class Number:
        def __index__(self):
            for _ in range(3000):
                pass
            return 1000
    while True:
        ClientConfig(verify=False, max_data=Number())
        ready()

def start(life):
    event = threading.Event()
    threading.Thread(target=life, args=(event.set,), daemon=True).start()
    assert event.wait(30), life

for life in ({lives}):
    start(life)
"""
# The busiest last: the others start while there is time for them.
LIVES = (
    "idle",
    "blocked",
    "quic",
    "loops",
    "streams",
    "sender",
    "callbacks",
    "busy",
    "configurations",
)


def ends_with(loop_name: str, lives: Iterable[str], end: str) -> tuple[int, str]:
    done = run_program(THREADS.format(loop_name=loop_name, lives=", ".join(lives) + ",") + end)
    return done.returncode, done.stderr


def run_program(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=Path(__file__).parents[2],
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("end", "code"), [("", 0), ("sys.exit(3)", 3), ("1 / 0", 1)])
def test_exit_code_is_the_programs_own(loop_name: str, end: str, code: int) -> None:
    returned, told = ends_with(loop_name, LIVES, end)
    assert returned == code, told
    assert "Fatal" not in told, told
    if loop_name != support.ORACLE:
        assert "panicked" not in told, told


@pytest.mark.parametrize("life", ["busy", "quic", "configurations"])
def test_exit_code_is_the_programs_own_with_a_single_thread(loop_name: str, life: str) -> None:
    """A thread by itself holds the GIL nearly always."""
    for _ in range(2):
        returned, told = ends_with(loop_name, [life], "time.sleep(0.05)")
        assert returned == 0, told


DESTRUCTOR = """
import asyncio, sys
from tests import support

def broken():
    raise ValueError("of a callback")

class Owner:
    def __init__(self):
        self.loop = support.loop_factory({loop_name!r})()

    def __del__(self):
        self.loop.call_soon(broken)
        self.loop.create_future().cancel()
        print(self.loop.run_until_complete(asyncio.sleep(0.001, "ran")), flush=True)
        self.loop.set_debug(True)
        print(self.loop.run_until_complete(asyncio.sleep(0.001, "again")), flush=True)
        self.loop.close()

owner = Owner()
"""


@pytest.mark.skipif(
    sys.version_info[:2] == (3, 13), reason="a traceback that is logged imports, by its linecache"
)
@pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="the collector finalizes the loop and its owner in any order there",
)
def test_destructors_at_the_end_may_use_their_loop(loop_name: str) -> None:
    """Nothing can be imported by then."""
    support.usable_loop(loop_name)
    done = subprocess.run(
        [sys.executable, "-c", DESTRUCTOR.format(loop_name=loop_name)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.split() == ["ran", "again"], done.stderr
    assert done.returncode == 0
    assert "Exception in callback broken() at " in done.stderr
    assert "meta_path" not in done.stderr


# The loop is freed while the interpreter clears modules, after the package's own.
LEFT_OPEN = """
import asyncio, signal, sys, types
from tests import support

loop = support.loop_factory({loop_name!r})()

async def main():
    loop.add_signal_handler(signal.SIGUSR1, int)
    loop.call_later(3600, int)
    await loop.run_in_executor(None, int)

{keep}
loop.run_until_complete(main())
print("ran")
{end}
"""
# Modules are cleared from the last imported to the first.
HOLDERS = {
    "policy": "asyncio.set_event_loop(loop)",
    "earlier module": "asyncio.events.of_a_program = loop",
    "class of an earlier module": "asyncio.Event.of_a_program = loop",
    "program": "",
}


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize(("end", "code"), [("", 0), ("sys.exit(3)", 3)])
def test_loop_that_is_left_open_ends_without_an_error(
    loop_name: str, holder: str, end: str, code: int
) -> None:
    support.usable_loop(loop_name)
    done = run_program(LEFT_OPEN.format(loop_name=loop_name, keep=HOLDERS[holder], end=end))
    assert (done.returncode, done.stdout.split(), done.stderr) == (code, ["ran"], "")
