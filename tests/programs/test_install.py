"""`RINGLOOP_INSTALL` and `ringloop.install`: every usual way to a loop gives ringloop's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests import support

if TYPE_CHECKING:
    from tests.programs.conftest import Interpreter

OURS = "ringloop._loop.Loop"

# Prints the class of the loop for each usual way to one.
WAYS = """
import asyncio, sys, threading, unittest

def named(loop):
    print(sys._getframe(1).f_code.co_name, f"{type(loop).__module__}.{type(loop).__qualname__}")

async def run(): named(asyncio.get_running_loop())
asyncio.run(run())
asyncio.run(run(), debug=True)

async def runner(): named(asyncio.get_running_loop())
with asyncio.Runner() as one:
    one.run(runner())

def new_event_loop():
    loop = asyncio.new_event_loop()
    named(loop)
    asyncio.set_event_loop(loop)
    assert asyncio.get_event_loop() is loop
    loop.close()
    asyncio.set_event_loop(None)
new_event_loop()

async def thread(): named(asyncio.get_running_loop())
other = threading.Thread(target=lambda: asyncio.run(thread()))
other.start()
other.join()

class Case(unittest.IsolatedAsyncioTestCase):
    async def test(self): named(asyncio.get_running_loop())
result = unittest.TestResult()
Case("test").run(result)
assert result.wasSuccessful(), result.errors
"""
NAMES = ["run", "run", "runner", "new_event_loop", "thread", "test"]
ALL_OURS = [f"{name} {OURS}" for name in NAMES]

# Names the loop of children that multiprocessing starts.
CHILDREN = """
import asyncio, multiprocessing, os, sys

async def main():
    return f"{type(asyncio.get_running_loop()).__module__} {asyncio.get_running_loop().driver}"

def child(queue):
    queue.put(asyncio.run(main()))

if __name__ == "__main__":
    for method in ("fork", "forkserver", "spawn"):
        context = multiprocessing.get_context(method)
        queue = context.SimpleQueue()
        process = context.Process(target=child, args=(queue,))
        process.start()
        print(method, queue.get(), flush=True)
        process.join()
        assert process.exitcode == 0
"""
# A fork beside a thread, which the interpreter warns of, is not what this looks at.
QUIET_FORKS = ("-W", "ignore::DeprecationWarning")

UVLOOP = """
import asyncio
import importlib.util
import uvloop
import uvloop.loop
from uvloop.loop import Loop

async def main():
    return asyncio.get_running_loop()

import ringloop
assert uvloop.Loop is Loop is uvloop.loop.Loop is ringloop.Loop
assert tuple(map(int, uvloop.__version__.split("."))) >= (0, 21, 0)
assert importlib.util.find_spec("uvloop") is not None
for made in (uvloop.new_event_loop(), uvloop.Loop()):
    assert type(made) is ringloop.Loop
    made.close()
assert type(uvloop.run(main())) is ringloop.Loop
assert uvloop.run(main(), debug=True).get_debug()
with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    assert type(runner.run(main())) is ringloop.Loop
uvloop.install()
assert type(asyncio.run(main())) is ringloop.Loop
assert uvloop.EventLoopPolicy is ringloop.EventLoopPolicy
try:
    uvloop.no_such_name
except AttributeError as error:
    assert "ringloop's stand-in" in str(error)
else:
    raise AssertionError
try:
    import uvloop.includes
except ModuleNotFoundError:
    print("done")
