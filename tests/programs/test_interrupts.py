"""Ctrl-C before a command of `python -m ringloop` has begun ends it without a traceback."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ringloop._commands import COMMANDS

if TYPE_CHECKING:
    from tests.programs.conftest import Interpreter

# Sends SIGINT while one module is imported.
SENDS = """
import os, signal, sys
class Interrupting:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == os.environ["INTERRUPTED_IMPORT"]:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting)
"""
# What each imports late, with the arguments that lead there.
LATE = {
    "run": ("program", "--workers", "1", "program:main"),
    "doctor": ("ringloop._diagnosis",),
    "bench": ("ringloop._bench.report",),
    "serve": ("ringloop.serve._arguments",),
    "profile": ("ringloop.profiling._formats",),
    "top": ("ringloop.metrics._serving",),
}


@pytest.fixture
def interrupted(interpreter: Interpreter) -> Interpreter:
    """Interpreters that are interrupted by the import of `INTERRUPTED_IMPORT`."""
    start = Path(interpreter.environment["PYTHONPATH"].partition(":")[0], "sitecustomize.py")
    start.write_text(start.read_text() + SENDS)
    return interpreter


@pytest.mark.parametrize("command", COMMANDS)
def test_interrupt_during_imports_is_quiet(interrupted: Interpreter, command: str) -> None:
    late, *arguments = LATE[command]
    for module in ("ringloop._commands", COMMANDS[command].module, late):
        done = interrupted(
            "-m", "ringloop", command, *arguments, status=130, INTERRUPTED_IMPORT=module
        )
        assert (done.lines, done.errors) == ([], "")


@pytest.mark.parametrize("command", ["run", "profile"])
def test_interrupt_while_the_program_imports_is_the_programs(
    interrupted: Interpreter, command: str
) -> None:
    program = interrupted.program("import decimal\n")
    interrupted.environment["INTERRUPTED_IMPORT"] = "decimal"
    plain = interrupted(program, status=-2)
    ours = interrupted("-m", "ringloop", command, program, status=-2)
    assert "KeyboardInterrupt" in plain.errors
    assert ours.errors.startswith(plain.errors)
