"""`python -m ringloop bench`: a tiny run of every row, and what is made of results."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from ringloop._bench import report, runs, workloads
from ringloop._bench.runs import Report, Result, RunError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.programs.conftest import Interpreter

BENCH = ("-m", "ringloop", "bench", "--scale", "0.001")


def test_tiny_run_of_every_row(interpreter: Interpreter, tmp_path: Path) -> None:
    picture = tmp_path / "bench.svg"
    done = interpreter(*BENCH, "--rounds", "1", "--json", "--svg", str(picture))
    told = json.loads("\n".join(done.lines))
    loops = runs.loops_here()
    assert list(told["rows"]) == list(workloads.ROWS)
    for row in told["rows"].values():
        assert list(row["loops"]) == loops
        for result in row["loops"].values():
            [rate] = result["runs"]
            assert result["median"] == rate > 0
    assert told["machine"]["cpus"] >= 1
    assert told["behind"] == [name for name, row in told["rows"].items() if row["ratio"] < 1]
    # Progress: a line a run.
    assert len(done.errors.splitlines()) == len(loops) * len(workloads.ROWS)
    texts = {node.text for node in ElementTree.parse(picture).iter() if node.text}
    assert {*loops, *workloads.ROWS} <= texts


def test_table_of_some_rows_and_loops(interpreter: Interpreter) -> None:
    what = ("--rounds", "2", "--rows", "callbacks", "--loops", "asyncio", "ringloop-epoll")
    done = interpreter(*BENCH, *what)
    header, row = done.lines[:2]
    assert header.split() == ["asyncio", "ringloop-epoll", "ringloop", "/", "best", "other"]
    assert row.split()[0] == "callbacks"
    assert any(line.startswith("ringloop is slower in") for line in done.lines)
    assert any("2 alternating runs, each in a separate process" in line for line in done.lines)


@pytest.mark.parametrize("row", workloads.ROWS.values(), ids=workloads.ROWS)
def test_workload_runs_on_the_loop_that_is_named(row: workloads.Row) -> None:
    for loop in runs.loops_here():
        taken = workloads.measure(loop, row, 0.001)
        assert taken["count"] == 1000
        assert taken["seconds"] > 0
        if loop != "uvloop":
            assert taken["loop"] == (
                "ringloop._loop" if "ringloop" in loop else "asyncio.unix_events"
            )


def a_report(**rates: list[float]) -> Report:
    machine = {
        "cpu": "A & B <CPU>",
        "cpus": 2,
        "kernel": "Linux 6.18 x86_64",
        "python": "CPython 3.14.7",
        "versions": {"ringloop": "0"},
        "load": 0.1,
    }
    results = {name.replace("_", "-"): Result(values) for name, values in rates.items()}
    return Report(machine, 3, {"callbacks": results})


def test_lost_rows_are_named() -> None:
    lost = a_report(asyncio=[100.0, 101.0, 99.0], ringloop_uring=[90.0, 90.0, 90.0])
    assert lost.ratio("callbacks") == pytest.approx(0.9)
    assert lost.behind() == ["callbacks"]
    assert "ringloop is slower in: callbacks." in report.as_table(lost)
    assert report.as_json(lost)["behind"] == ["callbacks"]
    # By the driver that programs have, not by the better one.
    lost = a_report(asyncio=[100.0], ringloop_uring=[90.0], ringloop_epoll=[200.0])
    assert lost.behind() == ["callbacks"]
    won = a_report(asyncio=[100.0], ringloop_uring=[190.0])
    assert "ringloop is slower in no row." in report.as_table(won)


def test_unsteady_runs_and_a_busy_machine_are_told() -> None:
    unsteady = a_report(asyncio=[100.0, 150.0, 50.0], ringloop_uring=[200.0, 200.0, 200.0])
    unsteady.machine["load"] = 7.0
    table = report.as_table(unsteady)
    assert "~100" in table
    assert "~200" not in table
    assert "The machine was busy" in table


def test_picture_is_xml_whatever_the_processor_is_called() -> None:
    picture = report.as_svg(a_report(asyncio=[1.0], ringloop_uring=[2.0]))
    root = ElementTree.fromstring(picture)
    assert any("A & B <CPU>" in (node.text or "") for node in root.iter())


def test_failed_run_is_told(interpreter: Interpreter, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunError, match="callbacks on nonsense ended with status 1: "):
        runs._rate("nonsense", "callbacks", 0.001)
    monkeypatch.setattr(runs, "_RUN_SECONDS_MAX", 0.001)
    with pytest.raises(RunError, match="did not end within"):
        runs._rate("asyncio", "callbacks", 0.001)
    # The picture's folder is not there.
    done = interpreter(
        *BENCH, "--rows", "chain", "--loops", "asyncio", "--svg", "no/x.svg", status=1
    )
    assert "No such file" in done.errors


def test_command_line(interpreter: Interpreter) -> None:
    for arguments in (
        ("--rounds", "0"),
        ("--scale", "none"),
        ("--rows", "no such row"),
        ("--loops", "trio"),
    ):
        assert interpreter("-m", "ringloop", "bench", *arguments, status=2).errors
