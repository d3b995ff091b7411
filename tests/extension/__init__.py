"""Extension modules of other wheels on our loop (`crates/ringloop-pyo3`), built by `tools/extension`.

`ringloop_echo` is the example of `examples/extension`, `ringloop_probe` is below `probe/`.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "extension"


def built(name: str) -> Any:
    """Import an extension module of this checkout."""
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        message = f"{name} is not in {FOLDER}; run: tools/extension {sys.executable}"
        raise ModuleNotFoundError(message) from error