"""


def test_variable_makes_every_loop_ours(interpreter: Interpreter) -> None:
    program = interpreter.program(WAYS)
    stock = interpreter(program)
    assert [line.split()[0] for line in stock.lines] == NAMES
    assert not any("ringloop" in line for line in stock.lines)
    done = interpreter(program, RINGLOOP_INSTALL="1")
    assert done.lines == ALL_OURS
    assert not done.errors


@pytest.mark.parametrize("first", ["import asyncio", "import ringloop", "import asyncio.events"])
def test_install_makes_every_loop_ours(interpreter: Interpreter, first: str) -> None:
    program = interpreter.program(f"{first}\nimport ringloop\nringloop.install()\n{WAYS}")
    assert interpreter(program).lines == ALL_OURS
    # With both it is the same.
    assert interpreter(program, RINGLOOP_INSTALL="1").lines == ALL_OURS


@pytest.mark.parametrize("driver", support.DRIVERS)
def test_children_keep_loop_and_driver(interpreter: Interpreter, driver: str) -> None:
    support.usable_loop(f"ringloop-{driver}")
    program = interpreter.program(CHILDREN)
    done = interpreter(program, python=QUIET_FORKS, RINGLOOP_INSTALL="1", RINGLOOP_DRIVER=driver)
    methods = ("fork", "forkserver", "spawn")
    assert done.lines == [f"{method} ringloop._loop {driver}" for method in methods]


def test_nothing_is_imported_before_the_program_needs_a_loop(interpreter: Interpreter) -> None:
    listed = (
        "import sys; print(*sorted({'asyncio', 'ringloop', '_ringloop_install'} & {*sys.modules}))"
    )
    assert interpreter("-c", listed).lines == [""]
    assert interpreter("-c", listed, RINGLOOP_INSTALL="0").lines == ["_ringloop_install"]
    for value in ("1", "uvloop"):
        assert interpreter("-c", listed, RINGLOOP_INSTALL=value).lines == ["_ringloop_install"]
        done = interpreter("-c", f"import asyncio\n{listed}", RINGLOOP_INSTALL=value)
        assert done.lines == ["_ringloop_install asyncio"]


def test_import_of_asyncio_leaves_its_loader(interpreter: Interpreter) -> None:
    told = "import asyncio, inspect, sys; print(asyncio.__loader__.__class__.__name__)"
    told += "; print(asyncio.__spec__.loader.__class__.__name__); print(len(sys.meta_path))"
    told += "; inspect.getsource(asyncio)"
    assert interpreter("-c", told, RINGLOOP_INSTALL="1").lines == interpreter("-c", told).lines


# --- what goes wrong ------------------------------------------------------------------------------

BEFORE = "import asyncio, sys\n"
RUNS = """
async def main():
    print(type(asyncio.get_running_loop()).__name__)
asyncio.run(main())
asyncio.run(main())
"""


def test_unknown_value_is_one_line_and_asyncios_loop(interpreter: Interpreter) -> None:
    done = interpreter("-c", BEFORE + RUNS, RINGLOOP_INSTALL="yes please")
    assert done.lines == ["_UnixSelectorEventLoop"] * 2
    assert done.errors == (
        "ringloop: RINGLOOP_INSTALL=yes please is not known: set it to 1 or uvloop, or unset it; "
        "asyncio's own loop is used\n"
    )


def test_broken_package_is_one_line_and_asyncios_loop(interpreter: Interpreter) -> None:
    broken = interpreter.folder / "ringloop"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise RuntimeError('of\\ntwo lines')")
    for value in ("1", "uvloop"):
        done = interpreter("-c", BEFORE + RUNS, RINGLOOP_INSTALL=value)
        assert done.lines == ["_UnixSelectorEventLoop"] * 2
        assert done.errors == "ringloop: RuntimeError: of two lines; asyncio's own loop is used\n"


def test_absent_package_is_one_line(interpreter: Interpreter) -> None:
    folder = interpreter.folder.parent / "start"
    done = interpreter("-c", BEFORE + RUNS, RINGLOOP_INSTALL="1", PYTHONPATH=str(folder))
    if "ringloop" in done.errors:
        assert done.errors == (
            "ringloop: RINGLOOP_INSTALL: ModuleNotFoundError: No module named '_ringloop_install'; "
            "asyncio's own loop is used\n"
        )
        assert done.lines == ["_UnixSelectorEventLoop"] * 2
    else:  # this environment has the package installed
        assert done.lines == ["Loop"] * 2


def test_closed_stderr_is_left_alone(interpreter: Interpreter) -> None:
    program = interpreter.program(BEFORE + RUNS)
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" "$1" 2>&-', sys.executable, program],
        env={**interpreter.environment, "RINGLOOP_INSTALL": "nonsense"},
        stdout=subprocess.PIPE,
        check=True,
        timeout=100,
    )
    assert done.stdout.split() == [b"_UnixSelectorEventLoop"] * 2


def test_refused_driver_is_an_error_of_the_loop(interpreter: Interpreter) -> None:
    done = interpreter("-c", BEFORE + RUNS, status=1, RINGLOOP_INSTALL="1", RINGLOOP_DRIVER="x")
    assert "RINGLOOP_DRIVER" in done.errors


@pytest.mark.skipif(sys.version_info < (3, 13), reason="_interpreters came with 3.13")
def test_sub_interpreter_has_asyncios_loop_and_says_nothing(interpreter: Interpreter) -> None:
    program = f"""
