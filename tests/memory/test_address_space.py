"""With an exhausted address space, large requests end in MemoryError, never in an abort.

Each loop runs in a child process, which limits itself, and must be usable afterwards.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import support

CHILD = """
import asyncio, contextlib, gc, json, os, resource, socket, sys
from tests import support

MEGABYTE = 1 << 20
# More than the limit leaves.
COUNT = 200

@contextlib.contextmanager
def limited(left=48 * MEGABYTE):
    used = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (used + left, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))

class Ends(asyncio.Protocol):
    def __init__(self):
        self.lost = asyncio.get_running_loop().create_future()

    def connection_lost(self, error):
        self.lost.set_result(error)

def refused(call, *arguments):
    with limited():
        try:
            for _ in range(COUNT):
                call(*arguments)
        except MemoryError:
            return True
    return False

async def stream():
    ours, theirs = socket.socketpair()
    with theirs:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.create_connection(Ends, sock=ours)
        one = refused(transport.write, bytearray(MEGABYTE))
        several = refused(transport.writelines, [bytearray(MEGABYTE)] * COUNT)
        transport.abort()
        await protocol.lost
    return one and several

async def pipe():
    read_end, write_end = os.pipe()
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(Ends, os.fdopen(write_end, "wb", 0))
    answer = refused(transport.write, bytearray(MEGABYTE))
    transport.abort()
    await protocol.lost
    os.close(read_end)
    return answer

async def receive():
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        theirs.send(b"bytes")
        loop = asyncio.get_running_loop()
        answers = []
        for size in (1 << 30, 1 << 40, 1 << 62):
            with limited():
                try:
                    await loop.sock_recv(ours, size)
                except MemoryError:
                    answers.append(True)
        return len(answers) == 3 and await loop.sock_recv(ours, 100) == b"bytes"

async def reading():
    # What is read is held by the program until there is no memory for more.
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    loop = asyncio.get_running_loop()
    class Keeps(Ends):
        kept = []
        def data_received(self, data):
            self.kept.append(data)
    transport, protocol = await loop.create_connection(Keeps, sock=ours)
    with limited():
        sent = bytes(100_000)
        while not protocol.lost.done() and len(Keeps.kept) < 100_000:
            with contextlib.suppress(BlockingIOError, BrokenPipeError, MemoryError):
                theirs.send(sent)
            with contextlib.suppress(MemoryError):
                await asyncio.sleep(0)
        Keeps.kept.clear()
    theirs.close()
    transport.abort()
    return isinstance(await protocol.lost, MemoryError)

async def afterwards():
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        theirs.send(b"bytes")
        return await asyncio.get_running_loop().sock_recv(ours, 100) == b"bytes"

def main(name):
    loop = support.loop_factory(name)()
    loop.set_exception_handler(lambda loop, context: None)
    report = {}
    for play in (stream, pipe, receive, reading, afterwards):
        report[play.__name__] = loop.run_until_complete(asyncio.wait_for(play(), 30))
    loop.close()
    print(json.dumps(report))

main(sys.argv[1])
"""


@pytest.mark.one_thread("a child of its own is limited")
@pytest.mark.parametrize("backtrace", ["0", "1"])
def test_large_requests_without_memory_are_refused_and_the_loop_continues(
    loop_name: str, backtrace: str
) -> None:
    if loop_name == support.ORACLE and backtrace == "1":
        pytest.skip("asyncio is not written in Rust")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD, loop_name],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "RUST_BACKTRACE": backtrace},
        capture_output=True,
        text=True,
        timeout=support.PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    if loop_name == support.ORACLE:
        # Some versions pass more by reference, and may have enough memory for all of it.
        report = {"afterwards": report["afterwards"]}
    assert report == dict.fromkeys(report, True)
    assert "afterwards" in report
