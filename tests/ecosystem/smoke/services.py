"""Servers for the smoke tests, each in a temporary folder of its own.

Used by `conftest.py` and, for the loop of a child process, by the programs that the tests start. No
service that already runs on the machine is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests import support

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

ROOT = Path(__file__).parents[3]
START_SECONDS = 60


class NotInstalledError(Exception):
    """The service is not on this machine; the message says what to install."""


def assert_running_loop(name: str) -> None:
    """Fail unless the running loop is exactly the one that `name` means, including its driver."""
    loop = asyncio.get_running_loop()
    assert describe_loop(loop) == name, f"expected {name}, running on {loop!r}"


async def eventually(ask: Callable[[], Awaitable[object]], what: str) -> None:
    """Call `ask` repeatedly, over its own connection, until the answer is true."""
    deadline = time.monotonic() + START_SECONDS
    while not await ask():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} did not come within {START_SECONDS} s")
        await asyncio.sleep(0.005)


def describe_loop(loop: asyncio.AbstractEventLoop) -> str:
    """Return the name, as in `support.LOOPS`, of the loop's class and driver."""
    if type(loop) is asyncio.SelectorEventLoop:
        return support.ORACLE
    import ringloop

    assert type(loop) is ringloop.Loop, f"neither the oracle nor ours: {loop!r}"
    return f"ringloop-{loop.driver}"


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Create the loop that the environment asks for: the loop factory given to servers."""
    return support.loop_factory(os.environ["SMOKE_LOOP"])()


def free_port() -> int:
    """Return a TCP port that is currently free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def process(
    command: Sequence[str], ready: Path | int, *, user: str | None = None, **popen: object
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `command` for the duration of the block, which starts when the socket `ready` accepts."""
    with tempfile.TemporaryFile() as log:
        child: subprocess.Popen[bytes] = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            user=user,
            **popen,  # type: ignore[call-overload]
        )
        try:
            deadline = time.monotonic() + START_SECONDS
            while not accepts(ready):
                if child.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise RuntimeError(f"{command[0]} did not start:\n{log.read().decode()}")
                time.sleep(0.02)
            yield child
        finally:
            child.terminate()
            try:
                child.wait(START_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def accepts(address: Path | int) -> bool:
    """Say whether something listens on a Unix socket's path or on a local port."""
    family = socket.AF_INET if isinstance(address, int) else socket.AF_UNIX
    with socket.socket(family) as probe:
        return (
            probe.connect_ex(("127.0.0.1", address) if isinstance(address, int) else str(address))
            == 0
        )


@dataclass
class Postgres:
    """A running PostgreSQL: clients connect to the host `folder`, or to 127.0.0.1 with TLS."""

    folder: Path
    port: int
    user: str

    @classmethod
    @contextlib.contextmanager
    def start(cls, certificate: Path, key: Path) -> Iterator[Postgres]:
        """Create a database in a new folder and serve it; PostgreSQL refuses to run as root."""
        programs = postgres_programs()
        user = "postgres" if os.geteuid() == 0 else None
        with tempfile.TemporaryDirectory(prefix="smoke-pg-") as name:
            folder = Path(name)
            for source in (certificate, key):
                shutil.copy(source, folder)
                (folder / source.name).chmod(0o600)
            if user:
                owner = pwd.getpwnam(user)
                for path in (folder, *folder.iterdir()):
                    os.chown(path, owner.pw_uid, owner.pw_gid)
            subprocess.run(
                [
                    *(programs / "initdb", "--pgdata", folder / "data", "--username", "smoke"),
                    *("--auth", "trust", "--encoding", "UTF8", "--no-locale", "--no-sync"),
                ],
                check=True,
                capture_output=True,
                user=user,
                cwd="/",
            )
            server = cls(folder, free_port(), "smoke")
            settings = {
                "port": server.port,
                "listen_addresses": "127.0.0.1",
                "unix_socket_directories": folder,
                "ssl": "on",
                "ssl_cert_file": folder / certificate.name,
                "ssl_key_file": folder / key.name,
                "fsync": "off",
                "max_connections": 60,
            }
            command = [str(programs / "postgres"), "-D", str(folder / "data")]
            for setting, value in settings.items():
                command += ["-c", f"{setting}={value}"]
            socket_path = folder / f".s.PGSQL.{server.port}"
            with process(command, socket_path, user=user, cwd="/"):
                server.wait_until_ready(programs)
                yield server

    def wait_until_ready(self, programs: Path) -> None:
        """Return once the server accepts queries: it listens slightly earlier."""
        deadline = time.monotonic() + START_SECONDS
        ask = [programs / "pg_isready", "-q", "-h", self.folder, "-p", str(self.port)]
        while subprocess.run(ask, check=False).returncode != 0:
            if time.monotonic() > deadline:
                raise RuntimeError("PostgreSQL does not become ready")
            time.sleep(0.02)


def postgres_programs() -> Path:
    """Return the folder of the newest PostgreSQL server on this machine."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3])
    )
    if found:
        return found[-1].parent
    if there := shutil.which("initdb"):
        return Path(there).parent
    raise NotInstalledError("no PostgreSQL server here: install the package `postgresql`")


@dataclass
class Redis:
    """A running Redis: on a Unix socket, and on a port that speaks only TLS if TLS is built in."""

    path: Path
    port: int
    tls: bool

    @classmethod
    @contextlib.contextmanager
    def start(cls, certificate: Path, key: Path) -> Iterator[Redis]:
        """Serve an empty database from a new folder; nothing is written to disk."""
        program = shutil.which("redis-server")
        if program is None:
            raise NotInstalledError("no Redis server here: install the package `redis-server`")
        with tempfile.TemporaryDirectory(prefix="smoke-redis-") as name:
            linked = subprocess.run(["ldd", program], check=True, capture_output=True).stdout
            server = cls(Path(name) / "redis.sock", free_port(), b"libssl" in linked)
            command = [program, "--unixsocket", str(server.path), "--save", "", "--dir", name]
            if server.tls:
                command += [
                    "--port",
                    "0",
                    "--tls-port",
                    str(server.port),
                    "--tls-auth-clients",
                    "no",
                ]
                command += ["--tls-cert-file", str(certificate), "--tls-key-file", str(key)]
                command += ["--tls-ca-cert-file", str(certificate), "--bind", "127.0.0.1"]
            else:
                command += ["--port", str(server.port), "--bind", "127.0.0.1"]
            with process(command, server.path):
                yield server
