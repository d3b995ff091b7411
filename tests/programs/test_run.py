"""`python -m ringloop run`: a program sees nothing of it but the loop.

The oracle is `python` itself, started with the same program and arguments.
"""

from __future__ import annotations

import compileall
import os
import re
import signal
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from tests import support

if TYPE_CHECKING:
    from pathlib import Path

    from tests.programs.conftest import Done, Interpreter

RUN = ("-m", "ringloop", "run")

# What a program sees of how it was started.
SEEN = """
import pickle, sys
class Mine: pass
print(__name__, __package__, __file__, __spec__ and __spec__.name, type(__loader__).__name__)
print(sys.argv, sys.path[0], __doc__, __builtins__ is sys.modules["builtins"])
print(sorted(globals()))
print(sys.modules["__main__"].Mine is Mine, type(pickle.loads(pickle.dumps(Mine()))) is Mine)
print(sys.flags.safe_path, sys.argv is sys.argv)
"""
LOOP = """
import asyncio
async def main():
    loop = asyncio.get_running_loop()
    print(type(loop).__name__, getattr(loop, "driver", None))
asyncio.run(main())
"""


def both(interpreter: Interpreter, *program: str, **options: object) -> tuple[Done, Done]:
    """Run a program by python, and by ours."""
    plain = interpreter(*program, **options)  # type: ignore[arg-type]
    return plain, interpreter(*RUN, *program, **options)  # type: ignore[arg-type]


def assert_same(interpreter: Interpreter, *program: str, **options: object) -> Done:
    plain, ours = both(interpreter, *program, **options)
    assert ours.lines == plain.lines
    assert ours.errors == plain.errors
    return ours


def package(folder: Path) -> None:
    (folder / "kit").mkdir()
    (folder / "kit" / "__init__.py").write_text("")
    (folder / "kit" / "__main__.py").write_text(SEEN)
    (folder / "kit" / "tool.py").write_text(f"from . import __name__ as own\n{SEEN}print(own)\n")


@pytest.mark.parametrize("python", [(), ("-P",)])
@pytest.mark.parametrize("arguments", [(), ("a", "--flag", "-m", "--", "b")])
def test_script_sees_what_python_shows(
    interpreter: Interpreter, arguments: tuple[str, ...], python: tuple[str, ...]
) -> None:
    (interpreter.folder / "sub").mkdir()
    (interpreter.folder / "sub" / "beside.py").write_text("")
    program = interpreter.program(f"'Doc.'\n{SEEN}", "sub/seen.py")
    assert_same(interpreter, program, *arguments, python=python)
    assert_same(interpreter, "sub/seen.py", *arguments, python=python)
    if not python:
        beside = interpreter.program("import beside; print(beside.__file__)", "sub/other.py")
        assert_same(interpreter, beside)


@pytest.mark.parametrize("module", ["kit", "kit.tool", "seen"])
def test_module_sees_what_python_shows(interpreter: Interpreter, module: str) -> None:
    package(interpreter.folder)
    interpreter.program(SEEN, "seen.py")
    assert_same(interpreter, "-m", module, "a", "--driver", "-m", "b")


def test_folder_archive_and_compiled_file_are_run(interpreter: Interpreter) -> None:
    package(interpreter.folder)
    assert_same(interpreter, "kit", "a")
    with zipfile.ZipFile(interpreter.folder / "kit.pyz", "w") as archive:
        archive.writestr("__main__.py", SEEN)
    assert_same(interpreter, "kit.pyz", "a")
    interpreter.program("print(__file__, 6 * 7)", "compiled.py")
    compileall.compile_file(interpreter.folder / "compiled.py", quiet=2, legacy=True)
    assert_same(interpreter, "compiled.pyc")


def test_first_form_is_the_command_run(interpreter: Interpreter) -> None:
    package(interpreter.folder)
    program = interpreter.program(SEEN)
    for arguments in ((program, "a"), ("-m", "kit.tool", "a")):
        whole = interpreter("-m", "ringloop", *arguments)
        assert whole.lines == interpreter(*arguments).lines
    # A file that is called as a command is run by the command run.
    interpreter.program("print('the file')", "serve")
    assert interpreter(*RUN, "serve").lines == ["the file"]


@pytest.mark.parametrize("driver", support.DRIVERS)
def test_loop_is_ours_with_the_driver_asked_for(interpreter: Interpreter, driver: str) -> None:
    support.usable_loop(f"ringloop-{driver}")
    program = interpreter.program(LOOP)
    for option in (("--driver", driver), (f"--driver={driver}",)):
        assert interpreter(*RUN, *option, program).lines == [f"Loop {driver}"]
    # Children inherit both.
    child = f"import subprocess, sys; subprocess.run([sys.executable, {program!r}], check=True)"
    done = interpreter("-m", "ringloop", "--driver", driver, interpreter.program(child, "child.py"))
    assert done.lines == [f"Loop {driver}"]


