"""aiofiles' own tests on `ringloop.fs.compat.aiofiles`, compared with the package on the same machine.

Run by `make fs-shims`. The tests come from the package's source distribution. A test that passes
with the package and not with ours has its reason in `EXPECTED`; one that passes after all fails here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ecosystem.environment import sources_of
from tests.ecosystem.suites import Suite

SUITE = Suite("aiofiles", "25.1.0")
ROOT = Path(__file__).resolve().parents[3]
LOOPS = ("asyncio", "ringloop-uring", "ringloop-epoll")

EXPECTED = {
    "tests/threadpool/test_concurrency.py::test_slow_file": (
        "makes the package slow by a patch of the function that it opens files by; ours has none"
    ),
}


@pytest.fixture(scope="module")
def sources() -> Path:
    """The tests, and the package that they are of."""
    return sources_of(SUITE, Path(sys.executable), None)


@pytest.fixture(scope="module")
def failures_of_the_package(sources: Path) -> set[str]:
    """What fails with the package itself, as some tests do for root."""
    return _failures(sources, "package")


@pytest.mark.parametrize("loop", LOOPS)
def test_aiofiles_tests_pass_as_with_the_package(
    loop: str, sources: Path, failures_of_the_package: set[str]
) -> None:
    assert _failures(sources, loop) - failures_of_the_package == set(EXPECTED)


def _failures(sources: Path, loop: str) -> set[str]:
    path = [str(ROOT / "python"), str(ROOT)]
    if loop == "package":
        path.append(str(sources / "src"))
    plugin = ("-p", "tests.ecosystem.files.shim", "-p", "no:cacheprovider", "--timeout", "60")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rf", *plugin, "tests"],
        cwd=sources,
        env={**os.environ, "FILES_LOOP": loop, "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    # That it ran at all: the suite has 219 tests.
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None, done.stdout + done.stderr
    assert int(passed[1]) > 200, done.stdout
    return set(re.findall(r"^FAILED (\S+)", done.stdout, re.MULTILINE))
