"""Wheels for Windows: what is looked at in one, and how one is installed and tried by Wine.

Owns: mingw's programs that read an extension, and a copy of the CPython for Windows. Called by:
`checking`, `__main__`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from building import CHECKOUT, TARGET, BuildError, UnavailableError, python_for_windows, run

if TYPE_CHECKING:
    from checking import Report

OBJDUMP = "x86_64-w64-mingw32-objdump"
# What every Windows has; mingw's own libraries have to be linked statically.
OF_SYSTEM = re.compile(
    r"(advapi32|bcrypt|bcryptprimitives|crypt32|kernel32|msvcrt|ncrypt|ntdll|secur32|user32|userenv"
    r"|ws2_32|api-ms-win-[a-z0-9-]+)\.dll"
)
OF_PYTHON = re.compile(r"python3\d+t?\.dll")
# What Wine 8 aborts in, and Python has a second way for: `CopyFile2`, and WMI, by which `platform` asks.
BEFORE = """
import _winapi, runpy, sys
if hasattr(_winapi, "CopyFile2"):
    del _winapi.CopyFile2
sys.modules["_wmi"] = None
"""
# pip as the interpreter brings it.
PIP = f"""{BEFORE}
import ensurepip, pathlib
bundled = pathlib.Path(ensurepip.__file__).with_name("_bundled")
sys.path[:0] = map(str, bundled.glob("pip-*.whl"))
sys.argv[0] = "pip"
runpy.run_module("pip", run_name="__main__")
"""


def check_extension(extension: bytes, report: Report) -> None:
    """Look for debug information, and for libraries that neither Windows nor Python has."""
    with tempfile.TemporaryDirectory() as folder:
        (file := Path(folder) / "extension").write_bytes(extension)
        shown = run([OBJDUMP, "--private-headers", "--section-headers", "--syms", file])
    if left := re.findall(r"^ +\d+ (\.debug\S*)", shown, re.MULTILINE):
        raise BuildError(f"the extension is not stripped: {', '.join(left)}")
    if "no symbols" not in shown.splitlines():
        raise BuildError("the extension is not stripped: it has a table of symbols")
    if "PyInit__native" not in shown:
        raise BuildError("the extension exports no PyInit__native")
    report.libraries = sorted({name.lower() for name in re.findall(r"DLL Name: (\S+)", shown)})
    others = [name for name in report.libraries if not OF_SYSTEM.fullmatch(name)]
    if len(others) != 1 or not OF_PYTHON.fullmatch(others[0]):
        raise BuildError(
            f"of libraries that Windows has not, it needs {others}, not Python's alone"
        )
    report.library, report.symbols = others[0], ["else the system's libraries"]


def by_wine(python: Path, *arguments: str | Path, **variables: str) -> str:
    """Run a CPython for Windows; return what it printed."""
    wine = {"WINEPREFIX": str(TARGET / "wine"), "WINEDEBUG": "-all", **os.environ, **variables}
    program = python / "python.exe"
    return run(["wine", program, *arguments], env=wine, stdin=subprocess.DEVNULL)


def try_installed(wheel: Path, version: str, smoke: Path) -> str:
    """Let pip install the wheel into a copy of the CPython, use it there, return what that printed."""
    for tool in ("wine", "openssl"):
        if not shutil.which(tool):
            raise UnavailableError(
                f"{tool} is missing; Debian: apt-get install wine wine64 openssl"
            )
    with tempfile.TemporaryDirectory() as folder:
        python = Path(shutil.copytree(python_for_windows(version), Path(folder) / "python"))
        run([CHECKOUT / "tools" / "windows-random", python])
        quiet = (
            "--quiet",
            "--no-input",
            "--disable-pip-version-check",
            "--no-index",
            "--no-cache-dir",
        )
        by_wine(python, "-c", PIP, "install", *quiet, wheel)
        program = f"{BEFORE}\nrunpy.run_path(sys.argv[1], run_name='__main__')"
        return by_wine(python, "-I", "-c", program, smoke)
