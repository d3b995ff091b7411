"""Client connections by the thousand: the peer that takes them, and a round of them.

Owns: the peer's process. Called by: the workloads that open connections.

The peer is a plain blocking program on another CPU than the loop, if there is one. The
connections go to many addresses of this machine: a single one would run out of ports within seconds.
"""

import asyncio
import contextlib
import itertools
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator

from support.scheduling import measure

AT_ONCE = 32
ROUNDS_AT_ONCE = 8
IN_SERIES = 32
ADDRESSES = itertools.cycle([f"127.0.1.{last}" for last in range(1, 33)])

PEER = """
import os, socket
os.sched_setaffinity(0, set(range(os.cpu_count())) - os.sched_getaffinity(0) or {0})
listener = socket.create_server(("0.0.0.0", 0), backlog=4096)
print(listener.getsockname()[1], flush=True)
while True:
    connection, _ = listener.accept()
    connection.recv(1)
    connection.close()
"""

# Opens and closes one connection to a host and port.
Churn = Callable[[str, int], Awaitable[None]]


def measure_churn(churn: Churn) -> None:
    """Measure rounds of connections, some in series and some at once."""
    port = 0

    @contextlib.contextmanager
    def peer(_: asyncio.AbstractEventLoop) -> Iterator[None]:
        nonlocal port
        with subprocess.Popen([sys.executable, "-c", PEER], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            try:
                yield
            finally:
                process.kill()

    async def connections() -> None:
        for _ in range(IN_SERIES):
            await churn(next(ADDRESSES), port)
        for _ in range(ROUNDS_AT_ONCE):
            await asyncio.gather(*(churn(next(ADDRESSES), port) for _ in range(AT_ONCE)))

    def one_round(loop: asyncio.AbstractEventLoop) -> int:
        loop.run_until_complete(connections())
        return IN_SERIES + AT_ONCE * ROUNDS_AT_ONCE

    measure(one_round, peer)
