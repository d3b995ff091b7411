"""Tests of the fixtures: a leak check that cannot fail proves nothing."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
import sys
import textwrap
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import support
from tests.support import parallel, sample
from tests.support.collected import is_collected

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any


def test_open_descriptor_is_a_leak() -> None:
    check = support.LeakCheck.begin()
    read_end, write_end = os.pipe()
    with pytest.raises(pytest.fail.Exception, match="descriptor"):
        check.assert_clean(timeout=0)
    os.close(read_end)
    os.close(write_end)
    check.assert_clean()


def test_running_thread_is_a_leak() -> None:
    check = support.LeakCheck.begin()
    release = threading.Event()
    thread = threading.Thread(target=release.wait, name="left-behind")
    thread.start()
    with pytest.raises(
        pytest.fail.Exception, match=r"left-behind; native thread .* \([A-Z], \w+\)"
    ):
        check.assert_clean(timeout=0)
    release.set()
    thread.join()
    check.assert_clean()


def test_child_process_is_a_leak() -> None:
    check = support.LeakCheck.begin()
    command = [sys.executable, "-c", "input()"]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE),
        pytest.raises(pytest.fail.Exception, match="child process"),
    ):
        check.assert_clean(timeout=0)
    check.assert_clean()


def test_unclosed_loop_is_a_leak(loop_factory: support.LoopFactory) -> None:
    check = support.LeakCheck.begin()
    loop = loop_factory()
    with pytest.raises(pytest.fail.Exception, match="descriptor"):
        check.assert_clean(timeout=0)
    loop.close()
    del loop
    check.assert_clean()


def test_task_left_on_loop_is_named(loop_factory: support.LoopFactory) -> None:
    async def stays() -> None:
        await asyncio.Event().wait()

    async def main() -> asyncio.Task[None]:
        return asyncio.create_task(stays(), name="left-running")

    loop = loop_factory()
    task = loop.run_until_complete(main())
    assert ["left-running" in left for left in support.close_loop(loop)] == [True]
    assert task.cancelled()
    assert loop.is_closed()


@pytest.mark.loop_errors
def test_loop_errors_are_logged(loop: asyncio.AbstractEventLoop, loop_log: support.LoopLog) -> None:
    async def main() -> None:
        loop.call_soon(lambda: 1 / 0)
        await support.wait_until(lambda: loop_log.records, "the log record")

    loop.run_until_complete(main())
    messages = loop_log.take()
    assert len(messages) == 1
    assert "ZeroDivisionError" in messages[0] or "Exception in callback" in messages[0]


def test_driver_under_test_is_the_one_asked_for(
    loop_name: str, loop: asyncio.AbstractEventLoop
) -> None:
    if loop_name == support.ORACLE:
        assert isinstance(loop, asyncio.SelectorEventLoop)
    else:
        assert f"ringloop-{loop.driver}" == loop_name  # type: ignore[attr-defined]


def test_wait_until_fails_with_its_words(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    with pytest.raises(pytest.fail.Exception, match="the moon did not come"):
        run(support.wait_until(lambda: False, "the moon", timeout=0))


CULPRITS = {
    "unclosed socket": """
        socket.socket()
    """,
    "pending task destroyed": """
        async def waits():
            await asyncio.get_running_loop().create_future()
        async def main():
            asyncio.create_task(waits())
            await asyncio.sleep(0)
        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
        loop.close()
    """,
    "exception never retrieved": """
        async def fails():
            raise ValueError
        async def main():
            asyncio.create_task(fails())
            await asyncio.sleep(0.01)
        asyncio.run(main())
    """,
    "coroutine never awaited": """
        asyncio.sleep(1)
    """,
    "exception in a finaliser": """
        class Culprit:
            def __del__(self):
                raise ValueError
        Culprit()
    """,
    "exception in a thread": """
        thread = threading.Thread(target=int, args=("x",))
        thread.start()
        thread.join()
    """,
}


@pytest.mark.parametrize("body", CULPRITS.values(), ids=list(CULPRITS))
def test_fixtures_fail_the_test_that(body: str, tmp_path: Path) -> None:
    run = pytest_of_its_own(
        "import asyncio, socket, threading\ndef test_culprit():\n"
        + textwrap.indent(textwrap.dedent(body), "    "),
        tmp_path,
    )
    assert run.returncode == 1, run.stdout + run.stderr
    assert "ERROR" in run.stdout or "FAILED" in run.stdout


def test_leftovers_of_a_failed_test_count_for_it(tmp_path: Path) -> None:
    source = """
        import asyncio

        def test_culprit(run):
            async def fails():
                raise ValueError

            async def main():
                task = asyncio.create_task(fails())
                await asyncio.sleep(0)
                return 1 / 0

            run(main())

        def test_innocent():
            pass
    """
    run = pytest_of_its_own(textwrap.dedent(source), tmp_path, RINGLOOP_TEST_LOOPS="asyncio")
    assert "1 failed, 1 passed, 1 error" in run.stdout, run.stdout + run.stderr
    assert "test_innocent" not in run.stdout


def test_parts_of_the_interpreters_are_all_tests_together() -> None:
    tests = [f"tests/test_a.py::test_named[{n}]" for n in range(60)]
    loops = (support.ORACLE, *(f"ringloop-{driver}" for driver in support.DRIVERS))
    with_loops = [(f"{test[:-1]}-{loop}]", loop) for test in tests for loop in loops]

    def part(interpreter: str) -> set[str]:
        chosen = [test for test in tests if sample.contains(interpreter, test, None)]
        chosen += [test for test, loop in with_loops if sample.contains(interpreter, test, loop)]
        return set(chosen)

    free_threaded, newest, *between = map(part, ("3.14t", "3.14", "3.13", "3.12"))
    assert free_threaded | newest == {*tests, *(test for test, _ in with_loops)}
    # Each driver once on one of the two, and each test once on one of the others.
    drivers = {test for test, loop in with_loops if loop != support.ORACLE}
    assert not (free_threaded & newest & drivers)
    assert not between[0] & between[1]
    assert between[0] | between[1] >= drivers
    assert (between[0] | between[1] | newest) >= set(tests)
    for some in (newest, *between):
        assert 10 <= sum(test in some for test in tests) <= 30
    own = "tests/cpython/test_suite.py::test_module[ringloop-uring]"
    assert all(sample.contains(version, own, "ringloop-uring") for version in ("3.12", "3.13"))


def test_interpreter_collects_its_part(tmp_path: Path) -> None:
    source = """
        import pytest

        @pytest.mark.parametrize("number", range(40))
        def test_named(loop_name, number):
            pass
    """
    every, part = (
        pytest_of_its_own(
            textwrap.dedent(source),
            tmp_path,
            RINGLOOP_TEST_LOOPS="asyncio ringloop-uring ringloop-epoll",
            RINGLOOP_TEST_SAMPLE=interpreter,
            PYTEST_ADDOPTS="--collect-only",
        ).stdout.splitlines()
        for interpreter in ("", "3.14")
    )
    assert sum("::" in line for line in every) == 3 * 40
    # asyncio runs each, and so does one of the drivers.
    assert sum("::" in line for line in part) == 2 * 40
    assert sum("[asyncio-" in line for line in part) == 40
    for driver in ("uring", "epoll"):
        assert sum(f"[ringloop-{driver}-" in line for line in part) >= 5


@pytest.mark.parametrize("threads", ["1", "4"])
def test_fixtures_of_a_skipped_test_end(threads: str, tmp_path: Path) -> None:
    skipped = "import pytest\ndef test_skipped(loop):\n    pytest.skip('no reason')\n"
    run = pytest_of_its_own(
        skipped, tmp_path, RINGLOOP_TEST_THREADS=threads, RINGLOOP_TEST_LOOPS="asyncio"
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "1 skipped" in run.stdout
    assert ("in 4 threads each" in run.stdout) == (threads == "4")


def test_use_of_the_process_is_found_in_the_helpers_of_a_test() -> None:
    names = parallel.names_in(_asks_the_collector)
    assert "collect" in names
    assert "pytest_of_its_own" not in names


def _asks_the_collector() -> bool:
    return is_collected(weakref.ref(threading.current_thread()))


def pytest_of_its_own(
    source: str, folder: Path, **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run a file of tests with the fixtures of this suite, in its own process."""
    file = folder / "test_culprit.py"
    file.write_text(source)
    root = Path(__file__).parent.parent
    options = ["-q", "-p", "no:cacheprovider", "-p", "tests.conftest"]
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *options,
            "-c",
            str(root / "pyproject.toml"),
            str(file),
        ],
        cwd=root,
        # A part is of the suite's own tests.
        env={**os.environ, "RINGLOOP_TEST_SAMPLE": "", **environ},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("module", parallel.OF_ONE_THREAD)
def test_module_that_runs_in_one_thread_exists(module: str) -> None:
    assert importlib.util.find_spec(f"tests.{module}")
