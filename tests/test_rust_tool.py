"""``tools/test-rust``: which failures of Rust tests get a second chance, and that none passes unseen."""

import os
import stat
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.sources

TOOL = Path(__file__).parents[1] / "tools" / "test-rust"

# Prints what cargo does: the first run fails the tests of FAIL, later ones those of FAIL_AGAIN.
CARGO = """\
#!/usr/bin/env bash
echo "$*" >>runs
failing=$FAIL
case "$*" in *--exact*) failing=$FAIL_AGAIN ;; esac
if [ -n "$failing" ]; then
  printf 'failures:\\n\\n---- x stdout ----\\nassertion failed\\n\\nfailures:\\n'
  printf '    %s\\n' $failing
  printf '\\ntest result: FAILED. 3 passed; 1 failed; 0 ignored\\n\\n'
  echo 'error: test failed, to rerun pass `-p engine --test net`'
fi
echo "test result: ok. ${FOUND:-4} passed; 0 failed; 0 ignored"
[ -z "$failing$CRASHED" ] && exit
targets=0
[ -z "$failing" ] || ((targets += 1))
[ -z "$CRASHED" ] || ((targets += 1))
printf 'error: %s target%s failed:\\n' "$targets" "$([ "$targets" = 1 ] || echo s)"
[ -z "$failing" ] || echo '    `-p engine --test net`'
[ -z "$CRASHED" ] || echo '    `-p engine --lib`'
exit 101
"""

Run = Callable[..., tuple[int, list[str], str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs the tool: its exit status, the arguments of each run of cargo, and what it noted."""
    cargo = tmp_path / "cargo"
    cargo.write_text(textwrap.dedent(CARGO))
    cargo.chmod(cargo.stat().st_mode | stat.S_IXUSR)

    def run(*options: str, **settings: str) -> tuple[int, list[str], str]:
        environment = {
            "FAIL": "",
            "FAIL_AGAIN": "",
            "CRASHED": "",
            "CARGO_TARGET_DIR": str(tmp_path),
        }
        done = subprocess.run(
            [TOOL, cargo, "test", *options],
            check=False,
            cwd=tmp_path,
            env=os.environ | environment | settings,
            stdout=subprocess.DEVNULL,
            timeout=60,
        )
        noted = tmp_path / "unsteady.log"
        return (
            done.returncode,
            (tmp_path / "runs").read_text().splitlines(),
            noted.read_text() if noted.exists() else "",
        )

    return run


def test_tests_that_pass_run_once(run: Run) -> None:
    assert run("--quiet") == (0, ["test --quiet --no-fail-fast"], "")


def test_one_that_fails_once_runs_five_times_more_and_is_noted(run: Run) -> None:
    status, runs, noted = run("--quiet", FAIL="closes sends")
    assert status == 0
    again = "test --quiet --test net -- --exact closes sends --test-threads=1"
    assert runs == ["test --quiet --no-fail-fast", *[again] * 5]
    assert noted.endswith("UNSTEADY, failed once and passed five times alone: closes sends\n")


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        pytest.param({"FAIL": "a", "FAIL_AGAIN": "a"}, 2, id="fails again"),
        pytest.param({"FAIL": "a b c d"}, 1, id="too many"),
        pytest.param({"CRASHED": "1"}, 1, id="a program that crashed"),
        pytest.param({"FAIL": "a", "CRASHED": "1"}, 1, id="a failure beside a crash"),
        pytest.param({"FAIL": "a b", "FOUND": "1"}, 2, id="not found again"),
    ],
)
def test_others_fail_the_run(run: Run, settings: dict[str, str], count: int) -> None:
    status, runs, noted = run("--quiet", **settings)
    assert status != 0
    assert len(runs) == count
    assert noted == ""


def test_options_for_the_tests_themselves_get_no_second_chance(run: Run) -> None:
    status, runs, _ = run("--", "--ignored", FAIL="a")
    assert status != 0
    assert len(runs) == 1
