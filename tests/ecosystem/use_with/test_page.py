"""docs/use-with.md: each program and each command is run, and says that it ran on ringloop's loop.

The environment is one in which ringloop is installed as from its wheel, with `ringloop_install.pth`.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import support
from tests.ecosystem.smoke.services import START_SECONDS, free_port, process
from tests.ecosystem.use_with.page import Section, sections, text, versions

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = sections()
OURS = "<ringloop.Loop driver="

SERVERS = ("uvicorn", "gunicorn", "hypercorn", "granian", "FastAPI", "Django", "aiohttp")
TESTS = ("pytest-asyncio", "anyio")


def commands_of(*headings: str) -> list[tuple[str, str]]:
    return [(heading, command) for heading in headings for command in PAGE[heading].commands]


@pytest.fixture(params=support.DRIVERS)
def environment(request: pytest.FixtureRequest) -> dict[str, str]:
    """Each driver, for every loop that does not name one; the programs of this environment first."""
    support.usable_loop(f"ringloop-{request.param}")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    path = f"{Path(sys.executable).parent}:{kept['PATH']}"
    return {**kept, "PATH": path, "RINGLOOP_DRIVER": request.param, "GRANIAN_HOST": "127.0.0.1"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """All programs of the page, as files."""
    for section in PAGE.values():
        for name, program in section.programs.items():
            if name.endswith(".py"):
                (tmp_path / name).write_text(program)
    return tmp_path


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Redis server of this run."""
    port = free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    with process(command, port, cwd=tmp_path_factory.mktemp("redis")):
        yield f"redis://localhost:{port}"


def split(command: str) -> tuple[list[str], dict[str, str]]:
    """Return the words of a command of the page, and the variables before it."""
    words = shlex.split(command, comments=True)
    variables = {}
    while re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        name, _, variables[name] = words.pop(0).partition("=")
    return words, variables


