"""The contestants: how each is started and built.

Owns: the names, the programs, their versions. Called by: `compare`.
"""

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tables import AIOPQUIC, HYPERCORN, PEREGRINE, STREAMS

from comparison import paths
from comparison.environment import Environment, SetupError, reason_of
from comparison.pairs import Commands
from comparison.rows import Row

sys.path.insert(0, str(paths.ROOT))

from tests.interop import debian
from tests.interop.installing import UnavailableError

HERE = Path(__file__).resolve().parent
PEERS = HERE / "peers"
REQUIREMENTS = HERE / "requirements.txt"
LOAD = paths.TARGET / "bench" / "http3-load"
PLAIN = frozenset({"requests", "serial", "download", "upload"})
SESSIONS = frozenset({"wt-sessions", "wt-download", "wt-upload", "wt-datagrams"})
# nginx has no application that could count an upload.
STATIC = PLAIN - {"upload"}
# What the same work is called on plain streams.
ON_STREAMS = {
    "requests": "quic-requests",
    "serial": "quic-requests",
    "download": "quic-download",
    "upload": "quic-upload",
    "wt-download": "quic-download",
    "wt-upload": "quic-upload",
}


@dataclass(frozen=True)
class Contestant:
    """A server; `command` has the words PYTHON, PORT, CERT and KEY replaced."""

    name: str
    command: tuple[str, ...]
    workloads: frozenset[str]
    # The modules that it needs.
    modules: tuple[str, ...] = ()
    driver: str | None = None
    is_ours: bool = False

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables to add for its processes."""
        return {"RINGLOOP_DRIVER": self.driver} if self.driver else {}


def ours(
    name: str, kind: str, loop: str, workloads: frozenset[str], driver: str | None = None
) -> Contestant:
    """One of our servers without ASGI."""
    modules = ("ringloop.webtransport",) if kind == "webtransport" else ("ringloop.h3",)
    command = ("PYTHON", "ours.py", kind, loop, "PORT", "CERT", "KEY")
    return Contestant(name, command, workloads, modules, driver, is_ours=True)


def asgi(name: str, *arguments: str) -> Contestant:
    """A server of hypercorn's family."""
    certificate = ("--certfile", "CERT", "--keyfile", "KEY")
    bind = ("--bind", "127.0.0.1:PORT", "--quic-bind", "127.0.0.1:PORT")
    command = ("PYTHON", "-m", name, *certificate, *bind, *arguments, "app:patient")
    return Contestant(name, command, PLAIN, (name,))


def sessions(name: str) -> Contestant:
    """A server of WebTransport."""
    command = ("PYTHON", "sessions.py", name, "asyncio", "PORT", "CERT", "KEY")
    return Contestant(name, command, SESSIONS, (name,))


# In the order of the columns. One worker each.
CONTESTANTS = (
    Contestant(
        PEREGRINE,
        (
            *("PYTHON", "-m", "peregrine", "--host", "127.0.0.1", "--port", "PORT", "--http3"),
            *("--tls-cert", "CERT", "--tls-key", "KEY", "--log-level", "error", "app:app"),
        ),
        PLAIN | SESSIONS,
        ("peregrine",),
    ),
    asgi(HYPERCORN, "--worker-class", "uvloop"),
    asgi("anycorn"),
    Contestant("nginx", ("NGINX",), STATIC),
    Contestant("quic-go", (str(LOAD), "server", "127.0.0.1:PORT", "CERT", "KEY"), PLAIN),
    sessions(AIOPQUIC),
    sessions("pywebtransport"),
    ours("ringloop", "h3", "ringloop", PLAIN, "uring"),
    ours("ringloop-epoll", "h3", "ringloop", PLAIN, "epoll"),
    ours("ringloop-asyncio", "h3", "asyncio", PLAIN),
    Contestant(
        "ringloop-asgi",
        (
            *("PYTHON", "-m", "ringloop", "serve", "--no-tcp", "--quic-bind", "127.0.0.1:PORT"),
            *("--cert", "CERT", "--key", "KEY", "--log-level", "error", "--no-access-log"),
            "app:app",
        ),
        PLAIN,
        ("ringloop.serve",),
        "uring",
        is_ours=True,
    ),
    ours("ringloop-wt", "webtransport", "ringloop", SESSIONS, "uring"),
    ours("ringloop-wt-asyncio", "webtransport", "asyncio", SESSIONS),
    ours(STREAMS, "quic", "ringloop", frozenset(ON_STREAMS), "uring"),
)


