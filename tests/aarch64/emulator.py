"""How a program for aarch64 runs here: qemu's emulation of a process, and a folder with its libraries.

Owns: which packages of Debian that takes. Called by: `__main__`. The emulated kernel interface is that
of this machine, without io_uring: qemu answers its calls with ENOSYS.
"""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.interop import debian

if TYPE_CHECKING:
    from pathlib import Path

# With CPython; the name of a wheel that it takes is that of its version.
PACKAGES = ("python3.13", "libpython3.13-stdlib", "libc6", "libgcc-s1")
RELEASE, PYTHON = "trixie", "3.13"


@dataclass(frozen=True)
class Emulator:
    """The command that stands before an emulated one; empty on an aarch64 machine."""

    prefix: tuple[str, ...]
    root: Path

    @property
    def python(self) -> tuple[str, ...]:
        """How CPython for aarch64 starts."""
        return (*self.prefix, str(self.root / "usr" / "bin" / f"python{PYTHON}"))

    @property
    def environment(self) -> dict[str, str]:
        """What emulated programs are told: the ring may be refused, and where bytecode is kept."""
        return {
            "RINGLOOP_ALLOW_NO_URING": "1",
            "RINGLOOP_EMULATED": "1",
            "PYTHONPYCACHEPREFIX": str(self.root / "bytecode"),
        }


def find() -> Emulator:
    """Return the emulator; what the machine lacks is unpacked into the cache folder, once."""
    root = debian.unpacked("aarch64", PACKAGES, RELEASE, "arm64").folder
    # The packages expect the folders that Debian's base system has as links.
    if not (root / "lib").exists():
        (root / "lib").symlink_to("usr/lib")
    if platform.machine() == "aarch64":
        return Emulator((), root)
    program = os.environ.get("RINGLOOP_QEMU") or shutil.which("qemu-aarch64-static")
    if program is None:
        folder = debian.unpacked("qemu", ("qemu-user-static",)).folder
        program = str(folder / "usr" / "bin" / "qemu-aarch64-static")
    return Emulator((program, "-L", str(root)), root)