def test_as_uvloop(interpreter: Interpreter) -> None:
    program = interpreter.program("import uvloop; print(uvloop.Loop.__module__)")
    assert interpreter(*RUN, "--as-uvloop", program).lines == ["ringloop._loop"]
    child = f"import subprocess, sys; subprocess.run([sys.executable, {program!r}], check=True)"
    child = interpreter.program(child, "child.py")
    assert interpreter(*RUN, "--as-uvloop", child).lines == ["ringloop._loop"]


ENDS = {
    "exception": "def inner():\n    1 / 0\ndef outer():\n    inner()\nouter()",
    "chained": "try:\n    1 / 0\nexcept ArithmeticError as error:\n    raise OSError(2, 'x') from error",
    "group": "raise ExceptionGroup('several', [ValueError(1), KeyError(2)])",
    "syntax": "print('never')\nthis is no program",
    "exit": "import sys\nsys.exit(7)",
    "exit with text": "raise SystemExit('the reason')",
    "nothing": "",
    "of a task": "import asyncio\nasync def main():\n    raise ValueError(1)\nasyncio.run(main())",
    "hook": "import sys\nsys.excepthook = lambda *of: print('hook', *of[:2])\n1 / 0",
    "at exit": "import atexit\natexit.register(print, 'ended')\nraise RuntimeError",
}


def without_loop(errors: str) -> str:
    """Leave out where in the loop's own files a traceback goes through."""
    return re.sub(r'(  File "[^"]*/(asyncio|ringloop)/.*\n(    .*\n)*)+', "...\n", errors)


@pytest.mark.parametrize("end", ENDS)
def test_ends_as_under_python(interpreter: Interpreter, end: str) -> None:
    program = interpreter.program(ENDS[end])
    status = {"exit": 7, "nothing": 0}.get(end, 1)
    for arguments in ((program,), ("-m", "program")):
        plain, ours = both(interpreter, *arguments, status=status)
        assert ours.lines == plain.lines
        assert without_loop(ours.errors) == without_loop(plain.errors)


def test_absent_programs_are_told(interpreter: Interpreter) -> None:
    plain, ours = both(interpreter, "-m", "no_such_module", status=1)
    assert ours.errors == plain.errors
    done = interpreter(*RUN, "absent.py", status=2)
    assert "can't open file 'absent.py': no such file" in done.errors
    done = interpreter("-m", "ringloop", "doctr", status=2)
    assert "nor a command: run, " in done.errors
    for arguments in ((), ("--as-uvloop",), ("-m",), ("--no-such-option", "x.py")):
        assert "usage: python -m ringloop" in interpreter(*RUN, *arguments, status=2).errors


def test_interrupt_ends_it_by_sigint(interpreter: Interpreter) -> None:
    program = interpreter.program("import time\nprint('began', flush=True)\ntime.sleep(1000)\n")
    ends = []
    for before in ((), RUN):
        with subprocess.Popen(
            [sys.executable, *before, program],
            env=interpreter.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "began\n"
            os.kill(child.pid, signal.SIGINT)
            _, errors = child.communicate(timeout=support.PATIENCE_SECONDS)
        # The line depends on the moment.
        files = re.findall('^  File "(.*)", line', errors, re.MULTILINE)
        ends.append((child.returncode, files, errors.splitlines()[-1]))
    assert ends[0] == (-signal.SIGINT, [program], "KeyboardInterrupt")
    assert ends[0] == ends[1]


def test_help_names_every_command(interpreter: Interpreter) -> None:
    from ringloop._commands import COMMANDS

    done = interpreter("-m", "ringloop", "--help")
    for name, command in COMMANDS.items():
        assert any(
            re.match(rf"  {name} +{re.escape(command.summary)}$", line) for line in done.lines
        )
        shown = interpreter("-m", "ringloop", name, "--help")
        assert shown.lines[0].startswith("usage: python -m ringloop")
        assert "xit status:" in "\n".join(shown.lines)
    assert interpreter("-m", "ringloop", status=2).errors.splitlines() == done.lines
    import ringloop

    version = interpreter("-m", "ringloop", "--version")
    assert version.lines == [f"ringloop {ringloop.__version__}"]


def test_two_dashes_end_the_options(interpreter: Interpreter) -> None:
    """As those of `python`."""
    program = interpreter.program("import sys; print(sys.argv[1:])")
    assert interpreter(*RUN, "--driver", "epoll", "--", program, "--", "a").lines == ["['--', 'a']"]
