"""A folder in which the blocks of a page run, and their processes.

Called by: test_blocks.py, and tests/ecosystem/smoke/test_guides.py.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import support
from tests.docs.blocks import ROOT, files_of

if TYPE_CHECKING:
    from collections.abc import Iterator

# How long a block may run.
SECONDS = 60
FILES = Path(__file__).parent / "files"
SITE = ROOT / "python" / "ringloop.data" / "purelib"
# What the pages use; each block gets free ones in their place, so that blocks run side by side.
PORTS = re.compile(r"\b(?:8000|8443|4433|7000|8888)\b")


class Place:
    """A folder with the files of the page, and what a process in it needs."""

    def __init__(self, page: Path, folder: Path, driver: str) -> None:
        self.folder = folder
        self._ports: dict[str, str] = {}
        self._numbers = itertools.count()
        start = folder / ".start"
        start.mkdir()
        (start / "sitecustomize.py").write_text(f"import site\nsite.addsitedir({str(SITE)!r})\n")
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("RINGLOOP_", "PYTHON", "PYTEST_")) and name != "FORCE_COLOR"
        }
        self.environment = {
            **kept,
            "PATH": f"{Path(sys.executable).parent}:{kept['PATH']}",
            "PYTHONPATH": f"{start}:{ROOT / 'python'}:{ROOT}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "RINGLOOP_DRIVER": driver,
            "PORT_OF_QUIC": self.real("4433"),
            # uvicorn's own variable, for commands that leave the port at 8000.
            "UVICORN_PORT": self.real("8000"),
            "NO_COLOR": "1",
            "COLUMNS": "100",
        }
        shutil.copytree(FILES, folder, dirs_exist_ok=True)
        for name, text in files_of(page).items():
            (folder / name).write_text(self.real(text))

    def real(self, text: str) -> str:
        """Return the text with free ports in place of those of the pages."""

        def free(found: re.Match[str]) -> str:
            return self._ports.setdefault(found[0], str(support.free_port()))

        return PORTS.sub(free, text)

    @contextlib.contextmanager
    def started(self, command: list[str]) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
        """Run a command, and kill what is left of it; its output goes to a file."""
        output = self.folder / f".output-{next(self._numbers)}"
        with output.open("w") as file:
            child = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield child, output
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()

    def finish(self, command: list[str]) -> str:
        """Run a command to its end, which is status 0; return what it printed."""
        with self.started(command) as (child, output):
            try:
                status = child.wait(SECONDS)
            except subprocess.TimeoutExpired:
                pytest.fail(f"it runs for more than {SECONDS} s: {output.read_text()}")
            assert status == 0, output.read_text()
            return output.read_text()

    @contextlib.contextmanager
    def serving(self, command: list[str], port: str) -> Iterator[None]:
        """Run a server that answers at a port; SIGTERM has to end it."""
        number = int(self.real(port))
        with self.started(command) as (child, output):

            def answers() -> bool:
                assert child.poll() is None, output.read_text()
                with socket.socket() as probe:
                    return probe.connect_ex(("127.0.0.1", number)) == 0

            support.wait_until_blocking(answers, "the port")
            yield
            child.send_signal(signal.SIGTERM)
            status = child.wait(support.PATIENCE_SECONDS)
            assert status in {0, -signal.SIGTERM}, output.read_text()
            assert "Traceback" not in output.read_text()
