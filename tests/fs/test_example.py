"""examples/files.py runs as it stands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_example_counts_words(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "a.md").write_text("one two two\n")
    (tmp_path / "deep" / "b.md").write_text("two\n" * 1000)
    report = tmp_path / "words.txt"
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/files.py"), str(tmp_path), str(report)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 files, 1003 words")
    assert report.read_text() == "    1002 two\n       1 one\n"
