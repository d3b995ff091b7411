"""The program of docs/workers.md and examples/workers.py run."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

import pytest

from tests import support
from tests.programs.conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.programs.conftest import Interpreter

PAGE = (ROOT / "docs" / "workers.md").read_text()
KINDS = ("thread", "process")


@contextlib.contextmanager
def running(command: list[str], port: int, interpreter: Interpreter) -> Iterator[None]:
    """Run a command; it must end by SIGTERM with status 0."""

    def accepts() -> bool:
        assert child.poll() is None, child.communicate()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    child = subprocess.Popen(
        command,
        cwd=interpreter.folder,
        env=interpreter.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        support.wait_until_blocking(accepts, "the listener")
        yield
        child.send_signal(signal.SIGTERM)
        output, _ = child.communicate(timeout=support.PATIENCE_SECONDS)
        assert child.returncode == 0, output
        assert "Traceback" not in output
    finally:
        child.kill()
        child.communicate()


def test_program_of_the_page(interpreter: Interpreter) -> None:
    port = support.free_port()
    (text,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    program = interpreter.program(text.replace("8000", str(port)), "app.py")
    command = next(line for line in PAGE.splitlines() if "--bind" in line).replace(
        "8000", str(port)
    )
    for words in ([sys.executable, program], [sys.executable, *command.split()[1:]]):
        with (
            running(words, port, interpreter),
            socket.create_connection(("127.0.0.1", port), timeout=40) as peer,
        ):
            peer.sendall(b"hello\n")
            assert peer.recv(100) == b"hello\n"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("driver", support.DRIVERS)
def test_uvicorn_on_several_loops(interpreter: Interpreter, kind: str, driver: str) -> None:
    support.usable_loop(f"ringloop-{driver}")
    interpreter.environment["RINGLOOP_DRIVER"] = driver
    port = support.free_port()
    command = [sys.executable, str(ROOT / "examples" / "workers.py"), "--workers", "3"]
    seen: set[tuple[str, str]] = set()

    def all_have_answered() -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=40) as answer:
            _, process, thread, loop = answer.read().decode().split()
        assert loop == "ringloop._loop"
        seen.add((process, thread))
        return len(seen) == 3

    with running([*command, "--kind", kind, "--port", str(port)], port, interpreter):
        support.wait_until_blocking(all_have_answered, "all workers")
    assert len({process for process, _ in seen}) == (1 if kind == "thread" else 3)
