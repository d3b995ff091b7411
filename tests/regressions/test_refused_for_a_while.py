"""Calls that the kernel refuses for a moment: all goes on afterwards, and nothing spins meanwhile.

A listener whose poll was refused had stopped for good, and one that could not be started could not be
tried again. A registration of epoll that could not be narrowed was forgotten, and reported without
end. A ring that the kernel did not take entries of was entered again at once.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.regressions import refused_for_a_while as works
from tests.support import refuse

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.one_thread("the work is in a child")
# Both play those of epoll; a ring has no use of most refusals, and is to be as quiet.
CASES = [
    *[("ringloop-epoll", work) for work in works.EPOLL_WORKS],
    *[("ringloop-uring", work) for work in works.URING_WORKS],
]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = refuse.interposer(refuse.REFUSING, tmp_path_factory.mktemp("refusing"))
    if isinstance(built, str):
        pytest.skip(f"NOT run: {built}")
    return built


@pytest.mark.parametrize(("name", "work"), CASES, ids=lambda case: getattr(case, "__name__", case))
def test_goes_on_after_refusals(library: Path, name: str, work: Any) -> None:
    support.usable_loop(name)
    done = subprocess.run(
        [sys.executable, "-m", works.__name__, name, work.__name__],
        env=os.environ | {"LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        timeout=3 * support.PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