def finished(command: str, folder: Path, environment: dict[str, str]) -> str:
    """Run a command to its end; return what it printed."""
    words, variables = split(command)
    done = subprocess.run(
        words,
        cwd=folder,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "policy' is deprecated" not in done.stderr
    return done.stdout


def fetch(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=START_SECONDS) as answer:
        text: str = answer.read().decode()
        return text


@pytest.mark.parametrize(("heading", "command"), commands_of(*SERVERS))
def test_server_runs_its_application_on_ringloop(
    heading: str, command: str, folder: Path, environment: dict[str, str]
) -> None:
    port = free_port()
    words, variables = split(command.replace("8000", str(port)))
    if heading == "aiohttp":
        server = folder / "server.py"
        server.write_text(server.read_text().replace("8000", str(port)))
    with process(words, port, cwd=folder, env={**environment, **variables}) as child:
        for _ in range(20):
            assert f"{OURS}{environment['RINGLOOP_DRIVER']} " in fetch(port)
        child.send_signal(signal.SIGTERM)
        assert child.wait(START_SECONDS) in {0, -signal.SIGTERM}


@pytest.mark.parametrize(("heading", "command"), commands_of(*TESTS))
def test_tests_run_on_ringloop(
    heading: str, command: str, folder: Path, environment: dict[str, str]
) -> None:
    printed = finished(command, folder, environment)
    if "pytest" in command:
        assert re.search(r"\b1 passed\b", printed), printed
        # The same tests do not pass on asyncio's loop, unless they name ours themselves.
        if heading == "pytest-asyncio":
            stock = subprocess.run(
                [sys.executable, "-m", "pytest", "test_loop.py"],
                cwd=folder,
                env=environment,
                capture_output=True,
                timeout=150,
                check=False,
            )
            assert stock.returncode == 1
    else:
        assert f"{OURS}{environment['RINGLOOP_DRIVER']} " in printed


@pytest.mark.parametrize("command", PAGE["dask"].commands)
def test_dask_runs_its_workers_on_ringloop(
    command: str, folder: Path, environment: dict[str, str]
) -> None:
    total, *loops = finished(command, folder, environment).splitlines()
    assert total == str(sum(range(1000)))
    assert len(loops) == 2
    assert all(loop.startswith(f"{OURS}{environment['RINGLOOP_DRIVER']} ") for loop in loops)


def test_jupyter_kernel_runs_on_ringloop(folder: Path, environment: dict[str, str]) -> None:
    from jupyter_client.manager import KernelManager

    manager = KernelManager()
    manager.start_kernel(env={**environment, "RINGLOOP_INSTALL": "1"}, cwd=str(folder))
    client = manager.client()
    client.start_channels()
    printed: list[str] = []
    try:
        client.wait_for_ready(timeout=START_SECONDS)
        reply = client.execute_interactive(
            PAGE["Jupyter"].programs["a cell"],
            timeout=START_SECONDS,
            output_hook=lambda message: printed.append(message["content"].get("text", "")),
        )
        assert reply["content"]["status"] == "ok", reply
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()
    assert "".join(printed).startswith(f"{OURS}{environment['RINGLOOP_DRIVER']} ")


# --- queues of jobs -------------------------------------------------------------------------------

# How a program asks for a job of each, with its result on a line of its own.
ASK = {
    "Celery": "import tasks; print(tasks.which_loop.delay().get(timeout=60))",
    "arq": """
import asyncio, arq, jobs
async def main():
    queue = await arq.create_pool(jobs.WorkerSettings.redis_settings)
    job = await queue.enqueue_job("which_loop")
    print(await job.result(timeout=60))
    await queue.aclose()
asyncio.run(main())
""",
    "taskiq": """
import asyncio, broker
async def main():
    await broker.broker.startup()
    asked = await broker.which_loop.kiq()
    print((await asked.wait_result(timeout=60)).return_value)
    await broker.broker.shutdown()
asyncio.run(main())
""",
}


@pytest.mark.parametrize("heading", ASK)
def test_jobs_run_on_ringloop(
    heading: str, folder: Path, environment: dict[str, str], redis_server: str
) -> None:
    for name in PAGE[heading].programs:
        file = folder / name
        file.write_text(file.read_text().replace("redis://localhost:6379", redis_server))
    (command,) = PAGE[heading].commands
    words, variables = split(command)
    with working(words, folder, {**environment, **variables}):
        printed = subprocess.run(
            [sys.executable, "-c", ASK[heading]],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            timeout=100,
            check=True,
        ).stdout
    assert printed.startswith(f"{OURS}{environment['RINGLOOP_DRIVER']} ")


@contextlib.contextmanager
def working(words: list[str], folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """Run a worker meanwhile; its jobs wait for it in Redis."""
    with (folder / "worker.log").open("wb") as log:
        child = subprocess.Popen(words, cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            yield
        except BaseException:
            sys.stderr.write((folder / "worker.log").read_text())
            raise
        finally:
            child.terminate()
            try:
                child.wait(START_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


# --- the page itself ------------------------------------------------------------------------------


def test_ways_at_the_top_run(folder: Path, environment: dict[str, str]) -> None:
    """The page's first commands, on a script and on tests of their names."""
    (folder / "app.py").write_text(
        "import asyncio\nasync def main(): print(asyncio.get_running_loop())\nasyncio.run(main())"
    )
    tests = folder / "tests"
    tests.mkdir()
    (folder / "test_loop.py").rename(tests / "test_loop.py")
    for command in ("python -m ringloop app.py", "RINGLOOP_INSTALL=1 python app.py"):
        assert finished(command, folder, environment).startswith(OURS)
    for command in ("python -m ringloop -m pytest tests", "RINGLOOP_INSTALL=1 pytest tests"):
        assert "1 passed" in finished(command, folder, environment)


def test_versions_of_the_page_are_those_that_ran() -> None:
    for package, version in versions().items():
        assert importlib.metadata.version(package) == version, package
    ran = ".".join(map(str, sys.version_info[:2]))
    assert f"CPython {ran}" in re.sub(r"\s+", " ", text())


def test_every_section_has_a_test() -> None:
    tested = {*SERVERS, *TESTS, *ASK, "dask", "Jupyter", "Starlette"}
    assert set(PAGE) == tested
    assert all(isinstance(section, Section) for section in PAGE.values())
