"""`make soak` itself: it passes where nothing is wrong, and finds what is planted."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.soak import counters, episodes, report
from tests.soak.soak import Soak, material

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Play = Callable[..., Soak]

SAMPLE = {"seconds": 0.0, "cpu_seconds": 0.0, **dict.fromkeys(counters.LIMITS, 100.0)}
pytestmark = pytest.mark.one_thread("logs, warnings and hooks of the process are watched")
LONG = counters.MEMORY_SECONDS_MIN


def samples(name: str, growth: float) -> list[dict[str, float]]:
    """Make up a run in which one counter grows by so much each sample."""
    return [SAMPLE | {name: 100.0 + growth * number} for number in range(30)]


@pytest.mark.parametrize("name", list(counters.LIMITS))
def test_growth_of_any_counter_is_found(name: str) -> None:
    assert all(one.is_flat for one in counters.judge(samples(name, 0.0), LONG))
    grows = counters.judge(samples(name, 1 + counters.LIMITS[name].absolute / 10), LONG)
    assert [one.name for one in grows if not one.is_flat] == [name]


def test_growth_during_the_warm_up_and_single_peaks_are_none() -> None:
    values = samples("descriptors", 0.0)
    values[0]["descriptors"] = 1.0
    values[-2]["descriptors"] = 1000.0
    assert all(one.is_flat for one in counters.judge(values, LONG))


def test_memory_of_short_runs_is_not_judged() -> None:
    names = {one.name for one in counters.judge(samples("blocks", 1e6), LONG / 2)}
    assert names == counters.LIMITS.keys() - set(counters.MEMORY)
    assert counters.judge(samples("blocks", 1e6)[:5], LONG) == []


def test_wrong_byte_is_a_fault_and_its_place_is_named(play: Play) -> None:
    async def wrong(soak: Soak) -> None:
        data = bytearray(material(1, 5000))
        data[1234] ^= 1
        soak.same(data, material(1, 5000), "here")

    assert play(wrong).faults == [
        "wrong: WrongBytesError: here: 5000 bytes instead of 5000, the first wrong one at 1234"
    ]


def test_wrong_byte_is_a_fault_in_a_disturbance_too(play: Play) -> None:
    async def wrong(soak: Soak) -> None:
        with soak.disturbing():
            soak.same(b"x", b"y", "here")

    assert len(play(wrong).faults) == 1


def test_error_is_a_fault_unless_a_disturbance_explains_it(play: Play) -> None:
    async def fails(_soak: Soak) -> None:
        raise ConnectionResetError("cut")

    async def disturbed(soak: Soak) -> None:
        with soak.disturbing():
            raise ConnectionResetError("cut")

    assert play(fails).faults == ["fails: ConnectionResetError: cut"]
    soak = play(disturbed)
    assert soak.faults == []
    assert soak.told == {"disturbed ConnectionResetError": 1}


def test_unexpected_log_line_is_a_fault(play: Play) -> None:
    async def logs(soak: Soak) -> None:
        with soak.disturbing("out of"):
            logging.getLogger("some.library").warning("out of paper")
        logging.getLogger("some.library").warning("out of ink")

    soak = play(logs)
    assert soak.faults == ["reported: some.library: out of ink"]
    assert soak.told == {"log: some.library: out of paper": 1}


def test_stuck_part_is_a_fault_with_its_place(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def waits(soak: Soak) -> None:
        await soak.loop.create_future()

    monkeypatch.setattr("tests.soak.soak.PART_SECONDS", 0.05)
    (fault,) = play(waits).faults
    assert fault.startswith("waits is stuck after 0.05 s at waits:")


def test_short_soak_passes_and_its_report_is_written(tmp_path: Path) -> None:
    loops = [name for name in ("ringloop-uring", "ringloop-epoll") if not support.refusal(name)]
    output = tmp_path / "soak.json"
    command = [sys.executable, "-m", "tests.soak", "--minutes", "0.1", "--no-episodes"]
    command += ["--loops", *loops, "--output", str(output)]
    done = subprocess.run(
        command, cwd=episodes.ROOT, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results: dict[str, Any] = json.loads(output.read_text())
    for loop in loops:
        assert results["loops"][loop]["faults"] == []
        assert results["loops"][loop]["bytes"] > 0
        assert results["loops"][loop]["samples"]
    page = report.written(results)
    assert all(loop in page for loop in loops)
