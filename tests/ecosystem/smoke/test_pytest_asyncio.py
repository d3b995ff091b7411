"""pytest-asyncio, in its own pytest process: a user's tests run on the installed loop."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CONFTEST = """
import os

if os.environ["SMOKE_LOOP"] != "asyncio":
    import ringloop

    os.environ["RINGLOOP_DRIVER"] = os.environ["SMOKE_LOOP"].removeprefix("ringloop-")
    ringloop.install()
"""

TESTS = """
import asyncio
import os

import pytest
import pytest_asyncio

from tests.ecosystem.smoke.services import assert_running_loop


@pytest_asyncio.fixture
async def running():
    assert_running_loop(os.environ["SMOKE_LOOP"])
    await asyncio.sleep(0.01)
    yield asyncio.get_running_loop()
    await asyncio.sleep(0.01)


@pytest.mark.asyncio
async def test_fixture_and_test_share_the_loop(running):
    assert asyncio.get_running_loop() is running


@pytest.mark.asyncio(loop_scope="module")
async def test_module_loop_is_ours_too():
    assert_running_loop(os.environ["SMOKE_LOOP"])
"""


def test_fixtures_and_tests_run_on_the_installed_loop(
    loop_environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_async.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "ignore::DeprecationWarning", "."],
        cwd=tmp_path,
        env=loop_environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr
