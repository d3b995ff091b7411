"""Runners, threads, fork, sub-interpreters and builds."""

from __future__ import annotations

import asyncio
import sys
import sysconfig
import threading
from typing import TYPE_CHECKING

from tests.compatibility.registry import Group, NotMeasuredError

if TYPE_CHECKING:
    from tests.compatibility.registry import Probe

group = Group("Loop lifecycle")

runner = group.row("asyncio.Runner(loop_factory=), asyncio.run(loop_factory=)")


@runner
def runs_twice(probe: Probe) -> None:
    async def main() -> bool:
        return True

    with asyncio.Runner(loop_factory=probe.factory) as made:
        assert made.run(main())
        assert made.run(main())
    if sys.version_info >= (3, 12):
        assert asyncio.run(main(), loop_factory=probe.factory)


kind = group.row("is an asyncio.AbstractEventLoop")


@kind
def instance(probe: Probe) -> None:
    loop = probe.factory()
    assert isinstance(loop, asyncio.AbstractEventLoop)
    loop.close()


threads = group.row("created in one thread, run in another; one loop per thread")


@threads
def moved(probe: Probe) -> None:
    loop = probe.factory()
    seen = []

    async def main() -> None:
        await asyncio.sleep(0.001)
        seen.append(threading.current_thread())

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    thread.join()
    loop.close()
    assert seen == [thread]


@threads
def four_at_once(probe: Probe) -> None:
    seen = []

    async def main() -> None:
        for _ in range(20):
            await asyncio.sleep(0.001)
        seen.append(1)

    def work() -> None:
        loop = probe.factory()
        loop.run_until_complete(main())
        loop.close()

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert seen == [1] * 4


fork = group.row(
    "fork in a running loop: the child closes it and runs another, the parent continues"
)


@fork
def child_and_parent(probe: Probe) -> None:
    said = probe.script(
        """
import os, socket, warnings
warnings.simplefilter("ignore")
async def main():
    loop = asyncio.get_running_loop()
    left, right = socket.socketpair()
    left.setblocking(False)
    got = []
    loop.add_reader(left, lambda: got.append(left.recv(100)))
    await asyncio.sleep(0.01)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            asyncio._set_running_loop(None)
            another = new_loop()
            another.run_until_complete(asyncio.sleep(0.01))
            another.close()
            status = 0
        finally:
            os._exit(status)
    for _ in range(2000):
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            break
        await asyncio.sleep(0.01)
    else:
        os.kill(child, 9)
        status = -1
    right.send(b"x")
    for _ in range(500):
        if got:
            break
        await asyncio.sleep(0.01)
    print(status, got)
    loop.remove_reader(left)
    left.close(); right.close()
loop = new_loop()
loop.run_until_complete(main())
loop.close()
"""
    )
    assert said == "0 [b'x']", said


@fork
def inherited_loop_is_closed_in_the_child(probe: Probe) -> None:
    said = probe.script(
        """
import os, socket, warnings
warnings.simplefilter("ignore")
loop = new_loop()
left, right = socket.socketpair()
left.setblocking(False)
got = []
loop.add_reader(left, lambda: got.append(left.recv(100)))
loop.run_until_complete(asyncio.sleep(0.01))
child = os.fork()
if child == 0:
    try:
        loop.close()
        os._exit(0)
    finally:
        os._exit(1)
import time
for _ in range(2000):
    pid, status = os.waitpid(child, os.WNOHANG)
    if pid:
        break
    time.sleep(0.01)
else:
    os.kill(child, 9)
    status = -1
right.send(b"x")
for _ in range(500):
    if got:
        break
    loop.run_until_complete(asyncio.sleep(0.01))
print(status, got)
loop.remove_reader(left)
loop.close()
"""
    )
    assert said == "0 [b'x']", said


subinterpreters = group.row("in a sub-interpreter: runs, or is refused with a reason")


@subinterpreters
def runs_or_refuses_with_a_reason(probe: Probe) -> None:
    if sys.version_info < (3, 13):
        raise NotMeasuredError("this CPython has no module for sub-interpreters")
    said = probe.script(
        """
import _interpreters
name = _interpreters.create()
program = '''
try:
    import asyncio, MODULE
    loop = EXPRESSION
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    print("ran")
except ImportError as error:
    print("refused", error)
'''.replace("MODULE", sys.argv[1]).replace("EXPRESSION", sys.argv[2])
failed = _interpreters.run_string(name, program)
_interpreters.destroy(name)
if failed:
    sys.exit(f"failed: {failed}")
""",
        probe.module,
        probe.expression,
    )
    assert said.startswith(("ran", "refused")), said


free = group.row("free-threaded build keeps the GIL off")


@free
def stays_off(probe: Probe) -> None:
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise NotMeasuredError("this CPython has the GIL")
    said = probe.script("loop = new_loop(); loop.close(); print(sys._is_gil_enabled())")
    assert said == "False"
