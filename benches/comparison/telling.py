"""Progress output and drawing of reports. Called by the comparison programs."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

from comparison import paths

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def say(text: str) -> None:
    """Show progress."""
    print(text, file=sys.stderr, flush=True)


def plot(report: Mapping[str, object], target: Path, python: Path | str = sys.executable) -> bool:
    """Draw the picture if `python` has matplotlib; say so if not."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(report, file)
        file.flush()
        script = paths.BENCHES / "comparison" / "plot.py"
        command = [str(python), str(script), file.name, str(target)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        say(f"no picture: {done.stderr.strip().splitlines()[-1:]}")
    return done.returncode == 0
