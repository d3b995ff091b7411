"""Measure one row on one loop, in a process started by `python -m tests.compatibility`.

`python -m tests.compatibility.child MODULE EXPRESSION ROW`: prints one JSON object per line for each
check, so that a crash keeps the earlier results.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from pathlib import Path

import tests.compatibility.rows  # noqa: F401  (declares them)
from tests.compatibility.registry import ROWS, NotMeasuredError, Probe


def main(module: str, expression: str, title: str) -> None:
    """Run the row's checks."""
    scope = {module: importlib.import_module(module)}
    for check in ROWS[title].checks:
        outcome, detail = "yes", ""
        with tempfile.TemporaryDirectory(prefix="ringloop-matrix-") as folder:
            probe = Probe(
                factory=lambda: eval(expression, scope),  # the caller's own expression
                module=module,
                expression=expression,
                folder=Path(folder),
                environment=dict(os.environ),
            )
            try:
                check.function(probe)
            except NotMeasuredError as reason:
                outcome, detail = "not measured", str(reason)
            except BaseException as error:
                outcome, detail = "no", _text_of(error)
        print(json.dumps({"check": check.name, "outcome": outcome, "detail": detail}), flush=True)


def _text_of(error: BaseException) -> str:
    """The error's text, without this machine's path of the interpreter."""
    return f"{type(error).__name__}: {error}".replace(sys.executable, "python")[:200]


if __name__ == "__main__":
    main(*sys.argv[1:])
    # Threads left behind by a loop must not keep the process alive.
    sys.stdout.flush()
    os._exit(0)