def commands(row: Row, one: Contestant, port: int, certificates: Path, python: Path) -> Commands:
    """Both command lines of a run."""
    workload = "requests" if row.workload == "serial" else row.workload
    if one.name == STREAMS:
        workload = ON_STREAMS[row.workload]

    def client(session: int) -> list[str]:
        words = [f"127.0.0.1:{port}", str(certificates / "ca.pem"), str(session), workload]
        return [str(LOAD), "client", *words, *row.arguments]

    if one.name == "nginx":
        return Commands(nginx(port, certificates), client, tells=False)
    replaced = {
        "PYTHON": str(python),
        "PORT": str(port),
        "CERT": str(certificates / "cert.pem"),
        "KEY": str(certificates / "key.pem"),
    }
    words = [replaced.get(word, word.replace("PORT", str(port))) for word in one.command]
    return Commands(words, client, PEERS, tells=False)


def takes_part(row: Row, one: Contestant) -> bool:
    """Whether a contestant does the work of a row."""
    return row.workload in one.workloads


def nginx(port: int, certificates: Path) -> list[str]:
    """Write its configuration and files; the command of nginx."""
    folder = certificates / f"nginx-{port}"
    (folder / "files").mkdir(parents=True)
    (folder / "files" / "index.html").write_bytes(b"Hello, world!")
    with (folder / "files" / str(16 << 20)).open("wb") as file:
        file.truncate(16 << 20)
    text = (HERE / "nginx.conf").read_text()
    for name, value in (
        ("FOLDER", folder),
        ("PORT", port),
        ("CERT", certificates / "cert.pem"),
        ("KEY", certificates / "key.pem"),
    ):
        text = text.replace(f"@{name}@", str(value))
    (folder / "nginx.conf").write_text(text)
    return [*nginx_command(), "-p", str(folder), "-c", "nginx.conf", "-e", "stderr"]


@functools.cache
def nginx_command() -> tuple[str, ...]:
    """Debian's nginx, unpacked into the cache folder."""
    folder = debian.unpacked("nginx", ("nginx-light",), debian.RELEASE)
    return folder.command("usr/sbin/nginx")


def build(say: Callable[[str], None]) -> None:
    """Build the load generator."""
    if shutil.which("go") is None:
        raise SetupError("go is missing: install Go 1.26 or newer")
    say("building the load generator")
    LOAD.parent.mkdir(parents=True, exist_ok=True)
    command = ["go", "build", "-o", str(LOAD), "."]
    done = subprocess.run(command, cwd=HERE / "load", capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SetupError(f"the load generator does not build:\n{done.stderr}")


def available(environment: Environment, one: Contestant) -> str | None:
    """`None` if a contestant can run here, else the reason."""
    if one.name == "nginx":
        try:
            nginx_command()
        except UnavailableError as error:
            return str(error)
        return None
    script = "".join(f"import {name}\n" for name in one.modules)
    done = subprocess.run(
        [environment.python, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | one.variables,
    )
    return None if done.returncode == 0 else reason_of(done.stderr)


def versions() -> dict[str, str]:
    """Versions of what is no Python package."""
    command = ["go", "list", "-m", "-json", "github.com/quic-go/quic-go"]
    done = subprocess.run(command, cwd=HERE / "load", capture_output=True, text=True, check=True)
    found = {"quic-go": json.loads(done.stdout)["Version"]}
    try:
        told = subprocess.run([*nginx_command(), "-v"], capture_output=True, text=True, check=False)
    except UnavailableError:
        return found
    return found | {"nginx": told.stderr.strip().rpartition("/")[2]}
