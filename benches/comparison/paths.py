"""The locations of the benchmark's files."""

import os
from pathlib import Path

BENCHES = Path(__file__).resolve().parents[1]
ROOT = BENCHES.parent
WORKLOADS = BENCHES / "workloads"
FLOOR = BENCHES / "floor"
REQUIREMENTS = BENCHES / "requirements.txt"
RESULTS = BENCHES / "RESULTS.md"

TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
LOADGEN = TARGET / "release" / "loadgen"
FLOOR_BUILD = TARGET / "floor"
ENGINE_ECHO = TARGET / "release" / "examples" / "floor_echo"

# Contains one environment per interpreter version.
ENVIRONMENTS = ROOT / ".venv-bench"
