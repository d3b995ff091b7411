"""Processes of the participants, and what all participants have.

Owns: the processes. Called by: `peers`, `commands`, `__main__`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

START_SECONDS_MAX = 30
CASE_SECONDS_MAX = 30
BYTES = 1 << 20
SMALL = b"small\n"
PARALLEL = 100
Started = asyncio.subprocess.Process


@dataclass(frozen=True)
class Files:
    """The files of a run."""

    folder: Path
    authority: str
    certificate: str
    key: str

    @property
    def htdocs(self) -> Path:
        """What a server of files serves."""
        return self.folder / "htdocs"

    @property
    def data(self) -> Path:
        """What is sent."""
        return self.folder / "data"

    def write(self) -> None:
        """Write what is sent and served."""
        data = bytes((at ^ (at >> 8) ^ (at >> 16)) & 0xFF for at in range(BYTES))
        self.data.write_bytes(data)
        (self.htdocs / "number").mkdir(parents=True)
        (self.htdocs / "small").write_bytes(SMALL)
        for number in range(PARALLEL):
            (self.htdocs / "number" / str(number)).write_text(str(number))


@dataclass(frozen=True)
class Peer:
    """One implementation, ready to run."""

    name: str
    command: tuple[str, ...]
    version: str = ""
    roles: tuple[str, ...] = ("server", "client")
    # (role, case): the reason.
    cannot: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def serving(self, files: Files, port: int) -> contextlib.AbstractAsyncContextManager[Started]:
        """Serve until the block ends."""
        raise NotImplementedError

    async def run(self, case: str, port: int, files: Files) -> str:
        """Run a case as a client; return why it failed, or nothing."""
        raise NotImplementedError


class Program(Peer):
    """A program of the contract in programs/contract.py."""

    @contextlib.asynccontextmanager
    async def serving(self, files: Files, port: int) -> AsyncIterator[Started]:
        """Serve until the block ends."""
        command = [*self.command, "server", str(port), files.certificate, files.key]
        async with started(command, {}, files.folder, port=port) as process:
            yield process

    async def run(self, case: str, port: int, files: Files) -> str:
        """Run a case as a client; return why it failed, or nothing."""
        code, output = await finished(
            [*self.command, "client", files.authority, str(port), case], files.folder
        )
        for line in output.splitlines():
            if line.startswith('{"ok'):
                told: dict[str, Any] = json.loads(line)
                return "" if told["ok"] else str(told["reason"])
        return f"the client has ended with {code}: {output[-200:]}"


@contextlib.asynccontextmanager
async def started(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    *,
    port: int,
    is_tcp: bool = False,
) -> AsyncIterator[Started]:
    """Start a server and wait until it has its port; end it and its children afterwards."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder,
        env=os.environ | dict(environment),
        start_new_session=True,
    )
    assert process.stderr is not None
    said = bytearray()

    async def listen(errors: asyncio.StreamReader) -> None:
        while data := await errors.read(1 << 16):
            said.extend(data)
            del said[:-4000]

    listening = asyncio.ensure_future(listen(process.stderr))
    try:
        async with asyncio.timeout(START_SECONDS_MAX):
            while not is_bound(port, is_tcp=is_tcp):
                if process.returncode is not None:
                    raise OSError(f"the server has ended: {said.decode(errors='replace')}")
                await asyncio.sleep(0.05)
        yield process
    finally:
        await end(process)
        await listening


async def finished(command: Sequence[str], folder: Path) -> tuple[int, str]:
    """Run a program to its end; return its exit status and all it has printed."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=folder,
        start_new_session=True,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), CASE_SECONDS_MAX)
    finally:
        await end(process)
    assert process.returncode is not None
    return process.returncode, output.decode(errors="replace")


async def end(process: Started) -> None:
    """Kill it, with the processes it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def free_port() -> int:
    """Find a port that is free for UDP and TCP."""
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
            # By a bind: a connection that uses it, or did, hinders a server as well.
            with socket.socket() as tcp, contextlib.suppress(OSError):
                tcp.bind(("127.0.0.1", port))
                return port


def is_bound(port: int, *, is_tcp: bool = False) -> bool:
    """Whether a socket has the port."""
    kind = socket.SOCK_STREAM if is_tcp else socket.SOCK_DGRAM
    with socket.socket(socket.AF_INET, kind) as probe:
        if is_tcp:
            return probe.connect_ex(("127.0.0.1", port)) == 0
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
        return False
