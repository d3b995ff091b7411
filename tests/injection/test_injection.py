"""Interrupts and cancellations at random points of a workload: nothing is lost or done twice.

A few dozen runs each; docs/internals/injection.md records the ten thousand. What they have found has
tests of its own.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.injection.run import DRIVERS, KINDS

RUNS = 25


@pytest.mark.parametrize("kind", KINDS)
def test_runs_with_injected_faults(loop_name: str, kind: str) -> None:
    driver = next(driver for driver, name in DRIVERS.items() if name == loop_name)
    command = [sys.executable, "-m", "tests.injection", kind, driver, "--runs", str(RUNS)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{RUNS} runs, " in result.stdout
    assert " 0 thrown" not in result.stdout
