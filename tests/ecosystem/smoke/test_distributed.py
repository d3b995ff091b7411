"""dask.distributed: scheduler, nannies and workers, each in its own process or thread, on our loop.

distributed accepts only its own names of loops, but asks asyncio for a new one; the policy set by
`ringloop.install` creates it in every process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile

import pytest

from tests.ecosystem.smoke.services import ROOT


@pytest.mark.timeout(180)
def test_local_cluster_computes_and_shuffles(
    loop_name: str, loop_environment: dict[str, str]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "tests.ecosystem.smoke.dask_program"],
            cwd=ROOT,
            env={**loop_environment, "DASK_TEMPORARY_DIRECTORY": folder},
            capture_output=True,
            text=True,
            check=False,
            timeout=170,
        )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report == {
        "scheduler": loop_name,
        "workers": [f"Worker {loop_name}"] * 2,
        "nannies": [f"Nanny {loop_name}"] * 2,
        "pids": 3,
        "sum": 250_000,
        "arrays": 28 << 19,
        "rows": 200_000,
        "shuffle": True,
    }
    assert "Traceback" not in done.stderr, done.stderr
