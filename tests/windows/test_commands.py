"""`python -m ringloop`: the doctor, programs, and what runs there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from tests.windows.loops import DRIVERS, IS_WINDOWS, PATIENCE_SECONDS

PROGRAM = """\
import asyncio, sys
async def main():
    print(__name__, sys.argv[1:], type(asyncio.get_running_loop()).__module__)
    sys.exit(5)
asyncio.run(main())
"""


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of `python -m ringloop` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "ringloop", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


class Commands(unittest.TestCase):
    """Programs of their own."""

    def test_doctor_finds_a_loop_that_runs(self) -> None:
        for driver in DRIVERS:
            with self.subTest(driver=driver):
                done = command("doctor", "--json", "--driver", driver)
                report = json.loads(done.stdout)
                assert (done.returncode, report["is_well"]) == (0, True), done
                found = {each["name"]: each["value"] for each in report["findings"]}
                if IS_WINDOWS:
                    # Nothing that a user should allow or upgrade.
                    reason = (
                        "only Linux has io_uring; using afd"
                        if driver == "auto"
                        else "afd, as asked for"
                    )
                    assert found["driver"] == f"afd: {reason}"
                    assert found["kernel"].startswith("Windows")
                assert found["echo over TCP"] == "a megabyte came back intact"

    def test_program_runs_on_our_loop_with_its_own_status(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (file := Path(folder) / "program.py").write_text(PROGRAM)
            done = command("run", "--driver", DRIVERS[1], os.fspath(file), "one", "two")
        assert done.stdout.split() == ["__main__", "['one',", "'two']", "ringloop._loop"], done
        assert done.returncode == 5

    def test_missing_program_is_a_usage_error(self) -> None:
        done = command("missing.py")
        assert done.returncode == 2
        assert "no such file" in done.stderr

    @unittest.skipUnless(IS_WINDOWS, "of Windows")
    def test_top_is_refused_in_one_line(self) -> None:
        done = command("top")
        assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done

    @unittest.skipUnless(IS_WINDOWS, "of Windows")
    def test_workers_are_refused_in_one_line(self) -> None:
        done = command("run", "--workers", "2", "os:getcwd")
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done
