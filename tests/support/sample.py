"""The part of the tests that one interpreter runs in CI: `make test-others SAMPLE=1`.

Called by: `conftest.py`, with the interpreter that RINGLOOP_TEST_SAMPLE names. The tests' names choose
the parts, so that together the interpreters run each test: if it takes a loop, on asyncio and one driver
on 3.14, on the other driver on the free-threaded build, and on 3.12 or 3.13; otherwise on free-threaded
3.14 and on one of the three others. The default interpreter runs everything.
"""

from __future__ import annotations

import zlib

from tests.support import DRIVERS, ORACLE

# Their tests are not the same on every version.
_OF_EACH_VERSION = ("tests/cpython/",)
_HALVES = {"3.12": 0, "3.13": 1}


def contains(interpreter: str, test: str, loop: str | None) -> bool:
    """Say whether `interpreter` ("3.13", "3.14t") runs the test with that node id and loop."""
    number = zlib.crc32(test.replace(loop or "", "").encode())
    half = _HALVES.get(interpreter)
    if half is not None:
        if test.startswith(_OF_EACH_VERSION):
            return True
        return number // 2 % 2 == half if loop else number % 3 == 1 + half
    free_threaded = interpreter.endswith("t")
    if loop is None:
        return free_threaded or number % 3 == 0
    if loop == ORACLE:
        return True
    return DRIVERS[(number + free_threaded) % len(DRIVERS)] in loop
