"""What a suite needs on disk: its environment, its unpacked sources, and their location.

Owns: the cache folder. Called by: `__main__`. Does not install ringloop: it is used from this checkout,
by path, so that an environment depends only on its requirements and its interpreter.

Sources are the source distributions of the package registry. For the few projects that leave their
tests out of them, a checkout is used: the folder NAME-VERSION in `--sources`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.ecosystem.suites import Suite

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[1]
INJECT = HERE / "inject"
REQUIREMENTS = HERE / "requirements"
CACHE = Path(
    os.environ.get("RINGLOOP_ECOSYSTEM_CACHE")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ringloop" / "ecosystem"
)
# For comparison only (`--loop uvloop`), and separate from the environments: suites behave
# differently if it is installed.
UVLOOP = "uvloop==0.23.0"


class SetupError(Exception):
    """A requirement of a suite is missing; the message says what to do."""


@dataclass(frozen=True)
class Interpreter:
    """A Python, and the ringloop of this checkout that was built for it."""

    path: str
    version: str

    @classmethod
    def at(cls, path: str) -> Interpreter:
        """Inspect the interpreter and check that ringloop can be imported there."""
        code = "import platform, ringloop; print(platform.python_version())"
        done = subprocess.run(
            [path, "-c", code],
            env=os.environ | {"PYTHONPATH": str(CHECKOUT / "python")},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SetupError(
                f"{path} cannot import ringloop from {CHECKOUT / 'python'}; build it for this"
                f" interpreter with tools/make-venv and tools/develop:\n{done.stderr}"
            )
        return cls(path, done.stdout.strip())

    @property
    def minor(self) -> str:
        """The version without its last part: all of them share an environment."""
        return self.version.rpartition(".")[0]


def python_for(suite: Suite, interpreter: Interpreter) -> Path:
    """Return the Python of the suite's environment, which is created if it is missing."""
    requirements = REQUIREMENTS / f"{suite.requirements}.txt"
    folder = CACHE / f"cpython-{interpreter.minor}" / suite.requirements
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest() + interpreter.version
    stamp = folder / ".installed"
    if not stamp.exists() or stamp.read_text() != wanted:
        _run(interpreter.path, "-m", "venv", "--clear", str(folder))
        _pip(folder / "bin" / "python", "install", "--requirement", str(requirements))
        stamp.write_text(wanted)
    return folder / "bin" / "python"


def uvloop_path(python: Path) -> Path:
    """Return a folder that contains only uvloop, for the path of one run."""
    folder = python.parents[1] / ".uvloop"
    if not (folder / "uvloop").is_dir():
        _pip(python, "install", "--no-deps", "--target", str(folder), UVLOOP)
    return folder


def sources_of(suite: Suite, python: Path, given: Path | None) -> Path:
    """Return a folder with the suite's sources, including its tests."""
    name = f"{suite.project}-{suite.version}"
    if not suite.in_distribution:
        found = (given or CACHE / "sources") / name
        if not (found / suite.tests).exists():
            raise SetupError(
                f"{suite.project} leaves its tests out of what it publishes on the registry; put a"
                f" checkout of its version {suite.version} at {found}"
            )
        return found
    unpacked = CACHE / "sources" / name
    if not unpacked.is_dir():
        with tempfile.TemporaryDirectory(dir=_made(CACHE / "sources")) as folder:
            # pip asks the package for its metadata, which may install the build backend.
            _pip(
                python,
                *("download", "--no-deps", "--no-binary", suite.project, "--dest", folder),
                f"{suite.project}=={suite.version}",
            )
            (archive,) = Path(folder).glob("*.tar.gz")
            with tarfile.open(archive) as content:
                content.extractall(folder, filter="data")
            (root,) = (entry for entry in Path(folder).iterdir() if entry.is_dir())
            shutil.move(root, unpacked)
    return unpacked


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _pip(python: Path, *arguments: str) -> None:
    _run(str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SetupError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
