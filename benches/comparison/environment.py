"""Sets up everything a benchmark needs before measuring.

Owns: the benchmark's virtual environments, the compiled load generator and floor servers.
Called by: `compare`.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from comparison import paths
from workloads.support.loops import FACTORIES, is_ours

Say = Callable[[str], None]

REASON_LEN_MAX = 160
# A loop that cannot be created in this time hangs.
PROBE_TIMEOUT_SECONDS = 20

DESCRIBE = """
import json, platform, sys, sysconfig
print(json.dumps({
    "version": platform.python_version(),
    "implementation": platform.python_implementation(),
    "compiler": platform.python_compiler(),
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "configured": " ".join(
        word.split("=")[0] + "'" if "=" in word and "/" in word else word
        for word in (sysconfig.get_config_var("CONFIG_ARGS") or "").split()
    ),
}))
"""
VERSIONS = """
import importlib.metadata, json
installed = importlib.metadata.distributions()
print(json.dumps({package.metadata["Name"].lower(): package.version for package in installed}))
"""
PROBE = """
import sys
sys.path.insert(0, sys.argv[1])
from support.loops import new_loop
loop = new_loop(sys.argv[2])
loop.run_until_complete(__import__("asyncio").sleep(0))
loop.close()
"""


class SetupError(Exception):
    """Something is missing; the message says what, and what to do."""


@dataclass(frozen=True)
class Environment:
    """An interpreter's virtual environment."""

    base: str
    directory: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.directory / "bin" / "python"

    @property
    def stamp(self) -> Path:
        """Record of what the last set-up installed and what failed to install."""
        return self.directory / "benchmark.json"

    def is_set_up(self) -> bool:
        """Tell whether a set-up was completed here."""
        return self.python.exists() and self.stamp.exists()

    def ringloop_commit(self) -> str:
        """The commit the installed ringloop was built from."""
        return str(json.loads(self.stamp.read_text())["ringloop_commit"])

    def ask(self, script: str) -> dict[str, object]:
        """Run a script that prints one JSON object."""
        done = subprocess.run([self.python, "-c", script], capture_output=True, check=True)
        answer: dict[str, object] = json.loads(done.stdout)
        return answer

    def describe(self) -> dict[str, object]:
        """Version and build of the interpreter."""
        return self.ask(DESCRIBE)

    def versions(self) -> dict[str, object]:
        """Versions of everything installed."""
        return self.ask(VERSIONS)


def environment_for(python: str) -> Environment:
    """The environment for an interpreter, by its version."""
    found = shutil.which(python)
    if found is None:
        raise SetupError(f"there is no interpreter {python}; give its path with --python")
    script = "import sys; v = sys.version_info; print(f'{v[0]}.{v[1]}{sys.abiflags}')"
    version = subprocess.run([found, "-c", script], capture_output=True, text=True, check=True)
    return Environment(found, paths.ENVIRONMENTS / version.stdout.strip())


def set_up(environment: Environment, say: Say, wanted: Path = paths.REQUIREMENTS) -> None:
    """Create the environment; install the peers of a requirements file and, if present, ringloop."""
    if not environment.python.exists():
        say(f"making {environment.directory.relative_to(paths.ROOT)}")
        subprocess.run([environment.base, "-m", "venv", environment.directory], check=True)
    refused: dict[str, str] = {}
    for requirement in requirements(wanted):
        say(f"installing {requirement}")
        package, _, marker = requirement.partition(";")
        name = package.partition("=")[0]
        refused |= install(environment, name, [requirement])
        if marker and name not in refused and name not in environment.versions():
            refused[name] = f"it needs {marker.strip()}"
    if (paths.ROOT / "python" / "ringloop").exists():
        say("building ringloop (release)")
        # A target folder per interpreter: a shared one is rebuilt at each change of version.
        target = paths.TARGET / "bench" / environment.directory.name
        arguments = ["--force-reinstall", "--no-deps", str(paths.ROOT)]
        refused |= install(environment, "ringloop", arguments, CARGO_TARGET_DIR=str(target))
    else:
        refused["ringloop"] = "this checkout has no python/ringloop"
    for name, reason in refused.items():
        say(f"not installed: {name}: {reason}")
    stamp = {"refused": refused, "ringloop_commit": commit()}
    environment.stamp.write_text(json.dumps(stamp, indent=2) + "\n")


def requirements(file: Path) -> list[str]:
    """The lines of a requirements.txt that name a package."""
    lines = (line.partition("#")[0].strip() for line in file.read_text().splitlines())
    return [line for line in lines if line]


def install(
    environment: Environment, name: str, arguments: Sequence[str], **variables: str
) -> dict[str, str]:
    """Install with pip; return the reasons of failures by package name."""
    command = [str(environment.python), "-m", "pip", "install", "--quiet"]
    done = subprocess.run(
        [*command, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | variables,
    )
    return {} if done.returncode == 0 else {name: reason_of(done.stderr)}


def commit() -> str:
    """Name the commit of this checkout, with `+` when files differ from it."""
    git = ["git", "-C", str(paths.ROOT)]
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, check=False)
    changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, check=False)
    if head.returncode != 0:
        return "unknown"
    return head.stdout.decode().strip() + ("+" if changed.stdout.strip() else "")


def available_loops(environment: Environment, names: Sequence[str]) -> dict[str, str | None]:
    """Try to create and run each loop: `None` if it works here, else the reason."""
    stamp = json.loads(environment.stamp.read_text())
    return {name: probe(environment, name, stamp["refused"]) for name in names}


def probe(environment: Environment, name: str, refused: dict[str, str]) -> str | None:
    """Try one loop in its own process."""
    package = "ringloop" if is_ours(name) else FACTORIES[name][0]
    if package in refused:
        return f"not installed: {refused[package]}"
    command = [str(environment.python), "-c", PROBE, str(paths.WORKLOADS), name]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=PROBE_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return f"does not start within {PROBE_TIMEOUT_SECONDS} s"
    return None if done.returncode == 0 else reason_of(done.stderr)


def reason_of(text: str) -> str:
    """Find the line of a program's output that tells the cause: the last one that names an error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line or line.lower().startswith("error")]
    for line in (*reversed(telling), *reversed(lines)):
        return line[:REASON_LEN_MAX]
    return "no reason given"


def build_native(say: Say) -> dict[str, Path]:
    """Compile the load generator and the floor servers; return the floors by name."""
    for tool in ("cargo", "cc"):
        if shutil.which(tool) is None:
            raise SetupError(f"{tool} is missing: install a Rust toolchain and a C compiler")
    say("building the load generator and the floor servers")
    cargo(["--package", "loadgen"])
    floors: dict[str, Path] = {}
    paths.FLOOR_BUILD.mkdir(parents=True, exist_ok=True)
    for source in sorted(paths.FLOOR.glob("*_echo.c")):
        program = paths.FLOOR_BUILD / source.stem
        compile_command = ["cc", "-O2", "-Wall", "-Wextra", "-o", str(program), str(source)]
        subprocess.run(compile_command, check=True)
        floors[f"C {source.stem.removesuffix('_echo')}"] = program
    if (paths.ROOT / "crates" / "ringloop" / "examples" / "floor_echo.rs").exists():
        cargo(["--package", "ringloop", "--example", "floor_echo"])
        floors["engine uring"] = floors["engine epoll"] = paths.ENGINE_ECHO
    return floors


def cargo(arguments: Sequence[str]) -> None:
    """Build a release with cargo."""
    command = ["cargo", "build", "--release", "--quiet", *arguments]
    done = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SetupError(f"{' '.join(command)} failed:\n{done.stderr}")
