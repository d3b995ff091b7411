"""`python -m ringloop doctor`: what it finds, and its exit status."""

from __future__ import annotations

import contextlib
import json
import resource
import sys
from typing import TYPE_CHECKING, Any

import pytest

import ringloop
from ringloop import _diagnosis
from tests import support

if TYPE_CHECKING:
    from tests.programs.conftest import Done, Interpreter

DOCTOR = ("-m", "ringloop", "doctor")


def findings(done: Done) -> dict[tuple[str, str], dict[str, Any]]:
    report = json.loads("\n".join(done.lines))
    assert report["ringloop"] == ringloop.__version__
    assert report["is_well"] == (done.status == 0)
    return {(found["group"], found["name"]): found for found in report["findings"]}


@pytest.mark.parametrize("driver", support.DRIVERS)
def test_well_machine(interpreter: Interpreter, driver: str) -> None:
    support.usable_loop(f"ringloop-{driver}")
    found = findings(interpreter(*DOCTOR, "--json", "--driver", driver))
    assert found["loop", "driver"]["value"].startswith(f"{driver}: ")
    assert found["loop", "echo over TCP"]["status"] == "ok"
    assert found["versions", "ringloop"]["value"] == ringloop.__version__
    version = ".".join(map(str, sys.version_info[:3]))
    assert version in found["versions", "Python"]["value"]
    text = interpreter(*DOCTOR, "--driver", driver)
    assert any(line.split()[:2] == ["driver", f"{driver}:"] for line in text.lines)
    assert text.lines[-1].startswith("0 problems, ")


def test_features_of_the_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    support.usable_loop("ringloop-uring")
    with contextlib.closing(ringloop.Loop(driver="uring")) as loop:
        _, features = loop._driver_features()
    assert [name for name, _ in features] == list(_diagnosis.RING_FEATURES)
    monkeypatch.setattr(
        ringloop.Loop,
        "_driver_features",
        lambda _: (False, [("send-zc", True), ("msg-ring", True), ("no-iowait", False)]),
    )
    found = {finding.name: finding for finding in _diagnosis._ring()}
    assert found["features"].value == "send-zc, msg-ring"
    missing = found["no-iowait"]
    assert (missing.status, missing.remedy) == ("note", "Linux 6.15 has it")
    assert missing.value.startswith("missing: ")


def test_environment_that_cannot_work_is_a_problem(interpreter: Interpreter) -> None:
    for name, value in (("RINGLOOP_DRIVER", "kqueue"), ("RINGLOOP_INSTALL", "yes")):
        interpreter.environment[name] = value
        done = interpreter(*DOCTOR, "--json", status=1)
        problems = [found for found in findings(done).values() if found["status"] == "problem"]
        assert problems
        assert all(problem["remedy"] for problem in problems)
        assert any(value in problem["value"] for problem in problems)
        done = interpreter(*DOCTOR, status=1)
        del interpreter.environment[name]
        assert any(line.startswith("  problem ") for line in done.lines)
        assert any(line.strip().startswith("-> ") for line in done.lines)


def test_low_limit_of_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft, status in ((64, "problem"), (1024, "note"), (65536, "ok")):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, 1 << 20))
        found = next(finding for finding in _diagnosis._limits() if "NOFILE" in finding.name)
        assert found.status == status
        assert ("ulimit -n" in found.remedy) == (status != "ok")


def test_refused_ring_is_a_note_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**_: object) -> None:
        raise OSError(1, "io_uring refused: a filter denies it; allow io_uring_setup")

    monkeypatch.setattr(ringloop, "Loop", refused)
    found = [finding for finding in _diagnosis._ring() if finding.name == "ring"]
    assert found == [
        _diagnosis.Finding(
            "io_uring",
            "ring",
            "io_uring refused: a filter denies it",
            "note",
            "allow io_uring_setup",
        )
    ]


def test_command_line(interpreter: Interpreter) -> None:
    assert "invalid choice" in interpreter(*DOCTOR, "--driver", "kqueue", status=2).errors
