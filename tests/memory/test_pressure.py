"""Out of memory for seconds: no stream has an unreported hole, and everything works afterwards.

The scenario is in `pressure.py`, which runs in a child process and limits itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import support

if TYPE_CHECKING:
    from tests.support.tls import Certificates

SECONDS = 1.5


def environment() -> dict[str, str]:
    """One arena for malloc, so that no other arena takes the memory; small mimalloc arenas for 3.14t."""
    values = {**os.environ, "MALLOC_ARENA_MAX": "1", "MIMALLOC_ARENA_RESERVE": "16384"}
    # A panic that prints its stack needs megabytes (docs/policies.md).
    values.pop("RUST_BACKTRACE", None)
    return values


@pytest.mark.one_thread("a child of its own is limited")
# KiB left: less than the loop's larger buffers, and more.
@pytest.mark.parametrize("left", [2048, 16 * 1024])
def test_loop_survives_lasting_memory_pressure(
    loop_name: str, certificates: Certificates, left: int
) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio does not always outlive it: ends get lost, and its loop stays running")
    certificates.issue()
    arguments = [
        loop_name,
        str(certificates.folder),
        "--left",
        str(left),
        "--seconds",
        str(SECONDS),
    ]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.support.pressure", *arguments],
        cwd=Path(__file__).parents[2],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=10 * support.PATIENCE_SECONDS,
        check=False,
    )
    if done.returncode and "recover from MemoryErrors" in done.stderr:
        pytest.skip("the interpreter could not make a MemoryError, and ends the process then")
    if sys.version_info[:4] == (3, 15, 0, "candidate") and "malloc(): unsorted" in done.stderr:
        pytest.skip("this release candidate corrupts its heap then, under asyncio's loop too")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["faults"] == []
    assert report["rounds"] > 0
    told = sum(kind["told"] for kind in report["streams"].values())
    assert report["refused"] + told > 0, "memory was never short"
