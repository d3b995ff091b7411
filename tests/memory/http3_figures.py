"""What a server of HTTP/3 keeps for each connection, request stream and session: `make http3-figures`.

A client in a process of its own opens so many of each and leaves them open; the server, in this
process, counts the bytes of the C heap and of Python's objects before and after.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import tempfile
import tracemalloc
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringloop import h3, quic, webtransport
from ringloop.webtransport import SessionLimits
from tests.memory.test_memory import native_bytes
from tests.support import loop_factory, wait_until
from tests.support.tls import Certificates

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

COUNT = 200
LIMITS = SessionLimits(sessions=COUNT + 1, data=1 << 20)
FIELDS = ((b":method", b"POST"), (b":scheme", b"https"), (b":authority", b"localhost"))


async def client(port: int, authority: str, what: str) -> None:
    """Open all of one kind, and leave them open until standard input ends."""
    place: dict[str, Any] = {"ca_file": authority, "server_name": "localhost"}
    url = f"https://127.0.0.1:{port}/"
    async with AsyncExitStack() as stack:
        held: list[object] = []
        if what == "connection":
            for _ in range(COUNT):
                opening = h3.open_client("127.0.0.1", port, **place)
                held.append(await stack.enter_async_context(await opening))
        elif what == "request":
            one = await stack.enter_async_context(await h3.open_client("127.0.0.1", port, **place))
            for _ in range(COUNT):
                request = await one.open([*FIELDS, (b":path", b"/")])
                held.append(request)
        else:
            first = await webtransport.open_session(url, limits=LIMITS, **place)
            await stack.enter_async_context(first)
            for _ in range(COUNT):
                session = await webtransport.open_session(url, connection=first.connection)
                held.append(session)
        print("open", flush=True)  # noqa: T201
        await asyncio.to_thread(sys.stdin.read)


async def idle(session: webtransport.Session) -> None:
    await session.wait_closed()


async def handler(request: h3.Request) -> None:
    if webtransport.is_session_request(request):
        async with await webtransport.accept(request) as session:
            await session.wait_closed()
        return
    try:
        await request.read()
    except quic.QuicError:
        return


def used() -> int:
    """Bytes of Python's objects, and of the C heap."""
    for _ in range(3):
        gc.collect()
    return tracemalloc.get_traced_memory()[0] + native_bytes()


async def measured(certificates: Certificates, what: str) -> float:
    certificate, key = certificates.issue()
    keywords: dict[str, Any] = {"certificate": certificate, "private_key": key}
    server = await h3.serve(
        handler, "127.0.0.1", webtransport=LIMITS, max_streams_bidi=2 * COUNT + 4, **keywords
    )
    async with server:
        # What grows once does so.
        async for child in playing(server, certificates, what):
            del child
        await wait_until(lambda: not server.connections)
        before = used()
        async for child in playing(server, certificates, what):
            after = used()
            del child
        await wait_until(lambda: not server.connections)
        return (after - before) / COUNT


async def playing(
    server: h3.Server, certificates: Certificates, what: str
) -> AsyncIterator[subprocess.Popen[bytes]]:
    """Have a client open all, and close them afterwards."""
    command = [sys.executable, "-m", "tests.memory.http3_figures", "client"]
    command += [str(server.address[1]), str(certificates.authority), what]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: ASYNC220
    assert child.stdin is not None
    assert child.stdout is not None
    line = await asyncio.to_thread(child.stdout.readline)
    assert line == b"open\n", line
    yield child
    child.stdin.close()
    await asyncio.to_thread(child.wait)
    child.stdout.close()


def main() -> None:
    if sys.argv[1:2] == ["client"]:
        port, authority, what = sys.argv[2:]
        asyncio.run(client(int(port), authority, what))
        return
    with tempfile.TemporaryDirectory() as folder:
        certificates = Certificates(Path(folder))
        for name in ("ringloop-uring", "ringloop-epoll"):
            for what in ("connection", "request", "session"):
                with asyncio.Runner(loop_factory=loop_factory(name)) as runner:
                    tracemalloc.start()
                    size = runner.run(measured(certificates, what))
                    tracemalloc.stop()
                print(f"{name}: {size / 1024:.1f} KiB a {what}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
