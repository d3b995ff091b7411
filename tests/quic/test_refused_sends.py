"""A socket that is full, and a network that answers errors: nothing is lost but time."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.quic.refused_sends import NUMBERS, UNAVAILABLE

if TYPE_CHECKING:
    from tests.support.tls import Certificates


def test_messages_that_the_kernel_refuses_are_sent_later_or_again(
    certificates: Certificates, loop_name: str
) -> None:
    if platform.machine() not in NUMBERS:
        pytest.skip("no numbers of system calls for this machine")
    paths = [*certificates.issue(), certificates.authority]
    done = subprocess.run(
        [sys.executable, "-m", "tests.quic.refused_sends", loop_name, *map(str, paths)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    if done.returncode == UNAVAILABLE:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stderr
    assert "arrived" in done.stdout
