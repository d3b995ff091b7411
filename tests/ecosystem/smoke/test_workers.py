"""Several workers on one socket: uvicorn, gunicorn with uvicorn's workers, hypercorn.

Connections are spread over the workers; a hanging, stopped or killed one does not block the others.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.ecosystem.smoke.services import ROOT, START_SECONDS, free_port, process
from tests.support import ORACLE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

APP = "tests.ecosystem.smoke.workers_app:app"
FACTORY = "tests.ecosystem.smoke.services:new_event_loop"
WORKERS = 3
# A worker that still accepted connections would be among the answers.
REQUESTS = 20


def uvicorn(port: int) -> list[str]:
    command = ["uvicorn", APP, "--port", str(port), "--workers", str(WORKERS), "--loop", FACTORY]
    return [*command, "--lifespan", "off", "--log-level", "warning"]


def gunicorn(port: int) -> list[str]:
    worker = "tests.ecosystem.smoke.gunicorn_worker.Worker"
    command = ["gunicorn", APP, "--bind", f"127.0.0.1:{port}", "--workers", str(WORKERS)]
    return [*command, "--worker-class", worker, "--no-control-socket"]


def hypercorn(port: int) -> list[str]:
    return ["hypercorn", APP, "--bind", f"127.0.0.1:{port}", "--workers", str(WORKERS)]


class Service:
    """A running service, queried with one connection per request."""

    def __init__(self, port: int, loop_name: str) -> None:
        self.port = port
        self.loop_name = loop_name

    def ask(self, path: str = "/") -> int:
        """Return the pid that answers, and check its loop."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=START_SECONDS)
        with contextlib.closing(connection):
            connection.request("GET", path)
            pid, loop_name = json.load(connection.getresponse())
        assert loop_name == self.loop_name
        assert isinstance(pid, int)
        return pid

    def until_seen(self, gone: int | None = None) -> set[int]:
        """Send requests until all workers have answered, not counting a killed one."""
        seen: set[int] = set()

        def all_seen() -> bool:
            seen.add(self.ask())
            seen.discard(gone or 0)
            return len(seen) == WORKERS

        until(all_seen, "all workers")
        return seen

    def assert_served_without(self, worker: int) -> None:
        assert worker not in {self.ask() for _ in range(REQUESTS)}


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {START_SECONDS} s"
        time.sleep(0.005)


def is_stopped(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "T"


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("command", [uvicorn, gunicorn, hypercorn])
def test_workers_share_connections_and_survive_each_other(
    command: Callable[[int], list[str]],
    loop_name: str,
    loop_environment: dict[str, str],
    tmp_path: Path,
) -> None:
    port = free_port()
    environment = loop_environment
    if command is hypercorn:
        driver = loop_name.removeprefix("ringloop-") if loop_name != ORACLE else "auto"
        environment = {**environment, "SMOKE_INSTALL": "1", "RINGLOOP_DRIVER": driver}
    full = [sys.executable, "-m", *command(port)]
    with process(full, port, cwd=ROOT, env=environment) as child:
        service = Service(port, loop_name)
        workers = service.until_seen()

        gate = tmp_path / "hanging"
        hung = service.ask(f"/hang{gate}")
        until(gate.exists, "the worker to hang")
        service.assert_served_without(hung)
        gate.unlink()

        stopped = max(workers)
        os.kill(stopped, signal.SIGSTOP)
        until(lambda: is_stopped(stopped), "the worker to stop")
        service.assert_served_without(stopped)
        # A supervisor may have killed it meanwhile.
        with contextlib.suppress(ProcessLookupError):
            os.kill(stopped, signal.SIGCONT)

        # hypercorn exits when a worker was killed, on every loop.
        if command is not hypercorn:
            killed = min(workers)
            os.kill(killed, signal.SIGKILL)
            until(lambda: not is_alive(killed), "the worker to end")
            service.assert_served_without(killed)
            service.until_seen(gone=killed)
        child.terminate()
        assert child.wait(START_SECONDS) in {0, -15}
