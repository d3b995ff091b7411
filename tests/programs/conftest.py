"""Interpreters that read `ringloop_install.pth` at their start, as where the wheel is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SITE = ROOT / "python" / "ringloop.data" / "purelib"


@dataclass
class Done:
    """What became of an interpreter."""

    status: int
    lines: list[str]
    errors: str


@dataclass
class Interpreter:
    """Starts Python with an environment; its children read the same file."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __call__(
        self,
        *arguments: str,
        status: int = 0,
        python: tuple[str, ...] = (),
        text: str | None = None,
        **environment: str,
    ) -> Done:
        """Run to the end, with every warning an error; check the exit status.

        `text` comes on standard input.
        """
        done = subprocess.run(
            [sys.executable, "-W", "error", *python, *arguments],
            env={**self.environment, **environment},
            cwd=self.folder,
            input=text,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return Done(done.returncode, done.stdout.splitlines(), done.stderr)

    def program(self, text: str, name: str = "program.py") -> str:
        """Write a program; return its path."""
        path = self.folder / name
        path.write_text(text)
        return str(path)


@pytest.fixture
def interpreter(tmp_path: Path) -> Interpreter:
    """An environment in which every interpreter reads the file."""
    start = tmp_path / "start"
    start.mkdir()
    (start / "sitecustomize.py").write_text(f"import site\nsite.addsitedir({str(SITE)!r})\n")
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("RINGLOOP_", "PYTHON")) and name != "FORCE_COLOR"
    }
    path = f"{start}:{ROOT / 'python'}"
    folder = tmp_path / "work"
    folder.mkdir()
    return Interpreter(folder, {**kept, "PYTHONPATH": path, "NO_COLOR": "1"})
