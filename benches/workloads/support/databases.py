"""A Redis and a PostgreSQL of a run, each in a temporary folder, on Unix sockets.

Owns: their processes, which run on other CPUs than the loop if there are others. Called by: the
workloads of database drivers.
"""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

START_SECONDS = 20.0


def program(name: str, patterns: Sequence[str] = ()) -> str:
    """The path of a program; exits if it is not installed."""
    if found := shutil.which(name):
        return found
    for pattern in patterns:
        if paths := sorted(Path("/").glob(pattern)):
            return str(paths[-1])
    sys.exit(f"there is no {name} here")


@contextlib.contextmanager
def running(command: Sequence[str], listening: Path, user: str | None) -> Iterator[None]:
    """Run a server once its socket accepts connections, until the end of the block."""
    with subprocess.Popen(
        ["taskset", "--cpu-list", other_cpus(), *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        user=user,
        cwd="/",
    ) as server:
        deadline = time.monotonic() + START_SECONDS
        while not accepts(listening):
            if server.poll() is not None or time.monotonic() > deadline:
                server.kill()
                sys.exit(f"{command[0]} did not start")
            time.sleep(0.02)
        try:
            yield
        finally:
            server.send_signal(signal.SIGINT)


def other_cpus() -> str:
    """The CPUs that the loop does not use, or all."""
    free = set(range(os.cpu_count() or 1)) - os.sched_getaffinity(0)
    return ",".join(map(str, sorted(free or os.sched_getaffinity(0))))


def accepts(path: Path) -> bool:
    """Tell whether a server listens on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


@contextlib.contextmanager
def redis() -> Iterator[Path]:
    """An empty Redis: its socket."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "redis.sock"
        command = [program("redis-server"), "--port", "0", "--unixsocket", str(path)]
        with running([*command, "--save", "", "--dir", name], path, None):
            yield path


@contextlib.contextmanager
def postgres() -> Iterator[Path]:
    """A new PostgreSQL whose user is `bench`: the folder of its socket, with the port 5432."""
    programs = Path(program("initdb", ["usr/lib/postgresql/*/bin/initdb"])).resolve().parent
    user = "postgres" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if user:
            os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
        data = str(folder / "data")
        initdb = [str(programs / "initdb"), "--pgdata", data, "--username", "bench"]
        options = ["--auth", "trust", "--no-locale", "--no-sync"]
        subprocess.run([*initdb, *options], check=True, capture_output=True, user=user, cwd="/")
        command = [str(programs / "postgres"), "-D", data, "-k", name, "-h", "", "-F"]
        with running(command, folder / ".s.PGSQL.5432", user):
            # It listens a moment before it accepts queries.
            ask = [programs / "pg_isready", "-q", "-h", name]
            while subprocess.run(ask, check=False).returncode:
                time.sleep(0.02)
            yield folder
