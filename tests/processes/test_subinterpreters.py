"""Sub-interpreters are refused with a remedy, with any kind of GIL, and the main one is not affected."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

REMEDY = (
    "ringloop runs in the main interpreter of a process, and this is a sub-interpreter: "
    "use asyncio's own event loop here, or a process of its own "
    "(under mod_wsgi: WSGIApplicationGroup %{GLOBAL})"
)

# In the sub-interpreter: print the result of the import, and that asyncio's own loop works there.
IMPORT = """
import sys
sys.path[:] = {path!r}
import os
try:
    import ringloop
except ImportError as error:
    said = str(error)
else:
    said = "imported"
os.write(1, (said + "\\n").encode())
"""

HEAD = """
import sys
CODE = {code!r}

def run(isolated):
    if sys.version_info >= (3, 13):
        import _interpreters as interpreters
        one = interpreters.create("isolated" if isolated else "legacy")
        failed = interpreters.exec(one, CODE)
        assert failed is None, failed
    else:
        import _xxsubinterpreters as interpreters
        one = interpreters.create(isolated=isolated)
        interpreters.run_string(one, CODE)
    interpreters.destroy(one)
"""


def output_of(body: str) -> list[str]:
    code = IMPORT.format(path=sys.path)
    program = HEAD.format(code=code) + textwrap.dedent(body)
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


WORKS = """
import asyncio, ringloop
assert ringloop.run(asyncio.sleep(0.001, "works")) == "works"
print("main works", flush=True)
"""


@pytest.mark.parametrize("isolated", [False, True], ids=["shared lock", "own lock"])
def test_sub_interpreter_is_refused_and_the_main_one_works_after_it(isolated: bool) -> None:
    said = output_of(f"run({isolated})\n{WORKS}")
    assert said == [REMEDY, "main works"]


@pytest.mark.parametrize("isolated", [False, True], ids=["shared lock", "own lock"])
def test_sub_interpreter_is_refused_next_to_a_working_main_one(isolated: bool) -> None:
    said = output_of(f"{WORKS}\nrun({isolated})\nrun({isolated})\n{WORKS}")
    assert said == ["main works", REMEDY, REMEDY, "main works"]


@pytest.mark.skipif(sys.version_info < (3, 14), reason="concurrent.interpreters is new in 3.14")
def test_refusal_in_an_executor_of_interpreters() -> None:
    said = output_of("""
        from concurrent.futures import InterpreterPoolExecutor
        import importlib

        with InterpreterPoolExecutor(1) as executor:
            try:
                executor.submit(importlib.import_module, "ringloop").result()
            except ImportError as error:
                print(error)
    """)
    assert said == [REMEDY]
