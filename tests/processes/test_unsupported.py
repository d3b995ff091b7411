"""On a system without an extension the import fails with one sentence that names it."""

from __future__ import annotations

import subprocess
import sys

import pytest

# As where no extension was built.
IMPORT = """
import sys
sys.platform = {system!r}
sys.modules["ringloop._native"] = None
try:
    import ringloop
except ImportError as error:
    print(error.name, error, sep=": ")
"""


@pytest.mark.parametrize("system", ["cygwin", "freebsd14", "sunos5"])
def test_import_names_the_system(system: str) -> None:
    code = IMPORT.format(system=system)
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    said = f"ringloop runs on Linux and is compiled for macOS and Windows, but not for {system}"
    assert done.stdout == f"ringloop: {said}: use asyncio's own event loop here\n"


def test_broken_extension_on_a_supported_system_keeps_its_own_error() -> None:
    code = IMPORT.format(system="linux")
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.startswith("ringloop._native: ")
