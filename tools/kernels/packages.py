"""Debian's kernels and its qemu, unpacked into the cache folder: no root, nothing is installed.

Owns: `~/.cache/ringloop/kernels`. Called by: `__main__`. The archive is the one of apt's own sources, in
the suite that has the kernel.
"""

from __future__ import annotations

import platform
import re
import tempfile
from pathlib import Path

from tests.interop import debian
from tests.interop.installing import CACHE as PROGRAMS
from tests.interop.installing import UnavailableError, run

CACHE = PROGRAMS.parent / "kernels"
# The kernel for virtual machines: the same configuration of io_uring, fewer drivers to boot.
FLAVOUR = "cloud-amd64"
# The suite that has each kernel.
SUITES = {"5.10": "bullseye", "6.1": "bookworm", "6.12": "trixie", "newest": "sid"}


def kernel(name: str) -> Path:
    """Return the image of this kernel, downloaded the first time."""
    folder = CACHE / name
    if not (found := _images(folder)):
        if name not in SUITES:
            raise UnavailableError(f"no kernel {name!r}: there are {', '.join(SUITES)}")
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as place:
            for archive in _download(Path(place), SUITES[name]):
                run(["dpkg", "-x", str(archive), str(folder)])
        found = _images(folder)
    if not found:
        raise UnavailableError(f"no vmlinuz in the packages of {SUITES[name]}")
    return found[0]


def emulator() -> tuple[list[str], dict[str, str]]:
    """Return the command of qemu with its firmware's folders, and its environment."""
    if platform.machine() != "x86_64":
        raise UnavailableError("the kernels are for x86_64, and so is the package built here")
    root = debian.unpacked("qemu-system", ("qemu-system-x86",))
    libraries = [*root.libraries.split(":"), str(root.folder / "lib" / "x86_64-linux-gnu")]
    share = root.folder / "usr" / "share"
    command = [str(root.folder / "usr/bin/qemu-system-x86_64")]
    for firmware in ("qemu", "seabios"):
        command += ["-L", str(share / firmware)]
    return command, {"LD_LIBRARY_PATH": ":".join(libraries)}


def _images(folder: Path) -> list[Path]:
    return [*folder.glob("boot/vmlinuz-*"), *folder.glob("usr/lib/modules/*/vmlinuz")]


def _download(place: Path, suite: str) -> list[Path]:
    """Download the packages that the image is in: newer suites have it beside `linux-image`."""
    settings = _settings(place, suite)
    run(["apt-get", *settings, "update"])
    wanted = [f"linux-image-{FLAVOUR}"]
    for package in wanted:
        text = run(["apt-cache", *settings, "show", "--no-all-versions", package])
        depends = re.search(r"^Depends: (.*)$", text, re.MULTILINE)
        names = re.findall(rf"linux-(?:image|binary)-\S*{FLAVOUR}", depends[1] if depends else "")
        wanted += [one for one in names if one not in wanted]
    run(["apt-get", *settings, "download", *wanted[1:]], cwd=place)
    return sorted(place.glob("*.deb"))


def _settings(place: Path, suite: str) -> list[str]:
    """Let apt see the machine's archive in another suite alone, and no installed package."""
    own = re.search(r"^VERSION_CODENAME=(\S+)", Path("/etc/os-release").read_text(), re.MULTILINE)
    if own is None or not debian.SOURCES.exists():
        raise UnavailableError(f"{debian.SOURCES} is not there: not a Debian of today")
    for stanza in debian.SOURCES.read_text().split("\n\n"):
        if re.search(rf"^Suites:(.*\s)?{own[1]}(\s|$)", stanza, re.MULTILINE):
            break
    else:
        raise UnavailableError(f"{debian.SOURCES} does not name {own[1]}")
    sources, status = place / "suite.sources", place / "status"
    sources.write_text(re.sub(r"^Suites:.*$", f"Suites: {suite}", stanza, flags=re.MULTILINE))
    status.touch()
    for folder in ("lists", "archives"):
        (place / folder / "partial").mkdir(parents=True)
    settings = {
        "Dir::State::lists": place / "lists",
        "Dir::State::status": status,
        "Dir::Cache": place,
        "Dir::Cache::archives": place / "archives",
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": place / "none",
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
        # Nothing is installed: the lock of the machine's packages is not needed.
        "Debug::NoLocking": "1",
    }
    return [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
