"""Commands whose output cannot be written: one line about it, or quiet if the reader is gone."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.programs.conftest import Interpreter

SMALL_BENCH = ("--rounds", "1", "--scale", "0.001", "--rows", "callbacks", "--loops", "asyncio")
WITH_OUTPUT = [
    ("ringloop", "--help"),
    ("ringloop", "--version"),
    ("ringloop", "doctor"),
    ("ringloop", "doctor", "--json"),
    ("ringloop", "bench", *SMALL_BENCH),
    ("ringloop", "bench", "--json", *SMALL_BENCH),
    *(
        ("ringloop", command, "--help")
        for command in ("run", "doctor", "bench", "serve", "profile", "top")
    ),
    ("ringloop.quic", "versions"),
    ("ringloop.quic", "--help"),
    ("ringloop.quic", "certificate", "localhost"),
    ("ringloop.quic", "certificate", "--help"),
]
FULL = "cannot write to standard output: No space left on device\n"


def ended(
    interpreter: Interpreter, arguments: tuple[str, ...], stream: str, target: int, **more: str
) -> tuple[int, str]:
    """Run with one stream going to a descriptor; return the status, and what the other one had."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: target}
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        env={**interpreter.environment, **more},
        cwd=interpreter.folder,
        timeout=100,
        check=False,
        text=True,
        stdout=streams["stdout"],
        stderr=streams["stderr"],
    )
    return done.returncode, (done.stderr if stream == "stdout" else done.stdout)


def without_progress(errors: str) -> str:
    return "".join(line for line in errors.splitlines(keepends=True) if "callbacks on" not in line)


@pytest.fixture
def gone() -> Iterator[int]:
    """A pipe whose reader is gone."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        yield writer
    finally:
        os.close(writer)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", WITH_OUTPUT, ids=" ".join)
def test_full_device_is_told_in_one_line(
    interpreter: Interpreter, arguments: tuple[str, ...], unbuffered: str
) -> None:
    with open("/dev/full", "wb") as full:
        status, errors = ended(
            interpreter, arguments, "stdout", full.fileno(), PYTHONUNBUFFERED=unbuffered
        )
    assert without_progress(errors) == f"python -m {arguments[0]}: {FULL}"
    assert status == 1


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", WITH_OUTPUT, ids=" ".join)
def test_reader_that_is_gone_ends_it_quietly(
    interpreter: Interpreter, arguments: tuple[str, ...], unbuffered: str, gone: int
) -> None:
    status, errors = ended(interpreter, arguments, "stdout", gone, PYTHONUNBUFFERED=unbuffered)
    assert without_progress(errors) == ""
    assert status == 1


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("ringloop",), 2),
        (("ringloop", "bench", *SMALL_BENCH), 0),
        (("ringloop", "bench", "--nothing"), 2),
        (("ringloop", "top", "--path", "/nowhere"), 1),
        (("ringloop", "profile", "-c", "pass"), 0),
        (("ringloop", "absent.py"), 2),
        (("ringloop", "serve", "nothing:app", "--dev", "--bind", "127.0.0.1:0"), 3),
        (("ringloop.quic", "certificate", "a/b"), 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_status_does_not_depend_on_standard_error(
    interpreter: Interpreter, arguments: tuple[str, ...], status: int, gone: int
) -> None:
    with open("/dev/full", "wb") as full:
        for target in (full.fileno(), gone):
            got, _ = ended(interpreter, arguments, "stderr", target, PYTHONUNBUFFERED="1")
            assert got == status


def test_program_keeps_pythons_end(interpreter: Interpreter, gone: int) -> None:
    program = interpreter.program("print('a')\n")
    runs = []
    for before in ((), ("-m", "ringloop")):
        done = subprocess.run(
            [sys.executable, *before, program],
            env=interpreter.environment,
            timeout=100,
            check=False,
            text=True,
            stdout=gone,
            stderr=subprocess.PIPE,
        )
        runs.append((done.returncode, done.stderr))
    assert runs[0] == runs[1]
    assert "BrokenPipeError" in runs[0][1]
