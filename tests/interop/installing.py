"""Steps of an installation, and where the installed programs are.

Owns: the cache folder. Called by: `programs`, `debian`, `http3`, `tests.browser`.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

CHECKOUT = Path(__file__).parents[2]
CACHE = Path(
    os.environ.get("RINGLOOP_INTEROP_CACHE")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ringloop" / "interop"
)
INSTALL_SECONDS = 150


class UnavailableError(Exception):
    """A peer is not available here; the message says why."""


def run(command: Sequence[str], *, seconds: float = INSTALL_SECONDS, **more: object) -> str:
    """Run a step of an installation; a failure names its reason."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
            **more,  # type: ignore[call-overload]
        )
    except FileNotFoundError:
        raise UnavailableError(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"{command[0]} took too long") from None
    if done.returncode != 0:
        lines = [text for text in (done.stderr or done.stdout).splitlines() if text.strip()]
        raise UnavailableError(
            f"{Path(command[0]).name}: {lines[-1] if lines else done.returncode}"
        )
    return str(done.stdout)
