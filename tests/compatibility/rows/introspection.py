"""Introspection of a loop, from inside and from outside."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import weakref
from typing import TYPE_CHECKING, Any

from tests.compatibility.registry import PROGRAM_SECONDS, Group, NotMeasuredError

if TYPE_CHECKING:
    from tests.compatibility.registry import Probe

group = Group("Introspection")

handles = group.row("handles are asyncio.Handle and asyncio.TimerHandle")


@handles
def instances(probe: Probe) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop.call_soon(int), asyncio.Handle)
        assert isinstance(loop.call_soon_threadsafe(int), asyncio.Handle)
        timer = loop.call_later(10, int)
        assert isinstance(timer, asyncio.TimerHandle)
        assert timer.when() > loop.time()
        timer.cancel()
        assert timer.cancelled()

    probe.run(main)


weak = group.row("weak references to loop, handle, transport")


@weak
def are_possible(probe: Probe) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        import socket

        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
            for thing in (loop, loop.call_soon(int), transport):
                assert weakref.ref(thing)() is thing
            transport.close()
            await asyncio.sleep(0.01)

    probe.run(main)


sockets = group.row("get_extra_info('socket') is asyncio.trsock.TransportSocket")


@sockets
def instance(probe: Probe) -> None:
    async def main() -> None:
        import socket
        from asyncio.trsock import TransportSocket

        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
            assert isinstance(transport.get_extra_info("socket"), TransportSocket)
            transport.close()
            await asyncio.sleep(0.01)

    probe.run(main)


graph = group.row("capture_call_graph, future_add_to_awaited_by", since=(3, 14))


@graph
def names_who_waits(probe: Probe) -> None:
    capture: Any = getattr(asyncio, "capture_call_graph", None)

    async def inner(waiter: Any) -> None:
        await waiter

    async def main() -> None:
        waiter = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(inner(waiter), name="inner")
        await asyncio.sleep(0)
        found = capture(waiter)
        assert [entry.future for entry in found.awaited_by] == [task]
        waiter.set_result(None)
        await task

    probe.run(main)


outside = group.row("python -m asyncio ps, pstree", since=(3, 14))


@outside
def sees_the_tasks(probe: Probe) -> None:
    program = (
        f"import asyncio, {probe.module}\n"
        "async def main():\n"
        "    async with asyncio.TaskGroup() as group:\n"
        "        group.create_task(asyncio.sleep(300), name='sleeper')\n"
        # Once every task waits: a running task is not seen completely from outside.
        "        loop.call_later(0.01, lambda: print('ready', flush=True))\n"
        f"loop = {probe.expression}\n"
        "loop.run_until_complete(main())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=probe.environment
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            done = subprocess.run(
                [sys.executable, "-m", "asyncio", "ps", str(child.pid)],
                capture_output=True,
                text=True,
                timeout=PROGRAM_SECONDS,
                check=False,
            )
            if "ermission" in done.stderr:
                raise NotMeasuredError("this machine lets no process read another's memory")
            assert "sleeper" in done.stdout, (done.stdout + done.stderr)[-300:]
        finally:
            child.kill()
