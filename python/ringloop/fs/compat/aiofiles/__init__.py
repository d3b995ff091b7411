"""aiofiles' interface on `ringloop.fs`: `from ringloop.fs.compat import aiofiles`.

`install()` replaces the package with these modules, for libraries that import it.

Files are `ringloop.fs`'s. `loop=` and `executor=` are accepted; only what runs in a pool uses them
(`wrap`, and the functions of `os`).
"""

from __future__ import annotations

import sys

from ringloop.fs.compat.aiofiles import base, os, ospath, tempfile, threadpool
from ringloop.fs.compat.aiofiles.threadpool import (
    open,  # noqa: A004 - the name of what it stands in for
    stderr,
    stderr_bytes,
    stdin,
    stdin_bytes,
    stdout,
    stdout_bytes,
)

__all__ = [
    "base",
    "install",
    "open",
    "os",
    "ospath",
    "stderr",
    "stderr_bytes",
    "stdin",
    "stdin_bytes",
    "stdout",
    "stdout_bytes",
    "tempfile",
    "threadpool",
]


def install() -> None:
    """Have `import aiofiles` return these modules, from now on in this process."""
    here = __name__
    for name, module in list(sys.modules.items()):
        if name == here or name.startswith(here + "."):
            sys.modules["aiofiles" + name[len(here) :]] = module
