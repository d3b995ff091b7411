"""The blocks of docs/guides/rust-extensions.md are what the extensions here are built of, and run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests import support
from tests.docs.blocks import ROOT, Block, blocks_of
from tests.extension import FOLDER, built

PAGE = ROOT / "docs/guides/rust-extensions.md"
README = ROOT / "crates/ringloop-pyo3/README.md"
SOURCES = ("examples/extension/src/lib.rs", "tests/extension/probe/src/lib.rs")


def blocks(language: str) -> list[Block]:
    return [
        block for page in (PAGE, README) for block in blocks_of(page) if block.language == language
    ]


@pytest.mark.parametrize("block", blocks("rust"), ids=str)
def test_rust_of_the_guide_is_built(block: Block) -> None:
    assert any(squeezed(block.text) in squeezed((ROOT / source).read_text()) for source in SOURCES)


def squeezed(text: str) -> str:
    """Without the indentation."""
    return " ".join(text.split())


def test_settings_of_the_guide_are_the_examples() -> None:
    (settings,) = blocks("toml")
    manifest = (ROOT / "examples/extension/Cargo.toml").read_text().splitlines()
    assert {line for line in settings.text.splitlines() if line} <= {*manifest}


@pytest.mark.parametrize("driver", support.DRIVERS)
def test_program_of_the_guide_runs(driver: str) -> None:
    support.usable_loop(f"ringloop-{driver}")
    built("ringloop_echo")
    program = ROOT / "examples/extension/echo.py"
    (block,) = blocks("python")
    assert block.text == program.read_text()
    done = subprocess.run(
        [sys.executable, program],
        env={**os.environ, "PYTHONPATH": str(FOLDER), "RINGLOOP_DRIVER": driver},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout.splitlines() == [
        "b'once'",
        "b'a hundred times'",
        "Rust awaits Python: b'one'",
        "Rust awaits Python: b'two'",
    ], done.stderr
