"""wheels: builds, checks and tries the packages of a release; `make wheels`, `--help` for the choices.

Every wheel is built from the source archive, checked by auditwheel, twine and `checking`, and installed
into a new environment where a CPython for it is here. The table at the end says what each is, and what
was not done, and why.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import windows
from building import (
    CHECKOUT,
    PLATFORMS,
    TARGET,
    BuildError,
    Platform,
    UnavailableError,
    build_wheel,
    make_environment,
    make_sdist,
    run,
    unpack,
)
from checking import MB, check_wheel

SMOKE = Path(__file__).parent / "smoke.py"


@dataclass
class Row:
    """A line of the table."""

    name: str
    sizes: str = ""
    note: str = ""
    is_failure: bool = False


class Progress:
    """Says which step of how many runs, and how long it has been."""

    def __init__(self, steps: int) -> None:
        self.steps, self.step, self.began = steps, 0, time.monotonic()

    def next(self, what: str) -> None:
        """Begin a step."""
        self.step += 1
        passed = int(time.monotonic() - self.began)
        print(f"[{self.step}/{self.steps} {passed // 60}:{passed % 60:02}] {what}", flush=True)


def interpreters() -> dict[str, str]:
    """Return the CPythons here by version, the default one first."""
    listed = run([CHECKOUT / "tools" / "pythons"]).splitlines()
    return dict(line.split(" ", 1) for line in listed)


def try_installed(python: str, package: Path, **more: str) -> str:
    """Install the package into a new environment and use it there; return what was done."""
    with tempfile.TemporaryDirectory() as folder:
        new = make_environment(python, Path(folder), package, {**os.environ, **more})
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        printed = run([new, "-I", SMOKE], cwd=folder, env=clean)
    return f"installed and tried on {tried_drivers(printed)}"


def tried_drivers(printed: str) -> str:
    """Name the drivers that the smoke test was played on, by what it printed."""
    drivers = [line.split(":")[0] for line in printed.splitlines() if " echoed " in line]
    return " and ".join(drivers)


def try_by_wine(wheel: Path, version: str) -> str:
    """Install the wheel into a CPython for Windows and use it there; return what was done."""
    try:
        printed = windows.try_installed(wheel, version, SMOKE)
    except UnavailableError as reason:
        return f"NOT tried: {reason}"
    # It may warn before the line with its version.
    by = run(["wine", "--version"]).splitlines()[-1].split()[0]
    return f"installed and tried on {tried_drivers(printed)}, by {by}"


def make_wheel(
    platform: Platform,
    version: str,
    interpreter: str | None,
    source: Path,
    asked: argparse.Namespace,
) -> Row:
    """Build, check and try one wheel."""
    try:
        # For another platform maturin goes by what it knows of the version, not by a program here.
        builder = interpreter if platform.is_native else None
        wheel = build_wheel(platform, version, builder, source, asked.out, quick=asked.quick)
        report = check_wheel(wheel, platform, asked.repository)
        needs = (
            f"needs {report.library} ({', '.join(report.symbols[:3])})" if report.library else ""
        )
        frames = f"frame pointers in {report.frames}" if report.frames else ""
        if platform.is_native and interpreter:
            tried = try_installed(interpreter, wheel)
        elif platform.is_native:
            tried = f"NOT tried: no CPython {version} here"
        elif platform.name == "windows":
            tried = try_by_wine(wheel, version)
        else:
            tried = "NOT tried: not for this machine"
        if platform.name == "aarch64":
            tried += " (`make aarch64 WHEEL=1` emulates one)"
        return Row(wheel.name, report.sizes, "; ".join(filter(None, [tried, needs, frames])))
    except UnavailableError as reason:
        return Row(f"{version} {platform.tag}", note=f"NOT made: {reason}")
    except BuildError as error:
        print(error, file=sys.stderr)
        return Row(f"{version} {platform.tag}", note="FAILED: see above", is_failure=True)


def try_sdist(python: str, archive: Path) -> Row:
    """Let pip build the source archive with a Rust toolchain and a C compiler, and no other program."""
    sizes = f"{archive.stat().st_size / MB:.1f} MB"
    with tempfile.TemporaryDirectory() as folder:
        for program in ("cargo", "rustc", "cc", "ar", "ld", "as"):
            if there := shutil.which(program):
                (Path(folder) / program).symlink_to(there)
        target = str(TARGET / "from-sdist")
        try:
            tried = try_installed(python, archive, PATH=folder, CARGO_TARGET_DIR=target)
            return Row(archive.name, sizes, "built by pip, " + tried)
        except BuildError as error:
            print(error, file=sys.stderr)
            return Row(archive.name, sizes, "FAILED: see above", is_failure=True)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    here = interpreters()
    parser = argparse.ArgumentParser(prog="make wheels", description=__doc__.splitlines()[0])
    parser.add_argument("--versions", default="", help=f"of CPython; those found: {' '.join(here)}")
    parser.add_argument("--targets", default="", help=f"sdist {' '.join(PLATFORMS)}: all")
    parser.add_argument(
        "--out", type=Path, help="where they go (dist; with --quick: target/wheels/dist)"
    )
    parser.add_argument(
        "--repository", help="the address of the repository, for the links that an index shows"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one wheel, for the default CPython, not optimised: not for a release",
    )
    asked = parser.parse_args()
    asked.interpreters = here
    default = next(iter(here))
    asked.versions = asked.versions.split() or ([default] if asked.quick else list(here))
    asked.targets = asked.targets.split() or (
        ["manylinux"] if asked.quick else ["sdist", *PLATFORMS]
    )
    if unknown := [name for name in asked.targets if name not in ("sdist", *PLATFORMS)]:
        parser.error(f"no such target: {' '.join(unknown)}; there are sdist {' '.join(PLATFORMS)}")
    if asked.repository is None:
        found = subprocess.run(
            ["git", "-C", CHECKOUT, "remote", "get-url", "origin"],
            capture_output=True,
            text=True,
            check=False,
        )
        if found.stdout.startswith("https://"):
            asked.repository = found.stdout.strip().removesuffix(".git")
    asked.out = (asked.out or (TARGET if asked.quick else CHECKOUT) / "dist").absolute()
    return asked


def main() -> int:
    """Make everything that was asked for, and print the table."""
    asked = arguments()
    asked.out.mkdir(parents=True, exist_ok=True)
    TARGET.mkdir(parents=True, exist_ok=True)
    for old in asked.out.glob("ringloop-*"):
        old.unlink()
    platforms = [PLATFORMS[name] for name in asked.targets if name != "sdist"]
    progress = Progress(1 + ("sdist" in asked.targets) + len(platforms) * len(asked.versions))
    progress.next("the source archive")
    archive = make_sdist(asked.out, asked.repository)
    source = unpack(archive)
    rows = []
    for platform in platforms:
        for version in asked.versions:
            progress.next(f"a wheel for CPython {version}, {platform.tag}")
            rows.append(
                make_wheel(platform, version, asked.interpreters.get(version), source, asked)
            )
    if "sdist" in asked.targets:
        python = asked.interpreters[next(iter(asked.interpreters))]
        progress.next("the source archive, installed by pip")
        rows.insert(0, try_sdist(python, archive))
    print(f"\n{asked.out}:")
    for row in rows:
        print(f"  {row.name}\n      {'; '.join(filter(None, [row.sizes, row.note]))}")
    if asked.repository is None:
        print("  Without REPOSITORY=https://…: no project URLs, and relative links in the README")
    shutil.rmtree(source / "target", ignore_errors=True)
    return 1 if any(row.is_failure for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
