"""The contestants: how each is started and built.

Owns: the names, the programs, their environment and versions. Called by: `compare`.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tables import UDP_PAYLOAD

from comparison import paths
from comparison.environment import Environment, SetupError, cargo

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements.txt"
PERF = paths.TARGET / "release" / "examples" / "perf"
UDP = paths.FLOOR_BUILD / "udp_flood"
CEILING = "Rust crate"


@dataclass(frozen=True)
class Contestant:
    """A stack on a loop, or a ceiling."""

    name: str
    stack: str
    loop: str = "asyncio"
    driver: str | None = None

    @property
    def is_python(self) -> bool:
        """Whether it is a stack rather than a ceiling."""
        return self.stack not in ("rust", "udp")

    @property
    def is_ours(self) -> bool:
        """Whether it is this project's."""
        return self.stack.startswith("ringloop")

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables to add for its processes."""
        return {"RINGLOOP_DRIVER": self.driver} if self.driver else {}

    def server(self, python: Path, port: int, certificates: Path) -> list[str]:
        """The command of its server."""
        cert, key = str(certificates / "cert.pem"), str(certificates / "key.pem")
        if self.stack == "rust":
            return [str(PERF), "server", f"127.0.0.1:{port}", cert, key]
        return [*self.peer(python), "server", str(port), cert, key]

    def client(
        self, python: Path, port: int, certificates: Path, workload: str, size: str
    ) -> list[str]:
        """The command of its client, without the times."""
        ca = str(certificates / "ca.pem")
        if self.stack == "udp":
            payload = size if workload == "datagram" else str(UDP_PAYLOAD)
            return [str(UDP), self.loop, payload]
        if self.stack == "rust":
            return [str(PERF), "client", f"127.0.0.1:{port}", ca, workload, size]
        return [*self.peer(python), "client", str(port), ca, workload, size]

    def peer(self, python: Path) -> list[str]:
        """The common start of both roles' commands, for a Python stack."""
        return [str(python), str(HERE / "peers" / "peer.py"), self.stack, "--loop", self.loop]


# In the order of the columns. Each on its fastest loop (see benches/README.md).
CONTESTANTS = (
    Contestant("aioquic", "aioquic", "uvloop"),
    Contestant("qh3", "qh3"),
    Contestant("aiopquic", "aiopquic"),
    Contestant("ringloop", "ringloop", "ringloop", "uring"),
    Contestant("ringloop-epoll", "ringloop", "ringloop", "epoll"),
    Contestant("ringloop-asyncio", "ringloop"),
    Contestant("ringloop-aio", "ringloop-aio", "ringloop", "uring"),
)
CEILINGS = (
    Contestant(CEILING, "rust", driver="uring"),
    Contestant("UDP", "udp", "plain"),
    Contestant("UDP in trains", "udp", "gso"),
)


def build(say: Callable[[str], None]) -> None:
    """Build the ceilings."""
    for tool in ("cargo", "cc"):
        if shutil.which(tool) is None:
            raise SetupError(f"{tool} is missing: install a Rust toolchain and a C compiler")
    say("building the crate's own benchmark and the one of plain UDP")
    cargo(["--package", "ringloop-quic", "--example", "perf"])
    UDP.parent.mkdir(parents=True, exist_ok=True)
    source = HERE / "ceiling" / "udp_flood.c"
    subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-o", str(UDP), str(source)], check=True)


def available(environment: Environment, contestant: Contestant) -> str | None:
    """Try to import a stack and its loop: `None` on success, else the reason."""
    if not contestant.is_python:
        return None
    peers = str(HERE / "peers")
    script = (
        f"import sys; sys.path.insert(0, {peers!r})\n"
        "import peer, importlib\n"
        f"module, package = peer.STACKS[{contestant.stack!r}]\n"
        "importlib.import_module(module).Stack(package)\n"
        f"peer.loop_factory({contestant.loop!r})().close()\n"
    )
    done = subprocess.run(
        [environment.python, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | contestant.variables,
    )
    return None if done.returncode == 0 else done.stderr.strip().splitlines()[-1]
