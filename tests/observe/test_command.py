"""`python -m ringloop profile`, and the example of docs/profiling.md with one slow handler of three."""

from __future__ import annotations

import json
import pstats
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests import support

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = "examples/observe/three_handlers.py"
XHTML = "{http://www.w3.org/1999/xhtml}"
PROGRAM = """
import asyncio, sys
async def main():
    await asyncio.sleep(0.1)
    print(type(asyncio.get_running_loop()).__module__, sys.argv)
    sys.exit(int(sys.argv[1]))
asyncio.run(main())
"""


def profiled(folder: Path, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "ringloop", "profile", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == status, done.stderr
    return done


@pytest.mark.parametrize("driver", support.DRIVERS)
def test_profile_of_three_handlers_names_the_slow_one_first(tmp_path: Path, driver: str) -> None:
    if reason := support.refusal(f"ringloop-{driver}"):
        pytest.skip(reason)
    file = tmp_path / "flame.svg"
    profiled(ROOT, "-o", str(file), "--driver", driver, EXAMPLE)
    table = next(ElementTree.parse(file).getroot().iter(f"{XHTML}table"))
    rows = [[cell.text or "" for cell in row] for row in table.iter(f"{XHTML}tr")]
    names = [name.partition(" (")[0] for _, name in rows]
    # `serve` calls all three; without the interpreter's lock a sample may not see that. The slow one has
    # most of the time, and not the others.
    assert sorted(names[:2]) == ["report", "serve"]
    [(share, name)] = [row for row in rows if row[1].startswith("report ")]
    assert name.startswith("report (three_handlers.py:")
    others = [
        float(part.split()[0]) for part, name in rows if name.startswith(("ping ", "search "))
    ]
    # Of the time that the process had: on a busy machine much of it passes between callbacks.
    assert float(share.split()[0]) > 3 * sum(others)


def test_waiting_profile_of_three_handlers_names_the_one_that_waits(tmp_path: Path) -> None:
    file = tmp_path / "waiting.pstats"
    profiled(ROOT, "-o", str(file), "--mode=waiting", "--rate=200", EXAMPLE, "400")
    stats: Any = pstats.Stats(str(file))
    names = {name for _, _, name in stats.stats}
    assert {"task client 0", "ask", "search", "waiting"} <= names


def test_program_sees_its_arguments_and_gives_its_status(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    file = tmp_path / "out.json"
    arguments = ("--format", "speedscope", f"--output={file}", "--rate", "500")
    done = profiled(tmp_path, *arguments, "program.py", "3", "-o", status=3)
    assert done.stdout.strip() == "ringloop._loop ['program.py', '3', '-o']"
    assert f"written to {file}" in done.stderr
    assert json.loads(file.read_text())["profiles"]
    done = profiled(tmp_path, *arguments, "-m", "program", "0")
    assert "'0'" in done.stdout


def test_program_without_a_loop_writes_no_file(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("print('done')")
    assert "ran no loop" in profiled(tmp_path, "program.py").stderr
    assert not (tmp_path / "profile.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["-o", "a.png", "a.py"], "names no format", id="extension"),
        pytest.param(["--rate=-1", "a.py"], "rate must be above 0", id="rate"),
        pytest.param(["--mode=x", "a.py"], "invalid choice: 'x'", id="mode"),
        pytest.param([], "which program?", id="nothing"),
        pytest.param(["-o", "absent/a.svg", "a.py"], "there is no directory", id="folder"),
        pytest.param(["missing.py"], "can't open file 'missing.py'", id="missing"),
    ],
)
def test_wrong_command_lines(tmp_path: Path, arguments: list[str], message: str) -> None:
    assert message in profiled(tmp_path, *arguments, status=2).stderr
    assert list(tmp_path.iterdir()) == []


FORKS = """
import asyncio, os, sys
pid = os.fork()
asyncio.run(asyncio.sleep(0.3))
if pid == 0:
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_forked_child_of_a_profiled_program_ends_normally(tmp_path: Path) -> None:
    """It left the block with an error in place of its status, and wrote the file, too."""
    (tmp_path / "program.py").write_text(FORKS)
    done = profiled(tmp_path, "program.py")
    assert done.stdout.strip() == "3"
    assert done.stderr.count("written to profile.svg") == 1
    assert "Error" not in done.stderr


def test_help_names_the_formats(tmp_path: Path) -> None:
    text = profiled(tmp_path, "--help").stdout
    assert "speedscope" in text
    assert "--mode" in text


def test_watched_service_says_what_held_it_up() -> None:
    done = subprocess.run(
        [sys.executable, "examples/observe/watched_service.py", "100"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert "plots: http://127.0.0.1:" in done.stdout
    assert "20 connections" in done.stdout
    assert "slow: serve (watched_service.py:" in done.stdout
    # The watchdog's line has the function that is to blame.
    assert "in recompute" in done.stderr
