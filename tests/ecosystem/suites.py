"""The suites: project and version, how the tests are started, and what is left out and why.

Owns: the table. A suite's packages are pinned in `requirements/`; to update one, install its test
requirements afresh and write the output of `pip freeze` there.
"""

from __future__ import annotations

from dataclasses import dataclass, field

NETWORK = "needs the internet, which a test run must not depend on"


@dataclass(frozen=True)
class LeftOut:
    """Tests that do not run, on any loop, and why."""

    # A pattern of pytest's node ids, or "mark:NAME" for the tests with that mark.
    test: str
    reason: str


@dataclass(frozen=True)
class Suite:
    """How the tests of one project run."""

    name: str
    version: str
    # Arguments for pytest in addition to the runner's.
    arguments: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    # Notes on the suite for the page of results.
    notes: tuple[str, ...] = ()
    # Replaces `arguments` for `--quick`: the tests that depend most on a loop.
    quick: tuple[str, ...] = ()
    # The project's name on the registry, if it differs from the suite's.
    project: str = ""
    # The file of pinned packages, if it is named differently from the suite.
    requirements: str = ""
    # Whether the source distribution contains the tests.
    in_distribution: bool = True
    tests: str = "tests"
    environment: dict[str, str] = field(default_factory=dict)
    # A test that takes longer fails.
    test_seconds: int = 60
    # A run that takes longer is stopped.
    run_seconds: int = 1800

    def __post_init__(self) -> None:
        object.__setattr__(self, "project", self.project or self.name)
        object.__setattr__(self, "requirements", self.requirements or self.name)


SUITES = (
    # By default it starts eight processes: too many for a test that waits 10 s for two more.
    Suite(
        "uvicorn",
        "0.54.0",
        arguments=("-n2",),
        notes=(
            "Two tests of `tests/supervisors` fail if a busy machine takes 10 s to start a process",
        ),
        quick=("-n2", "tests/protocols", "tests/test_server.py", "tests/test_ssl.py"),
    ),
    Suite(
        "starlette",
        "1.10.0",
        quick=("tests/test_testclient.py", "tests/test_websockets.py", "tests/test_responses.py"),
        notes=(
            "The tests of an unreadable folder fail for root",
            "The tests of `accept-encoding` fail on a CPython that was built without zstd",
        ),
    ),
    Suite(
        "httpx",
        "0.28.1",
        left_out=(LeftOut("mark:network", NETWORK),),
        quick=("tests/client/test_async_client.py", "tests/test_timeouts.py"),
    ),
    Suite("httpcore", "1.0.9", quick=("tests/_async", "tests/test_cancellations.py")),
    Suite("websockets", "17.0", in_distribution=False, quick=("tests/asyncio",)),
    Suite(
        "anyio",
        "4.16.0",
        left_out=(LeftOut("mark:network", NETWORK),),
        notes=("Skipped: all tests' variants for trio and uvloop; neither is installed",),
        quick=("tests/test_sockets.py", "tests/test_subprocesses.py", "tests/test_signals.py"),
        # Its configuration names all the plugins that it needs.
        environment={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    ),
    Suite(
        "tornado",
        "6.6.1",
        arguments=("-ptornado_log_level", "-opython_files=*_test.py", "tornado/test"),
        quick=(
            "-ptornado_log_level",
            "tornado/test/iostream_test.py",
            "tornado/test/ioloop_test.py",
            "tornado/test/websocket_test.py",
        ),
        tests="tornado/test",
        environment={"ASYNC_TEST_TIMEOUT": "25"},
    ),
    Suite("asgiref", "3.13.0"),
    Suite(
        "aioquic",
        "1.7.2",
        arguments=("tests/test_asyncio.py",),
        notes=("Only `tests/test_asyncio.py`: the other 650 tests run no loop",),
    ),
    Suite(
        "pytest-asyncio", "1.5.0", quick=("tests/test_simple.py", "tests/test_set_event_loop.py")
    ),
    Suite(
        "aiohttp",
        "3.14.5",
        # Its configuration enables coverage and one process per processor.
        arguments=(
            *("-oaddopts=", "--strict-markers", "--import-mode=importlib"),
            *("--aiohttp-loop=pyloop", "tests"),
        ),
        quick=(
            *("-oaddopts=", "--strict-markers", "--import-mode=importlib"),
            "--aiohttp-loop=pyloop",
            *("tests/test_client_functional.py", "tests/test_web_server.py"),
            *("tests/test_web_sendfile_functional.py", "tests/test_web_websocket_functional.py"),
            *("tests/test_proxy_functional.py", "tests/test_run_app.py"),
        ),
        left_out=(
            LeftOut("mark:dev_mode", "needs a Python in development mode"),
            LeftOut("mark:autobahn", "needs the Autobahn test suite in a container"),
            LeftOut("mark:internal", "measures the speed of the project's own code"),
        ),
        # Use the installed package, with its compiled parser, instead of the sources'.
        environment={"PYTHONSAFEPATH": "1"},
        test_seconds=120,
    ),
)


def named(name: str) -> Suite:
    """Return the suite called `name`."""
    return next(suite for suite in SUITES if suite.name == name)
