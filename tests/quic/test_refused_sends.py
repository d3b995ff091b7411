"""A full socket, and a network that returns errors: no data is lost."""

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


def test_refused_messages_are_sent_later(certificates: Certificates, loop_name: str) -> None:
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
