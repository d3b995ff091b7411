"""What importing the package loads, which every program that uses it pays for."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, sys
before = set(sys.modules)
import ringloop
print(*sorted(set(sys.modules) - before))
"""
# The lookup threads' queue; asyncio has `__future__` from 3.12 on.
OF_THE_STANDARD_LIBRARY = {"__future__", "_queue", "queue"}


@pytest.mark.one_thread("starts an interpreter")
def test_import_loads_little_that_asyncio_does_not() -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    others = {name for name in done.stdout.split() if "ringloop" not in name.partition(".")[0]}
    assert others <= OF_THE_STANDARD_LIBRARY