import _interpreters
one = _interpreters.create("legacy")
failed = _interpreters.exec(one, {BEFORE + RUNS!r})
assert failed is None, failed
_interpreters.destroy(one)
"""
    done = interpreter("-c", program, RINGLOOP_INSTALL="1")
    assert done.lines == ["_UnixSelectorEventLoop"] * 2
    assert not done.errors


# --- a Python without policies --------------------------------------------------------------------

# What 3.16 no longer has, removed as asyncio is imported.
WITHOUT_POLICIES = """
import asyncio
from asyncio import events, runners, unix_events
def new_event_loop():
    return asyncio.SelectorEventLoop()
for module in (asyncio, events):
    module.new_event_loop = new_event_loop
    module.set_event_loop = lambda loop: None
for module in (asyncio, events, unix_events):
    for name in [name for name in vars(module) if "olicy" in name]:
        delattr(module, name)
"""


@pytest.mark.parametrize("way", ["ringloop.install()", "_ringloop_install.start()"])
def test_a_python_without_policies(interpreter: Interpreter, way: str) -> None:
    program = f"{WITHOUT_POLICIES}\nimport {way.partition('.')[0]}\n{way}\n" + RUNS
    made = "loop = asyncio.new_event_loop(); print(type(loop).__name__); loop.close()"
    variable = {"RINGLOOP_INSTALL": "1"} if way.startswith("_") else {}
    environment = {**interpreter.environment, **variable}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program + made],
        # Not at the start: the policies are to be gone before.
        env={**environment, "PYTHONPATH": environment["PYTHONPATH"].partition(":")[2]},
        cwd=interpreter.folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stdout.split() == ["Loop"] * 3, done.stderr


# --- as uvloop ------------------------------------------------------------------------------------


def test_stand_in_has_uvloops_names(interpreter: Interpreter) -> None:
    assert interpreter("-c", UVLOOP, RINGLOOP_INSTALL="uvloop").lines == ["done"]
    program = f"import ringloop\nringloop.install(as_uvloop=True)\n{UVLOOP}"
    assert interpreter("-c", program).lines == ["done"]
    # Twice is as once, and the default loop is ours alike.
    program = "import ringloop\nringloop.install(as_uvloop=True)\nimport uvloop\n" + program + WAYS
    assert interpreter("-c", program).lines == ["done", *ALL_OURS]
    assert interpreter("-c", WAYS, RINGLOOP_INSTALL="uvloop").lines == ALL_OURS


def test_stand_in_comes_before_the_installed_uvloop(interpreter: Interpreter) -> None:
    (interpreter.folder / "uvloop.py").write_text("Loop = 'the real one'")
    told = "import uvloop; print(uvloop.Loop)"
    assert interpreter("-c", told).lines == ["the real one"]
    assert interpreter("-c", told, RINGLOOP_INSTALL="1").lines == ["the real one"]
    done = interpreter("-c", told, RINGLOOP_INSTALL="uvloop")
    assert done.lines == [f"<class '{OURS}'>"]
    late = "import uvloop, ringloop\nringloop.install(as_uvloop=True)"
    done = interpreter("-c", late, status=1)
    assert "RuntimeError: uvloop is imported already: call ringloop.install" in done.errors


def test_interrupt_of_a_program_on_the_installed_loop(interpreter: Interpreter) -> None:
    program = interpreter.program(
        "import asyncio\nasync def main():\n    print('began', flush=True)\n"
        "    await asyncio.sleep(1000)\nasyncio.run(main())\n"
    )
    with subprocess.Popen(
        [sys.executable, program],
        env={**interpreter.environment, "RINGLOOP_INSTALL": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"began\n"
        os.kill(child.pid, signal.SIGINT)
        _, errors = child.communicate(timeout=support.PATIENCE_SECONDS)
    assert child.returncode == -signal.SIGINT
    assert b"KeyboardInterrupt" in errors
