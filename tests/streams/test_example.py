"""examples/streams runs, and asyncio's names are patched when that is asked for, and only then."""

from __future__ import annotations

import subprocess
import sys

import pytest


def output_of(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


def test_example_runs() -> None:
    assert output_of("examples/streams/lines.py") == "HELLO\nSTREAMS\n"


@pytest.mark.parametrize(
    ("value", "is_patched"), [("1", True), ("0", False), ("", False), (None, False)]
)
def test_environment_patches_on_import(
    value: str | None, is_patched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if value is None:
        monkeypatch.delenv("RINGLOOP_FAST_STREAMS", raising=False)
    else:
        monkeypatch.setenv("RINGLOOP_FAST_STREAMS", value)
    program = "import asyncio, ringloop; print(asyncio.start_server is ringloop.start_server)"
    assert output_of("-c", program) == f"{is_patched}\n"


def test_install_patches_and_takes_back() -> None:
    program = """if True:
        import asyncio, ringloop
        standard = asyncio.open_connection
        ringloop.install(fast_streams=True)
        assert asyncio.open_connection is ringloop.open_connection
        ringloop.install()
        assert asyncio.open_connection is ringloop.open_connection
        ringloop.install(fast_streams=False)
        assert asyncio.open_connection is standard
        print("done")
    """
    assert output_of("-c", program) == "done\n"
