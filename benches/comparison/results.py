"""Medians and ratios.

Owns: the shape of the JSON report. Called by: `compare`; read by `markdown` and `plot`.
Rounds and drops values only in `compact`.

A ratio of two contestants is the median of the ratios of their runs in the same round: runs of one
round are close in time and see the same machine speed; runs of different rounds may not. The
confidence interval of that median, from the spread of the rounds, is given next to it. The best peer
is chosen from the same runs, which favours the luckiest of several equal ones: ratios to it are
slightly low.
"""

import math
import operator
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NotRequired, TypedDict

from comparison.measuring import Measured, Runs
from comparison.rows import Row
from workloads.support.loops import is_ours

C_FLOOR = "C epoll"
# A peer above this share of the best peer's median rate may still be the best.
CLOSE = 0.85
# Above this share of its CPU the load generator may limit a row.
CLIENT_BUSY_MAX = 0.95
# What the details say of a run other than its settings and rate.
RUN_LENGTHS = ("ops", "requests", "seconds", "rps", "tries")
# Confidence of an interval: each tail has half of the rest.
CONFIDENCE = 0.95


class Entry(TypedDict):
    """One contestant in one row."""

    rate: float | None
    rates: list[float]
    failure: str | None
    to_best_peer: float | None
    to_best_peer_interval: tuple[float, float] | None
    to_floor: float | None
    cpu_to_best_peer: float | None
    cpu_to_best_peer_interval: tuple[float, float] | None
    details: list[dict[str, object]]
    client_bound: bool


class RowResult(TypedDict):
    """One row."""

    name: str
    group: str
    title: str
    best_peer: str | None
    entries: dict[str, Entry]


class Report(TypedDict):
    """The whole report."""

    command: str
    date: str
    commit: str
    machine: dict[str, str]
    python: dict[str, object]
    versions: dict[str, str]
    settings: dict[str, object]
    absent: dict[str, str]
    floors: list[str]
    # The floor that ratios refer to, and what is compared: interpreters if absent.
    reference: NotRequired[str]
    title: NotRequired[str]
    loops: list[str]
    rows: list[RowResult]


def row_results(
    rows: Sequence[Row], measured: Measured, floors: Sequence[str], reference: str = C_FLOOR
) -> list[RowResult]:
    """Compute medians and ratios from runs; `reference` is the floor to compare with."""
    return [row_result(row, measured[row.name], floors, reference) for row in rows]


def row_result(row: Row, runs: dict[str, Runs], floors: Sequence[str], reference: str) -> RowResult:
    """Compute medians and ratios of one row."""
    medians = {name: median(one) for name, one in runs.items()}
    peers = rates_of_peers(runs, floors)
    best_peer = max(peers, key=lambda name: peers[name], default=None)
    entries: dict[str, Entry] = {}
    for name, one in runs.items():
        to_best_peer = ratios(one, runs.get(best_peer or ""))
        to_floor = ratios(one, runs.get(reference))
        cpu = ratios(one, runs.get(best_peer or ""), cpu_times)
        entries[name] = {
            "rate": medians[name],
            "rates": one.rates,
            "failure": one.failure,
            "to_best_peer": statistics.median(to_best_peer) if to_best_peer else None,
            "to_best_peer_interval": interval(to_best_peer) if to_best_peer else None,
            "to_floor": statistics.median(to_floor) if to_floor else None,
            "cpu_to_best_peer": statistics.median(cpu) if cpu else None,
            "cpu_to_best_peer_interval": interval(cpu) if cpu else None,
            "details": one.details,
            "client_bound": is_client_bound(one),
        }
    return {
        "name": row.name,
        "group": row.group,
        "title": row.title,
        "best_peer": best_peer,
        "entries": entries,
    }


def rates_of_peers(runs: dict[str, Runs], floors: Sequence[str]) -> dict[str, float]:
    """The median rates of the peers that did not fail and took part in all rounds.

    A peer left out of the extra rounds ran at other times: its median is not comparable.
    """
    peers = {
        name: one
        for name, one in runs.items()
        if median(one) is not None and not is_ours(name) and name not in floors
    }
    longest = max((len(one.rates) for one in peers.values()), default=0)
    return {
        name: statistics.median(one.rates)
        for name, one in peers.items()
        if len(one.rates) == longest
    }


def in_question(runs: dict[str, Runs], floors: Sequence[str], reference: str) -> set[str]:
    """The contestants of extra rounds: ours, the peers close to the best one, and the reference."""
    peers = rates_of_peers(runs, floors)
    best = max(peers.values(), default=0.0)
    near = {name for name, rate in peers.items() if rate >= CLOSE * best}
    ours = {name for name, one in runs.items() if is_ours(name) and one.failure is None}
    return (near | ours | {reference} & set(runs)) if near and ours else set()


def median(runs: Runs) -> float | None:
    """The median rate; `None` if any round failed."""
    if runs.failure is not None or not runs.rates:
        return None
    return statistics.median(runs.rates)


def ratios(
    runs: Runs,
    reference: Runs | None,
    figures: Callable[[Runs], list[float]] = operator.attrgetter("rates"),
) -> list[float]:
    """The ratios of the rates for the rounds that both took part in; empty if either failed."""
    if reference is None or runs.failure is not None or reference.failure is not None:
        return []
    pairs = zip(figures(runs), figures(reference), strict=False)
    return [own / other for own, other in pairs]


def cpu_times(runs: Runs) -> list[float]:
    """The server's CPU time per operation by round; empty if it was not counted."""
    values = [detail.get("server_cpu_us") for detail in runs.details]
    counted = [value for value in values if isinstance(value, float) and value > 0]
    return counted if len(counted) == len(values) else []


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The interval that contains the median with `CONFIDENCE`: order statistics, for any distribution.

    Each value is below the median with probability 1/2. Fewer than six values are not enough: then the
    interval is minimum to maximum.
    """
    ordered = sorted(values)
    count = len(ordered)
    dropped, outside = 0, 2 * 0.5**count
    while outside <= 1 - CONFIDENCE:
        dropped += 1
        outside += 2 * math.comb(count, dropped) * 0.5**count
    at = max(dropped - 1, 0)
    return ordered[at], ordered[-1 - at]


def is_client_bound(runs: Runs) -> bool:
    """Tell whether the load generator was busier than the server in most rounds."""
    busy = [(detail.get("client_busy"), detail.get("server_busy")) for detail in runs.details]
    bound = [
        client > max(server, CLIENT_BUSY_MAX)
        for client, server in busy
        if isinstance(client, float) and isinstance(server, float)
    ]
    return 2 * sum(bound) > len(bound)


def compact(value: object, key: str = "") -> object:
    """Make a report small enough to be kept next to the tables.

    Numbers get four significant digits, unknown values are left out, and the details of a contestant's
    runs are reduced to their medians; zeros and lengths are dropped.
    """
    if isinstance(value, float):
        rounded = float(f"{value:.4g}")
        return int(rounded) if rounded.is_integer() else rounded
    if key == "details" and isinstance(value, list):
        return compact(_medians(value))
    if isinstance(value, Mapping):
        return {name: compact(one, name) for name, one in value.items() if one is not None}
    if isinstance(value, list | tuple):
        return [compact(one) for one in value]
    return value


def _medians(details: Sequence[Mapping[str, object]]) -> dict[str, float]:
    numbers: dict[str, list[float]] = {}
    for run in details:
        for name, value in run.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                numbers.setdefault(name, []).append(value)
    medians = {name: statistics.median(values) for name, values in numbers.items()}
    return {name: value for name, value in medians.items() if value and name not in RUN_LENGTHS}
