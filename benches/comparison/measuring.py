"""Runs the contestants in an interleaved order.

Owns: the interleaving, one process per run, time-outs, progress. Called by: `compare`.
Computes only rates.

In each row the contestants take turns, A B C A B C ..., and each round starts with a different one, so
that a machine that slows down or speeds up for a while affects all of them. Extra rounds, if
requested, follow immediately, only for contestants whose rank is still undecided.
"""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from comparison import paths
from comparison.environment import reason_of
from comparison.rows import Row

# What a run may take beyond its measured time: start, warm-up, a slow machine.
EXTRA_SECONDS = 30.0
WARMUP_SECONDS = 0.3
# Third-party loops with networking of their own: the difference shows in the TLS rows.
TLS_ONLY = {"aiofastnet"}


class Named(Protocol):
    """A contestant of a comparison."""

    @property
    def name(self) -> str:
        """Its name in the tables."""


T = TypeVar("T", bound=Named)


@dataclass(frozen=True)
class Contestant:
    """A loop, or a floor program that replaces a loop in the rows that have a floor."""

    name: str
    floor: Path | None = None

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables to add for its process."""
        if self.floor is not None and self.name.startswith("engine "):
            return {"RINGLOOP_DRIVER": self.name.removeprefix("engine ")}
        return {}


@dataclass
class Runs:
    """The runs of one contestant in one row."""

    rates: list[float] = field(default_factory=list)
    details: list[dict[str, object]] = field(default_factory=list)
    failure: str | None = None


@dataclass(frozen=True)
class Settings:
    """How the runs are made."""

    python: Path
    rounds: int
    seconds: float
    server_cpu: int
    load_cpu: int | None
    gc: str | None


Measured = dict[str, dict[str, Runs]]


@dataclass(frozen=True)
class Further:
    """Extra rounds after a row's regular ones, for some of its contestants."""

    rounds: int
    chosen: Callable[[dict[str, Runs]], set[str]]


def measure(
    rows: Sequence[Row],
    contestants: Sequence[Contestant],
    settings: Settings,
    say: Callable[[str], None],
) -> Measured:
    """Run everything."""
    fields = [(row, contestants_of(row, contestants)) for row in rows]

    def once(row: Row, contestant: Contestant, runs: Runs) -> None:
        run_once(row, contestant, settings, runs)

    return in_turns(fields, settings.rounds, once, say)


def in_turns(
    fields: Sequence[tuple[Row, Sequence[T]]],
    rounds: int,
    once: Callable[[Row, T, Runs], None],
    say: Callable[[str], None],
    further: Further | None = None,
    held: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> Measured:
    """Have `once` run each row's contestants in turn; a contestant that fails leaves the row.

    `held` is entered for the duration of a row.
    """
    more = further.rounds if further else 0
    progress = Progress((rounds + more) * sum(len(entered) for _, entered in fields), say)
    measured: Measured = {}
    for row, entered in fields:
        runs = measured[row.name] = {one.name: Runs() for one in entered}

        def round_of(
            taking_part: Sequence[T], number: int, row: Row = row, runs: dict[str, Runs] = runs
        ) -> None:
            shift = number % len(taking_part)
            for one in (*taking_part[shift:], *taking_part[:shift]):
                if runs[one.name].failure is None:
                    once(row, one, runs[one.name])
                progress.step(row, one.name, number, runs[one.name])

        with held():
            for number in range(rounds):
                round_of(entered, number)
            names = further.chosen(runs) if further else set()
            left = [one for one in entered if one.name in names]
            progress.skip(more * (len(entered) - len(left)))
            for number in range(rounds, rounds + more if left else rounds):
                round_of(left, number)
    return measured


def contestants_of(row: Row, contestants: Iterable[Contestant]) -> list[Contestant]:
    """The contestants that take part in a row."""
    return [
        one
        for one in contestants
        if (one.floor is None or row.has_floor) and (row.is_tls or one.name not in TLS_ONLY)
    ]


def run_once(row: Row, contestant: Contestant, settings: Settings, runs: Runs) -> None:
    """Run one process and keep what it measured, or why it failed."""
    process = subprocess.Popen(
        command(row, contestant, settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=run_variables() | contestant.variables,
        start_new_session=True,
    )
    timeout_seconds = settings.seconds * 3 + EXTRA_SECONDS
    try:
        out, error = process.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        runs.failure = f"no result within {timeout_seconds:.0f} s"
        return
    finally:
        end_session(process)
    if process.returncode < 0:
        runs.failure = f"died of {signal.Signals(-process.returncode).name}"
    elif process.returncode > 0:
        runs.failure = reason_of(error)
    else:
        counted = json.loads(out.splitlines()[-1])
        runs.details.append(counted)
        runs.rates.append(counted["ops"] / counted["seconds"])


def end_session(process: subprocess.Popen[str]) -> None:
    """Kill what a run left behind: its server and load generator are in its session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait()


def run_variables() -> dict[str, str]:
    """Our environment without variables that enable debug modes, and with a fixed hash seed."""
    removed = {
        *("PYTHONASYNCIODEBUG", "PYTHONDEVMODE", "PYTHONMALLOC"),
        *("RINGLOOP_DRIVER", "RINGLOOP_TLS"),
    }
    kept = {name: value for name, value in os.environ.items() if name not in removed}
    return kept | {"PYTHONHASHSEED": "0"}


def command(row: Row, contestant: Contestant, settings: Settings) -> list[str]:
    """Build the command line of one run."""
    words = [
        str(settings.python),
        str(paths.WORKLOADS / f"{row.workload}.py"),
        "floor" if contestant.floor else contestant.name,
        *row.arguments,
        *("--seconds", str(settings.seconds)),
        *("--cpu", str(settings.server_cpu)),
    ]
    if settings.gc is not None:
        words += ["--gc", settings.gc]
    if row.is_served:
        words += ["--warmup", str(WARMUP_SECONDS), "--loadgen", str(paths.LOADGEN)]
        if settings.load_cpu is not None:
            words += ["--load-cpu", str(settings.load_cpu)]
    if contestant.floor is not None:
        words += ["--floor", str(contestant.floor)]
    return words


class Progress:
    """Prints each run's result and the remaining time."""

    def __init__(self, total: int, say: Callable[[str], None]) -> None:
        """Start the clock."""
        self.total = total
        self.done = 0
        self.say = say
        self.start = time.monotonic()

    def skip(self, count: int) -> None:
        """Subtract planned runs that will not happen."""
        self.total -= count

    def step(self, row: Row, contestant: str, number: int, runs: Runs) -> None:
        """Count one run."""
        self.done += 1
        left = (time.monotonic() - self.start) / self.done * (self.total - self.done)
        outcome = f"fails: {runs.failure}" if runs.failure else f"{runs.rates[-1]:,.0f}/s"
        self.say(
            f"[{self.done:>4}/{self.total}, {left / 60:.0f} min left] {row.name}, "
            f"round {number + 1}, {contestant}: {outcome}"
        )
