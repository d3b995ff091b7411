"""Every module of the package is imported, also where names of the standard library are missing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
import unittest
from pathlib import Path

import ringloop
from ringloop import metrics
from tests.windows.loops import IS_WINDOWS, PATIENCE_SECONDS, on_every_loop

# Prints what is not imported, but for packages that are not installed and what is of Windows alone.
PROGRAM = """\
import asyncio, importlib, pkgutil, selectors, socket, socketserver, sys
for place, name in {missing!r}:
    if hasattr(sys.modules[place], name):
        delattr(sys.modules[place], name)
import ringloop
OTHERS = {{"httpx2", "uvicorn", "pytest", "_winapi"}}
def told(name):
    pass
for module in pkgutil.walk_packages(ringloop.__path__, "ringloop.", onerror=told):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except Exception as error:
        if getattr(error, "name", None) in OTHERS or "is not installed" in str(error):
            continue
        print(module.name, repr(error))
"""
# What some systems lack: macOS the first, Windows all.
EPOLL = [("selectors", "EpollSelector")]
UNIX = [
    *EPOLL,
    ("selectors", "PollSelector"),
    ("socketserver", "ThreadingUnixStreamServer"),
    ("asyncio.streams", "open_unix_connection"),
    ("asyncio.streams", "start_unix_server"),
]


def refused(missing: list[tuple[str, str]]) -> str:
    """Import everything in a process without these names; return what is not imported."""
    package = os.fspath(Path(ringloop.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(missing=missing)],
        env={**os.environ, "PYTHONPATH": package},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=4 * PATIENCE_SECONDS,
        check=False,
    )
    return done.stdout


class Imports(unittest.TestCase):
    """Modules, and what they do where something is missing."""

    def test_every_module_is_imported(self) -> None:
        # Slow under Wine.
        for missing in ([],) if IS_WINDOWS else ([], EPOLL, UNIX):
            with self.subTest(missing=missing):
                found = refused(missing)
                assert not found, found

    @on_every_loop
    async def test_fast_streams_carry(self) -> None:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readexactly(5))
            writer.close()

        async with await ringloop.start_server(echo, "127.0.0.1", 0) as server:
            address = server.sockets[0].getsockname()
            reader, writer = await ringloop.open_connection(*address)
            writer.write(b"hello")
            assert await reader.read() == b"hello"
            writer.close()
            await writer.wait_closed()

    def test_metrics_are_served_by_http(self) -> None:
        import urllib.request

        async def main() -> bytes:
            with metrics.serve_http() as serving:
                assert serving.url is not None
                url = serving.url + "metrics"
                answer = await asyncio.to_thread(lambda: urllib.request.urlopen(url).read())
                return bytes(answer)

        assert b"ringloop_" in ringloop.run(main())

    def test_profile_and_watchdog_see_a_busy_callback(self) -> None:
        stalls = list[ringloop.Stall]()

        def busy() -> None:
            end = time.monotonic() + 0.5
            while time.monotonic() < end:
                pass

        async def main() -> str:
            loop = asyncio.get_running_loop()
            with ringloop.profile() as taken, ringloop.watchdog(0.05, hook=stalls.append):
                await asyncio.sleep(0.01)
                loop.call_soon(busy)
                await asyncio.sleep(0.01)
            return str(taken.stacks)

        assert "busy" in ringloop.run(main())
        assert "busy" in str(stalls[0])

    @unittest.skipUnless(IS_WINDOWS, "of Windows")
    def test_metrics_on_a_unix_socket_are_not_implemented(self) -> None:
        with self.assertRaises(NotImplementedError):
            metrics.serve()


@unittest.skipUnless(IS_WINDOWS, "of Windows")
class UnixStreams(unittest.TestCase):
    """Fast streams over Unix sockets."""

    @on_every_loop
    async def test_unix_streams_raise_not_implemented_error(self) -> None:
        async def serve(*_: object) -> None:
            pass

        with self.assertRaises(NotImplementedError):
            await ringloop.open_unix_connection("path")
        with self.assertRaises(NotImplementedError):
            await ringloop.start_unix_server(serve, "path")
