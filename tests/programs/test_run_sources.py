"""`python -m ringloop run` with `-c COMMAND` and `-`: as under `python`, which is the oracle."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.programs.test_run import ENDS, LOOP, RUN, both, without_loop

if TYPE_CHECKING:
    from pathlib import Path

    from tests.programs.conftest import Done, Interpreter

SEEN = """
import pickle, sys
class Mine: pass
print(__name__, __package__, globals().get("__file__"), __spec__, __loader__)
print(sys.argv, sys.path[0], __doc__, __builtins__ is sys.modules["builtins"])
print(sorted(globals()))
print(sys.modules["__main__"].Mine is Mine, type(pickle.loads(pickle.dumps(Mine()))) is Mine)
print(repr(sys.stdin.read()))
"""


def both_forms(interpreter: Interpreter, source: str, *after: str, **options: object) -> list[Done]:
    """Run source with both options; python's ends are compared to ours, which are returned."""
    ends = []
    for form, text in ((("-c", source), "input"), (("-c" + source,), ""), (("-",), source)):
        plain, ours = both(interpreter, *form, *after, text=text, **options)
        assert ours.lines == plain.lines
        assert without_loop(ours.errors) == without_loop(plain.errors)
        ends.append(ours)
    return ends


@pytest.mark.parametrize("python", [(), ("-P",)])
@pytest.mark.parametrize("arguments", [(), ("a", "--flag", "-m", "-", "-c", "--", "b")])
def test_source_sees_what_python_shows(
    interpreter: Interpreter, arguments: tuple[str, ...], python: tuple[str, ...]
) -> None:
    both_forms(interpreter, f"'Doc.'\n{SEEN}", *arguments, python=python)


@pytest.mark.parametrize("end", ENDS)
def test_source_ends_as_under_python(interpreter: Interpreter, end: str) -> None:
    status = {"exit": 7, "nothing": 0}.get(end, 1)
    if end == "nothing":
        # An empty command is no joined one.
        for form in (("-c", ""), ("-",)):
            plain, ours = both(interpreter, *form, text="")
            assert (ours.lines, ours.errors) == (plain.lines, plain.errors) == ([], "")
        return
    both_forms(interpreter, ENDS[end], status=status)


def test_source_may_be_indented_or_encoded_as_under_python(interpreter: Interpreter) -> None:
    status = 0 if sys.version_info >= (3, 14) else 1
    plain, ours = both(interpreter, "-c", "\n    print(1)\n    print(2)\n", status=status)
    assert (ours.lines, ours.errors) == (plain.lines, plain.errors)
    # Not all of CPython's versions read another encoding from a pipe.
    done = subprocess.run(
        [sys.executable, *RUN, "-"],
        input="# coding: latin-1\nprint(ascii('é'))\n".encode("latin-1"),
        env=interpreter.environment,
        stdout=subprocess.PIPE,
        check=True,
        timeout=100,
    )
    assert done.stdout == b"'\\xe9'\n"


def test_loop_is_ours(interpreter: Interpreter) -> None:
    for command in ((), ("run",), ("run", "--driver=epoll"), ("profile",)):
        start = ("-m", "ringloop", *command)
        for form, text in ((("-c", LOOP), None), (("-",), LOOP)):
            assert interpreter(*start, *form, text=text).lines[0].startswith("Loop ")


def test_every_worker_runs_the_source(interpreter: Interpreter) -> None:
    source = "import os; os.write(1, os.environ['RINGLOOP_WORKER'].encode() + b'\\n') # a:b\n"
    for form, text in ((("-c", source), None), (("-c" + source,), None), (("-",), source)):
        done = interpreter(*RUN, "--workers", "2", *form, text=text)
        assert sorted(done.lines) == ["0", "1"]


def test_missing_source_is_a_usage_error(interpreter: Interpreter) -> None:
    assert "-c needs source" in interpreter(*RUN, "-c", status=2).errors


def test_closed_input_has_no_program(interpreter: Interpreter) -> None:
    for before in ((), RUN):
        command = ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, *before, "-"]
        done = subprocess.run(
            command, env=interpreter.environment, capture_output=True, check=False, timeout=100
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_terminal_has_a_prompt(interpreter: Interpreter, tmp_path: Path) -> None:
    controller, terminal = pty.openpty()
    try:
        with subprocess.Popen(
            [sys.executable, *RUN, "-", "a"],
            env={**interpreter.environment, "TERM": "dumb"},
            cwd=tmp_path,
            stdin=terminal,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as child:
            os.write(controller, b"import sys; print('seen', sys.argv)\n\x04")
            output, errors = child.communicate(timeout=100)
    finally:
        os.close(controller)
        os.close(terminal)
    assert "seen ['-', 'a']" in output
    assert "Traceback" not in errors
    assert child.returncode == 0
