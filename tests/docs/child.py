"""child.py FILE CONTEXT : runs a block of Python, which may await at its top level.

One that awaits, and one that has a context, runs on a loop of ringloop; any other is a program.
`tests` and `ringloop` are on the path, and asyncio's default loop is ringloop's.
"""

from __future__ import annotations

import ast
import inspect
import sys
from pathlib import Path
from typing import Any


async def run(code: Any, names: dict[str, Any], context: str) -> None:
    """Run the block on the running loop, inside of its context."""
    from tests.docs.contexts import CONTEXTS

    async with CONTEXTS[context](names):
        started = eval(code, names)
        if started is not None:
            await started


def main() -> None:
    """Do what the command line asks for."""
    path, context = sys.argv[1:]
    code = compile(Path(path).read_text(), path, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names: dict[str, Any] = {"__name__": "__main__", "__file__": path}
    sys.modules["__main__"].__dict__.update(names)
    if context or code.co_flags & inspect.CO_COROUTINE:
        import ringloop

        ringloop.run(run(code, names, context))
    else:
        exec(code, sys.modules["__main__"].__dict__)


if __name__ == "__main__":
    main()
