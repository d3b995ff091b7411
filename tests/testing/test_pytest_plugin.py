"""`ringloop.testing.pytest_plugin`, in a pytest of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

TESTS = """
import asyncio

import pytest
from ringloop.testing import VirtualLoop


@pytest.fixture
def hours():
    return 3


@pytest.mark.virtual_time
async def test_sleeps(hours):
    await asyncio.sleep(hours * 3600)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    assert loop.time() == 10800


@pytest.mark.virtual_time
async def test_on_the_loop_of_the_fixture(virtual_loop):
    assert asyncio.get_running_loop() is virtual_loop


def test_runs(virtual_run, virtual_loop):
    assert virtual_run(asyncio.sleep(60, "slept")) == "slept"
    assert virtual_loop.time() == 60


def test_leaves_a_task(virtual_run):
    async def main():
        asyncio.create_task(asyncio.sleep(1000))
        await asyncio.to_thread(int)

    virtual_run(main())


@pytest.mark.virtual_time
async def test_fails():
    await asyncio.sleep(5)
    assert asyncio.get_running_loop().time() == 6


@pytest.mark.virtual_time
async def test_waits_for_nothing():
    await asyncio.get_running_loop().create_future()


@pytest.mark.virtual_time
def test_is_no_coroutine_function():
    pass
"""


def test_fixtures_and_the_mark(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["ringloop.testing.pytest_plugin"]')
    (tmp_path / "test_virtual.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "--strict-markers", "-p", "no:anyio", "test_virtual.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={"PYTHONPATH": str(ROOT / "python"), "PATH": "/usr/bin:/bin"},
    )
    assert "3 failed, 4 passed" in done.stdout, done.stdout + done.stderr
    assert "assert 5.0 == 6" in done.stdout
    assert "DeadlockError: nothing can happen any more at virtual time 0" in done.stdout
    assert "test_waits_for_nothing" in done.stdout
    assert "has the mark virtual_time but is not a coroutine function" in done.stdout
