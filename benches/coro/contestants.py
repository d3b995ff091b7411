"""Who is compared, and how it is built.

Owns: the names, the programs, their versions. Called by: `compare`, `running`. Never: measures.
"""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from comparison.environment import SetupError

HERE = Path(__file__).resolve().parent
# Apart from the product's: another workspace, another profile.
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or HERE.parents[1] / "target") / "bench-coro"

# The order is the order of the columns.
CONTESTANTS = (
    *("std", "tokio", "may"),
    *("ringloop-futures-uring", "ringloop-futures-epoll"),
    *("ringloop-coro-uring", "ringloop-coro-epoll"),
)


def program(name: str) -> Path:
    """Find a contestant's program."""
    base = name.removeprefix("ringloop-").partition("-")[0]
    return TARGET / "release" / f"bench-{base}"


def variables(name: str) -> dict[str, str]:
    """Environment variables of a contestant, in addition to ours."""
    _, _, driver = name.rpartition("-")
    return {"RINGLOOP_DRIVER": driver} if driver in ("uring", "epoll") else {}


def build(say: Callable[[str], None]) -> None:
    """Build every contestant for release."""
    say("building the contestants")
    command = ["cargo", "build", "--release", "--locked", "--quiet"]
    environment = os.environ | {"CARGO_TARGET_DIR": str(TARGET)}
    done = subprocess.run(
        command, cwd=HERE, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SetupError(f"{' '.join(command)} failed:\n{done.stderr}")


def versions() -> dict[str, str]:
    """Read the versions out of the lock file, and the compiler's."""
    packages = dict(
        re.findall(r'name = "(.+)"\nversion = "(.+)"', (HERE / "Cargo.lock").read_text())
    )
    found = {name: packages[name] for name in ("tokio", "may", "ringloop-coro")}
    compiler = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=False)
    return found | {"rustc": compiler.stdout.split(" ")[1] if compiler.stdout else "unknown"}
