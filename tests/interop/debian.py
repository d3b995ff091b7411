"""Debian's packages, unpacked into the cache folder: no root, and the machine stays as it is.

Owns: folders with programs, and the libraries that they need beyond those of the machine. Called
by: `programs`, `http3`, `tests.browser`, `tests.aarch64`.
"""

from __future__ import annotations

import platform
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.interop.installing import CACHE, UnavailableError, run

SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
# Of this release come programs that the machine's own has too old: HTTP/3 in curl and nginx.
RELEASE = "trixie"


@dataclass(frozen=True)
class Unpacked:
    """A folder laid out as the root of a file system."""

    folder: Path
    # Whether it has all libraries, the C library among them; otherwise the machine's are needed.
    is_whole: bool

    @property
    def libraries(self) -> str:
        """The search path of its libraries; some packages have a folder of their own there."""
        place = self.folder / "usr" / "lib" / f"{platform.machine()}-linux-gnu"
        return ":".join(map(str, [place, *{one.parent for one in place.glob("*/lib*.so*")}]))

    def command(self, program: str) -> tuple[str, ...]:
        """How to start a program of a whole folder: by the loader that is in it."""
        loader = next((self.folder / "usr" / "lib").glob("*/ld-linux-*.so.*"))
        return (str(loader), "--library-path", self.libraries, str(self.folder / program))

    def version(self, package: str) -> str:
        """The version of a package in it."""
        name = next((self.folder / "packages.d").glob(f"{package}_*.deb")).name
        return name.split("_")[1].partition("-")[0].rpartition("%3a")[2]

    @property
    def environment(self) -> dict[str, str]:
        """What a program needs to find its libraries beside the machine's."""
        return {"LD_LIBRARY_PATH": self.libraries}


def unpacked(
    name: str,
    packages: tuple[str, ...],
    release: str | None = None,
    architecture: str | None = None,
) -> Unpacked:
    """Return the folder of these packages, downloaded the first time.

    Of the machine's release, those packages are added that the machine lacks; of another, `release`,
    every package they depend on, for Debian's `architecture` if it is not to be the machine's.
    """
    folder = CACHE / name
    stamp = folder / "packages"
    wanted = " ".join(filter(None, (release or "", architecture, *packages)))
    is_whole = stamp.exists() and (folder / "packages.d").is_dir()
    if not is_whole or stamp.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as place:
            for archive in download(Path(place), packages, release, architecture):
                run(["dpkg", "-x", str(archive), str(folder)])
                (folder / "packages.d").mkdir(exist_ok=True)
                (folder / "packages.d" / archive.name).touch()
        stamp.write_text(wanted)
    return Unpacked(folder, release is not None)


def download(
    folder: Path, packages: tuple[str, ...], release: str | None, architecture: str | None = None
) -> list[Path]:
    """Download the packages and what they depend on, with package lists of this folder's own."""
    lists, archives = folder / "lists", folder / "archives"
    (lists / "partial").mkdir(parents=True)
    (archives / "partial").mkdir(parents=True)
    settings: dict[str, Path | str] = {
        "Dir::State::lists": lists,
        "Dir::Cache": folder,
        "Dir::Cache::archives": archives,
        "APT::Sandbox::User": "",
        # Nothing is installed: the lock of the machine's packages is not needed.
        "Debug::NoLocking": "1",
        "APT::Install-Recommends": "false",
    }
    if SOURCES.exists():
        # Debian's own archive alone: that of others may be out of reach.
        settings |= {"Dir::Etc::sourcelist": SOURCES, "Dir::Etc::sourceparts": folder / "none"}
    if release is not None:
        settings |= other_release(folder, release)
    if architecture is not None:
        settings |= {"APT::Architecture": architecture, "APT::Architectures": architecture}
    options = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    run(["apt-get", *options, "update"])
    run(["apt-get", *options, "install", "--yes", "--download-only", *packages])
    return sorted(archives.glob("*.deb"))


def other_release(folder: Path, release: str) -> dict[str, Path | str]:
    """Let apt see the same archive in another release, and no installed package."""
    own = re.search(r"^VERSION_CODENAME=(\S+)", Path("/etc/os-release").read_text(), re.MULTILINE)
    if own is None or not SOURCES.exists():
        raise UnavailableError(f"{SOURCES} is not there: not a Debian of today")
    sources = folder / "release.sources"
    sources.write_text(SOURCES.read_text().replace(own[1], release))
    installed = folder / "status"
    installed.touch()
    return {"Dir::Etc::sourcelist": sources, "Dir::State::status": installed}
