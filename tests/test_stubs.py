"""The type stubs of the native module match the module: mypy's stubtest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# A loop uses private, untyped parts of asyncio; otherwise mypy's defaults for the running
# interpreter.
SETTINGS = """
[mypy]
mypy_path = {path}
[mypy-ringloop.*]
disable_error_code = attr-defined
[mypy-cryptography.*]
ignore_missing_imports = True
"""
# What stubtest cannot check: type variables, the names of unions and literals, and that decorated
# functions are asynchronous (tests/quic/test_keywords.py has their signatures); and a module of Windows.
ALLOWED = r"""
ringloop\..*\._?Ts?
ringloop\._loop\.ProtocolT
ringloop\._driver\.Driver
ringloop\._writes\.Writes
ringloop\._proactor
ringloop\.profiling\.(Format|Mode)
ringloop\.quic\._connection\.Policy
ringloop\.quic\._connect\.open_connection
ringloop\.quic\._serve\.serve
ringloop\.h3\._client\.open_client
ringloop\.h3\._server\.serve
ringloop\.webtransport\._connect\.open_session
ringloop\.webtransport\._serve\.serve
"""


@pytest.mark.sources
@pytest.mark.timeout(300)
def test_stubs_are_complete(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    settings, allowed = tmp_path / "mypy.ini", tmp_path / "allowed"
    settings.write_text(SETTINGS.format(path=ROOT / "python"))
    allowed.write_text(ALLOWED)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy.stubtest", "ringloop", "--concise"),
            *("--mypy-config-file", str(settings), "--allowlist", str(allowed)),
            "--ignore-unused-allowlist",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
