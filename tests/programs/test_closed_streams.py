"""Commands that a service's starter runs with closed streams, where `sys.stdout` is None."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.programs.conftest import Interpreter

CLOSED = (">&-", "2>&-", ">&- 2>&- <&-")


@pytest.mark.parametrize("closed", CLOSED)
@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ((), 2),
        (("--help",), 0),
        (("--version",), 0),
        (("doctor",), 0),
        (("doctor", "--json"), 0),
        (("top", "--nothing"), 2),
        (("bench", "--nothing"), 2),
        # Its logging is configured before the application is loaded.
        (("serve", "nothing:app", "--dev", "--bind", "127.0.0.1:0"), 3),
    ],
)
def test_status_is_that_with_open_streams(
    interpreter: Interpreter, arguments: tuple[str, ...], status: int, closed: str
) -> None:
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "ringloop"]
    done = subprocess.run(
        [*command, *arguments],
        env=interpreter.environment,
        cwd=interpreter.folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "Traceback" not in done.stdout + done.stderr
    assert done.returncode == status, done.stdout + done.stderr
