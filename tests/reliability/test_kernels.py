"""Kernels that lack features of the ring, and system calls that fail: children of their own.

`make soak` plays all of the catalogue; these are few of it, for a moment.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests import support
from tests.soak import episodes
from tests.soak.episodes import EPOLL, URING, Episode

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.tls import Certificates

SECONDS = 1.0
pytestmark = pytest.mark.one_thread("the work is in a child")
CALLS = {
    URING: Episode(
        "call", "EINTR", URING, {"call": "io_uring_enter", "error": "EINTR", "when": "5+3"}
    ),
    EPOLL: Episode("call", "EAGAIN", EPOLL, {"call": "recvfrom", "error": "EAGAIN", "when": "3+3"}),
}
# What the ring driver cannot do without, and the words of its refusal.
REQUIRED = {
    "IORING_FEAT_CQE_SKIP": {"SOAK_FEATURES": 1 << 11},
    "IORING_OP_RECV": {"SOAK_OPERATIONS": 27},
}
REPORT = """
import asyncio, ringloop
loop = ringloop.new_event_loop()
print(loop.driver, loop.driver_reason)
loop.run_until_complete(asyncio.sleep(0))
loop.close()
"""


def played(episode: Episode, certificates: Certificates) -> episodes.Result:
    support.usable_loop(episode.loop)
    certificates.issue()
    result = episode.play(certificates.folder, 0, SECONDS)
    if not result.ran:
        pytest.skip(f"NOT run: {result.reason}")
    return result


def test_ring_without_any_optional_feature(certificates: Certificates) -> None:
    episode = Episode("feature", "all", URING, dict(episodes.ALL_FEATURES))
    result = played(episode, certificates)
    assert result.faults == []
    assert result.parts > 0
    assert result.faulted > 1


@pytest.mark.parametrize("missing", list(REQUIRED))
def test_loop_is_on_epoll_without_a_required_feature(tmp_path: Path, missing: str) -> None:
    support.usable_loop(URING)
    built = episodes.library(tmp_path)
    if isinstance(built, str):
        pytest.skip(f"NOT run: {built}")
    variables = {name: str(value) for name, value in REQUIRED[missing].items()}
    environment = {name: value for name, value in os.environ.items() if name != "RINGLOOP_DRIVER"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", REPORT],
        env=environment | variables | {"LD_PRELOAD": str(built)},
        cwd=episodes.ROOT,
        capture_output=True,
        text=True,
        timeout=support.PATIENCE_SECONDS,
        check=False,
    )
    assert done.stderr == ""
    driver, _, reason = done.stdout.partition(" ")
    assert driver == "epoll"
    assert missing in reason


@pytest.mark.parametrize("loop_name", [URING, EPOLL])
def test_failing_calls_neither_hang_nor_change_a_byte(
    loop_name: str, certificates: Certificates
) -> None:
    result = played(CALLS[loop_name], certificates)
    assert result.faults == []
    assert result.parts > 0
    assert result.faulted > 0
