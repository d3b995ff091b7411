"""The contestants, and how they are built.

Owns: the names, the programs, their versions. Called by: `compare`, `running`.
"""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from comparison.environment import SetupError

HERE = Path(__file__).resolve().parent
# Separate from the product's: another workspace, another profile.
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or HERE.parents[1] / "target") / "bench-rust"

# The order is the order of the columns. Our own runtime appears with each of its drivers.
# "-busy": polls for work before it sleeps, which two of these runtimes support.
BUSY = "-busy"
BUSY_US = "50"
CONTESTANTS = (
    *("std", "tokio", "monoio", "compio", "glommio", f"glommio{BUSY}", "ringcore"),
    *("ringloop-uring", "ringloop-epoll", f"ringloop-uring{BUSY}"),
)


def program(name: str) -> Path:
    """Find a contestant's program."""
    return TARGET / "release" / f"bench-{name.partition('-')[0]}"


def variables(name: str) -> dict[str, str]:
    """Environment variables to add for a contestant."""
    _, _, driver = name.removesuffix(BUSY).partition("-")
    found = {"RINGLOOP_DRIVER": driver} if driver else {}
    return found | ({"BENCH_BUSY_US": BUSY_US} if name.endswith(BUSY) else {})


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
    names = dict.fromkeys(name.partition("-")[0] for name in CONTESTANTS)
    found = {name: packages[name] for name in names if name in packages}
    compiler = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=False)
    return found | {"rustc": compiler.stdout.split(" ")[1] if compiler.stdout else "unknown"}
