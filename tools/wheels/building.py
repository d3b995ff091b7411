"""How wheels are made: the source archive, with links for an index, and the builds from that archive.

Owns: the folders in target/wheels. Called by: `__main__`. A wheel is always built from the unpacked
source archive, so that an archive with something missing fails here.
"""

import filecmp
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or CHECKOUT / "target").absolute() / "wheels"
# What a release contains; `git ls-files` knows the rest of it.
SOURCES = (
    "Cargo.toml",
    "Cargo.lock",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "crates",
    "python",
    "pyproject.toml",
)
MINGW = "x86_64-w64-mingw32-gcc"
LINK = re.compile(r"(!?\[[^\]]*\])\((?![a-z]+:)([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


class BuildError(Exception):
    """A step failed; the message has the last lines of its output."""


class UnavailableError(Exception):
    """A step is not possible on this machine; the message says what is missing."""


@dataclass(frozen=True)
class Platform:
    """Where a wheel is to run."""

    name: str
    rust: str
    # The oldest C library or system that its wheels run on, and the processor, as in their names.
    library: str
    processor: str

    @property
    def tag(self) -> str:
        """The end of the wheels' names."""
        return f"{self.library}_{self.processor}"

    @property
    def is_elf(self) -> bool:
        """True if zig links its wheels, and auditwheel knows them."""
        return "linux" in self.library

    @property
    def is_native(self) -> bool:
        """True if its wheels can be installed here."""
        here = "macosx" if IS_MAC else "manylinux"
        return self.library.startswith(here) and self.processor == os.uname().machine


IS_MAC = sys.platform == "darwin"
PLATFORMS = {
    one.name: one
    for one in (
        Platform("manylinux", "x86_64-unknown-linux-gnu", "manylinux_2_28", "x86_64"),
        Platform("musllinux", "x86_64-unknown-linux-musl", "musllinux_1_2", "x86_64"),
        Platform("aarch64", "aarch64-unknown-linux-gnu", "manylinux_2_28", "aarch64"),
        # Of the processor of the Mac that this runs on.
        Platform("macos", "x86_64-apple-darwin", "macosx_11_0", "x86_64")
        if IS_MAC and os.uname().machine == "x86_64"
        else Platform("macos", "aarch64-apple-darwin", "macosx_11_0", "arm64"),
        Platform("windows", "x86_64-pc-windows-gnu", "win", "amd64"),
    )
}


def run(command: list[str | Path], **more: object) -> str:
    """Run a step; return what it printed."""
    done = subprocess.run(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **more,  # type: ignore[call-overload]
    )
    if done.returncode:
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        step = " ".join(map(str, command[:3]))
        raise BuildError("\n".join([f"{step} ended with {done.returncode}:", *lines[-20:]]))
    return str(done.stdout)


def absolute_links(page: str, repository: str, version: str) -> str:
    """Return the page with links to the repository's files of this version in place of relative ones."""

    def replace(found: re.Match[str]) -> str:
        kind = "raw" if found[1].startswith("!") else "blob"
        return f"{found[1]}({repository}/{kind}/v{version}/{found[2]})"

    def outside(text: str) -> str:
        return LINK.sub(replace, text)

    parts, end = [], 0
    for fence in FENCE.finditer(page):
        parts += [outside(page[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, outside(page[end:])])


def project_urls(repository: str, version: str) -> str:
    """Return the table of pyproject.toml that an index shows beside the page."""
    files = f"{repository}/blob/v{version}"
    return f"""
[project.urls]
Source = "{repository}"
Documentation = "{files}/docs/README.md"
Changelog = "{files}/CHANGELOG.md"
Issues = "{repository}/issues"
"""


def synchronise(source: Path, place: Path, names: list[str]) -> None:
    """Make `place` hold these files alone; an unchanged one keeps its time, by which cargo goes."""
    wanted = set(names)
    for path in sorted(place.rglob("*")):
        if path.is_file() and str(path.relative_to(place)) not in wanted:
            path.unlink()
    for name in names:
        old, new = place / name, source / name
        if not (old.is_file() and filecmp.cmp(old, new, shallow=False)):
            old.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(new, old)


def workspace_of(checkout: Path) -> dict[str, Any]:
    """Return what Cargo.toml says of the workspace."""
    read: dict[str, Any] = tomllib.loads((checkout / "Cargo.toml").read_text())["workspace"]
    return read


def version_of(checkout: Path) -> str:
    """Return the version that the crates and the package have."""
    return str(workspace_of(checkout)["package"]["version"])


def make_sdist(out: Path, repository: str | None) -> Path:
    """Make the source archive of what is tracked; with links for an index if there is an address."""
    # Every member of the workspace: maturin asks cargo for them, and leaves out what the package does
    # not depend on.
    members = workspace_of(CHECKOUT)["members"]
    names = run(["git", "-C", CHECKOUT, "ls-files", "--", *SOURCES, *members]).split("\n")
    with tempfile.TemporaryDirectory() as folder:
        stage = Path(folder)
        synchronise(
            CHECKOUT, stage, [name for name in names if name and (CHECKOUT / name).is_file()]
        )
        readme, project = stage / "README.md", stage / "pyproject.toml"
        settings = project.read_text()
        if (kept := "strip = false") not in settings:
            raise BuildError(f"pyproject.toml has no {kept!r} to change")
        # What pip builds from the archive is stripped, too.
        settings = settings.replace(kept, "strip = true")
        if repository:
            version = version_of(stage)
            readme.write_text(absolute_links(readme.read_text(), repository, version))
            settings += project_urls(repository, version)
        project.write_text(settings)
        # The lock file would be that of all members, which cargo refuses by --locked. So what was in the
        # archive is packed once more, with the lock file that cargo makes of it.
        first, second = stage / "first", stage / "second"
        run([beside("maturin"), "sdist", "--out", first], cwd=stage)
        extract(next(first.iterdir()), second)
        run(["cargo", "metadata", "--format-version", "1"], cwd=second)
        run([beside("maturin"), "sdist", "--out", out], cwd=second)
    return next(out.glob("ringloop-*.tar.gz"))


def extract(archive: Path, place: Path) -> None:
    """Unpack the archive: what it has in its one folder comes to `place`."""
    with tarfile.open(archive) as tar:
        tar.extractall(place.parent, filter="data")
    (place.parent / archive.name.removesuffix(".tar.gz")).rename(place)


def unpack(archive: Path) -> Path:
    """Unpack the archive to where the builds find it again; its lock file must be whole."""
    place = TARGET / "source"
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "unpacked"
        extract(archive, root)
        run(["cargo", "metadata", "--locked", "--format-version", "1"], cwd=root)
        names = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
        synchronise(root, place, names)
    return place


def beside(program: str) -> Path:
    """Return a program of the environment that this runs in."""
    return Path(sysconfig.get_path("scripts")) / program


def need_rust_target(target: str) -> None:
    """Have the standard library for `target`; installs it by rustup where it is missing."""
    library = run(["rustc", "--print", "target-libdir", "--target", target]).strip()
    if list(Path(library).glob("libstd-*.rlib")):
        return
    if not shutil.which("rustup"):
        raise UnavailableError(
            f"Rust's standard library for {target}, and there is no rustup to install it"
        )
    try:
        run(["rustup", "target", "add", target])
    except BuildError as error:
        raise UnavailableError(f"Rust's standard library for {target}: {error}") from None


def environment(platform: Platform, source: Path, *, quick: bool) -> dict[str, str]:
    """Return what the compilers are to know."""
    cargo = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    moved = {cargo: "/cargo", source: "/ringloop", TARGET: "/target"}
    # Frame pointers (PEP 831), so that profilers walk through our frames to Python's; and no path of
    # this machine.
    rust = ["-Cforce-frame-pointers=yes"]
    rust += [f"--remap-path-prefix={old}={new}" for old, new in moved.items()]
    c = ["-fno-omit-frame-pointer"]
    c += [f"-ffile-prefix-map={old}={new}" for old, new in moved.items()]
    variables = {
        **os.environ,
        "PATH": f"{beside('')}:{os.environ['PATH']}",
        "CARGO_TARGET_DIR": str(TARGET),
        "CARGO_ENCODED_RUSTFLAGS": "\x1f".join([*os.environ.get("RUSTFLAGS", "").split(), *rust]),
        f"CFLAGS_{platform.rust.replace('-', '_')}": " ".join(c),
        # It would be taken out again.
        "CARGO_PROFILE_RELEASE_DEBUG": "0",
    }
    if quick:
        settings = {"LTO": "off", "CODEGEN_UNITS": "16", "OPT_LEVEL": "0"}
        variables |= {f"CARGO_PROFILE_RELEASE_{name}": value for name, value in settings.items()}
    return variables


def build_wheel(
    platform: Platform,
    version: str,
    interpreter: str | None,
    source: Path,
    out: Path,
    *,
    quick: bool,
) -> Path:
    """Build one wheel; `interpreter` is a program, or None for what maturin knows of that version.

    A quick one is not optimised, and its size is not that of the release.
    """
    variables = environment(platform, source, quick=quick)
    with tempfile.TemporaryDirectory() as folder:
        command = [beside("maturin"), "build", "--release", "--out", folder]
        command += ["--target", platform.rust]
        command += ["--interpreter", interpreter or f"python{version}"]
        if platform.is_elf:
            # By zig, which links against the oldest C library that the tag allows.
            command += ["--zig", "--compatibility", platform.library]
        elif platform.name == "windows":
            link_by_mingw(variables, version)
        elif not IS_MAC:
            raise UnavailableError("Apple's SDK is missing: such wheels are made on a Mac")
        else:
            variables["MACOSX_DEPLOYMENT_TARGET"] = "11.0"
        need_rust_target(platform.rust)
        run(command, cwd=source, env=variables)
        made = next(Path(folder).glob("*.whl"))
        return Path(shutil.move(made, out / made.name))


def link_by_mingw(variables: dict[str, str], version: str) -> None:
    """Let cargo find Python's import library, and aws-lc its assembly as its sources have it."""
    if not shutil.which(MINGW):
        package = "gcc-mingw-w64-x86-64-win32"
        raise UnavailableError(f"{MINGW} is missing; Debian: apt-get install {package}")
    library = python_for_windows(version) / "libs"
    variables["AWS_LC_SYS_PREBUILT_NASM"] = "1"
    variables["CARGO_ENCODED_RUSTFLAGS"] += f"\x1f-Lnative={library}"


def python_for_windows(version: str) -> Path:
    """Return the folder of a CPython for Windows, which the first call gets."""
    try:
        return Path(run([CHECKOUT / "tools" / "windows-python", version]).strip())
    except BuildError as error:
        raise UnavailableError(str(error).splitlines()[-1]) from None


def make_environment(python: str, folder: Path, package: Path, variables: dict[str, str]) -> Path:
    """Return the interpreter of a new environment in which there is nothing but the package."""
    run([python, "-m", "venv", "--clear", folder])
    new = folder / "bin" / "python"
    quiet = ("--quiet", "--disable-pip-version-check", "--no-cache-dir")
    run([new, "-m", "pip", "install", *quiet, package], env=variables)
    return new
