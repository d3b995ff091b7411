"""A plugin of pytest: `import aiofiles` gives ringloop's stand-in, and `FILES_LOOP` names the loop.

Called by: `test_aiofiles`, as `-p tests.ecosystem.files.shim`. With `FILES_LOOP=package` the package
`aiofiles` stays in its place: the run that the stand-in is compared with.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

import ringloop
from ringloop.fs.compat import aiofiles

NAME = os.environ["FILES_LOOP"]

if NAME != "package":
    aiofiles.install()


def _new_loop() -> asyncio.AbstractEventLoop:
    if NAME.startswith("ringloop-"):
        driver: Any = NAME.removeprefix("ringloop-")
        return ringloop.Loop(driver=driver)
    return asyncio.SelectorEventLoop()


class _Policy(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return _new_loop()


@pytest.fixture(scope="session")
def event_loop_policy() -> asyncio.DefaultEventLoopPolicy:
    """The loop of all tests."""
    return _Policy()
