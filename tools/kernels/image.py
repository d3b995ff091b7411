"""The initramfs: this interpreter, the package built here, the programs `guest` and `checks`.

Owns: the choice of files and the archive's format (the kernel's
Documentation/driver-api/early-userspace/buffer-format.rst). Called by: `__main__`. Files keep their
paths, so the interpreter finds its library as it does here.
"""

from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tests.interop.installing import CHECKOUT, run
from tests.support.tls import Certificates

if TYPE_CHECKING:
    from collections.abc import Iterable

HERE = Path(__file__).parent
# The folder of the guest's own files.
GUEST = Path("/guest")
# What the engine's tests start.
PROGRAMS = ("sh", "cat", "echo", "head", "env", "sleep", "true", "false")
# Of `python/`.
PACKAGES = ("ringloop", "_ringloop_install")
# Of the standard library: what no loop imports, and most of its size.
LEFT_OUT = {
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "ensurepip",
    "turtledemo",
    "site-packages",
    "pydoc_data",
}
LEFT_OUT_BUILDS = re.compile(r"config-3\..*|.*\.opt-[12]\.pyc|.*\.a")


class Archive:
    """A cpio archive in the format "newc"."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._seen: set[Path] = set()

    def add(
        self,
        path: Path,
        mode: int,
        data: bytes = b"",
        mtime: int = 0,
        device: tuple[int, int] = (0, 0),
    ) -> None:
        """Add an entry after its folders; the second of one path is ignored."""
        if path in self._seen:
            return
        if path.parent != path and path.parent != Path("/"):
            self.add(path.parent, stat.S_IFDIR | 0o755)
        self._seen.add(path)
        self._entry(str(path).lstrip("/"), mode, data, mtime, device)

    def file(self, source: Path, path: Path | None = None) -> None:
        """Add a file of this machine, a link as what it leads to; extensions without symbols."""
        data, status = source.read_bytes(), source.stat()
        if data.startswith(b"\x7fELF") and len(data) > 1 << 20:
            data = _stripped(source) or data
        # The interpreter compares a module's time with that in its compiled file.
        self.add(path or source, stat.S_IFREG | status.st_mode & 0o777, data, int(status.st_mtime))

    def close(self) -> None:
        """Write the end."""
        self._entry("TRAILER!!!", 0, b"", 0, (0, 0))

    def _entry(
        self, name: str, mode: int, data: bytes, mtime: int, device: tuple[int, int]
    ) -> None:
        encoded = name.encode() + b"\0"
        fields = (len(self._seen), mode, 0, 0, 1, mtime, len(data), 0, 0, *device, len(encoded), 0)
        header = b"070701" + b"".join(b"%08X" % field for field in fields) + encoded
        self._out.write(header + bytes(-len(header) % 4) + data + bytes(-len(data) % 4))


def build(place: Path, plan: dict[str, object], tests: list[Path]) -> Path:
    """Write the image that carries out `plan`; return its path."""
    path = place / "initramfs"
    with path.open("wb") as out:
        archive = Archive(out)
        archive.add(Path("/dev/console"), stat.S_IFCHR | 0o600, device=(5, 1))
        for folder in ("/proc", "/sys", "/tmp"):
            archive.add(Path(folder), stat.S_IFDIR | 0o755)
        archive.add(
            Path("/etc/hosts"), stat.S_IFREG | 0o644, b"127.0.0.1 localhost\n::1 localhost\n"
        )
        archive.add(GUEST / "plan.json", stat.S_IFREG | 0o644, json.dumps(plan).encode())
        archive.add(GUEST / "tests/__init__.py", stat.S_IFREG | 0o644)
        archive.file(HERE / "guest.py", GUEST / "guest.py")
        archive.file(HERE / "checks.py", GUEST / "checks.py")
        archive.file(CHECKOUT / "tests/support/refuse.py", GUEST / "refuse.py")
        binaries = [*_interpreter(archive), *_package(archive)]
        for test in tests:
            archive.file(test, GUEST / "engine" / test.name)
        if tests:
            binaries += _programs(archive)
        for library in sorted(
            {one for binary in [*binaries, *tests] for one in _libraries(binary)}
        ):
            archive.file(library)
        with tempfile.TemporaryDirectory(dir=place) as folder:
            certificates = Certificates(Path(folder))
            certificate, key = certificates.issue()
            for source in (certificates.authority, certificate, key):
                archive.file(source, GUEST / source.name)
        archive.close()
    return path


def interpreter() -> Path:
    """Return where the interpreter is, here and in the guest: not a virtual environment's link."""
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def _interpreter(archive: Archive) -> Iterable[Path]:
    archive.file(interpreter())
    yield interpreter()
    library = Path(shutil.__file__).parent
    for path in sorted(library.rglob("*")):
        parts = path.relative_to(library).parts
        if (
            LEFT_OUT.intersection(parts)
            or any(map(LEFT_OUT_BUILDS.fullmatch, parts))
            or path.is_dir()
        ):
            continue
        archive.file(path)
        if path.suffix == ".so":
            yield path


def _programs(archive: Archive) -> Iterable[Path]:
    for name in PROGRAMS:
        found = shutil.which(name)
        if found is not None:
            archive.file(Path(found).resolve(), Path("/usr/bin") / name)
            yield Path(found)


def _package(archive: Archive) -> Iterable[Path]:
    python = CHECKOUT / "python"
    suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
    for path in sorted(one for name in PACKAGES for one in (python / name).rglob("*")):
        is_other = path.suffix == ".so" and not path.name.endswith(suffix)
        if path.is_dir() or is_other:
            continue
        archive.file(path, GUEST / "python" / path.relative_to(python))
        if path.suffix == ".so":
            yield path


def _libraries(binary: Path) -> list[Path]:
    """Return the shared libraries of a binary, its loader among them."""
    listed = run(["ldd", str(binary)])
    return [Path(one) for one in re.findall(r"(/\S+) \(0x", listed)]


def _stripped(source: Path) -> bytes:
    strip = shutil.which("strip")
    if strip is None:
        return b""
    with tempfile.NamedTemporaryFile() as out:
        done = subprocess.run(
            [strip, "-o", out.name, str(source)], check=False, capture_output=True
        )
        return Path(out.name).read_bytes() if done.returncode == 0 else b""
