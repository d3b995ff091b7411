"""Medians, ratios, and the report as Markdown.

Owns: the shape of the report and how figures are formatted. Called by: `compare`. Lists every row and
failure.

A ratio is the median of the ratios of runs in the same round (see benches/README.md). `rate` and
the shares are those of a row's first figure; those where less is better are inverted, so that the
picture reads alike.
"""

import statistics
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from contestants import CEILING, PEER, Contestant
from tables import FIGURES, Figure

from comparison.disturbance import disturbed
from comparison.markdown import line
from comparison.measuring import Measured, Runs
from comparison.rows import Row

Report = dict[str, Any]
FAILURE_LEN_MAX = 70


def row_results(
    rows: Sequence[Row], measured: Measured, contestants: Sequence[Contestant]
) -> list[dict[str, Any]]:
    """Compute medians and ratios: one result per figure that has a goal, the others below it."""
    results = []
    for row in rows:
        runs = measured[row.name]
        results += [
            figure_result(row, figure, runs, contestants) for figure in FIGURES[row.workload]
        ]
    return results


def figure_result(
    row: Row, figure: Figure, runs: dict[str, Runs], contestants: Sequence[Contestant]
) -> dict[str, Any]:
    """Compute medians and ratios of one figure of one row."""
    values = {name: figure_values(figure, one) for name, one in runs.items()}
    others = {
        one.name: statistics.median(values[one.name])
        for one in contestants
        if one.is_python and not one.is_ours and values.get(one.name)
    }
    choose = min if figure.less_is_better else max
    best = choose(others, key=lambda name: others[name], default=None)
    entries = {}
    for name, own in values.items():
        entries[name] = {
            "value": statistics.median(own) if own else None,
            "values": own,
            "failure": runs[name].failure,
            "to_peer": ratio(own, values.get(PEER)),
            "to_ceiling": ratio(own, values.get(CEILING)),
            "to_best_peer": share(ratio(own, values.get(best or "")), figure),
            "details": runs[name].details if figure is FIGURES[row.workload][0] else [],
        }
    return {
        "name": row.name,
        "group": row.group,
        "title": ", ".join(part for part in (row.title, figure.title) if part),
        "unit": figure.unit,
        "less_is_better": figure.less_is_better,
        "goal": figure.goal,
        "best_peer": best if figure.goal is not None else None,
        "entries": entries,
    }


def figure_values(figure: Figure, runs: Runs) -> list[float]:
    """A figure of every round; empty if any round failed."""
    if runs.failure is not None:
        return []
    found = [figure.of(run) for run in runs.details]
    return [one for one in found if one is not None]


def ratio(own: list[float], other: list[float] | None) -> float | None:
    """The median of the ratios by round."""
    if not own or not other or len(own) != len(other) or not all(other):
        return None
    return statistics.median(one / two for one, two in zip(own, other, strict=True))


def share(value: float | None, figure: Figure) -> float | None:
    """Invert a ratio if less is better."""
    if value is None or not figure.less_is_better:
        return value
    return 1 / value if value else None


def render(report: Report) -> str:
    """Write the whole report."""
    lines = [
        *circumstances(report),
        *(text for group in groups(report) for text in group),
        *verdict(report),
    ]
    return "\n".join(lines).rstrip() + "\n"


def circumstances(report: Report) -> Iterator[str]:
    """Describe what was measured, where and how."""
    settings, python = report["settings"], report["python"]
    versions = report["versions"]
    shown = [
        name for name in ("aioquic", "qh3", "aiopquic", "uvloop", "ringloop") if name in versions
    ]
    yield f"- date: {report['date']}, ringloop at commit {report['commit']}"
    yield f"- command: `{report['command']}`"
    yield f"- interpreter: {python['implementation']} {python['version']}, {python['compiler']}"
    yield "- versions: " + ", ".join(f"{name} {versions[name]}" for name in shown)
    yield "- machine: " + ", ".join(f"{name} {one}" for name, one in report["machine"].items())
    yield (
        f"- runs: {settings['rounds']} rounds a contestant and row, taking turns, "
        f"{settings['warmup']} s of warm-up and {settings['seconds']} s measured; server and client "
        "in a process each, not pinned"
    )
    loops = {
        name: one["loop"] for name, one in report["contestants"].items() if name in report["loops"]
    }
    yield "- loops: " + ", ".join(f"{name} on {loop}" for name, loop in loops.items())
    for name, reason in report["absent"].items():
        yield f"- not compared: {name}: {reason}"
    entries = (entry for row in report["rows"] for entry in row["entries"].values())
    yield from disturbed(entries, report["stolen_max"])
    yield ""
    yield (
        "Cells are medians of the rounds, counted by the receiver; the best stack of a row is bold. "
        f"`÷` columns are medians of the ratios within a round: to {PEER}, and to our own Rust crate "
        "without Python. Where less is better (µs, s/GB, KiB, MiB) a ratio below 1 is the better one."
    )
    yield ""


def groups(report: Report) -> Iterator[list[str]]:
    """One table per group; figures without a goal are collapsed below."""
    for group, found in groupby(report["rows"], key=lambda row: row["group"]):
        rows = list(found)
        yield [f"### {group}", ""]
        yield table([row for row in rows if row["goal"] is not None], report)
        rest = [row for row in rows if row["goal"] is None]
        if rest:
            yield [
                "<details><summary>More of the same runs</summary>",
                "",
                *table(rest, report),
                "</details>",
                "",
            ]


def table(rows: Sequence[dict[str, Any]], report: Report) -> list[str]:
    """Write one table."""
    names = [
        name
        for name in (*report["floors"], *report["loops"])
        if any(name in row["entries"] for row in rows)
    ]
    ours = [
        name
        for name in report["loops"]
        if report["contestants"][name]["stack"].startswith("ringloop")
    ]
    header = [
        "",
        *names,
        *(f"{name} ÷ {PEER}" for name in ours),
        *(f"{name} ÷ {CEILING}" for name in ours),
        "goal",
    ]
    lines = [line(header), line(["---", *["---:"] * (len(header) - 1)])]
    for row in rows:
        best = best_of(row, report["loops"])
        cells = [cell(row["entries"].get(name), is_best=name == best) for name in names]
        for key in ("to_peer", "to_ceiling"):
            cells += [ratio_text(row["entries"].get(name, {}).get(key)) for name in ours]
        lines.append(line([f"{row['title']}, {row['unit']}", *cells, goal_text(row)]))
    return [*lines, ""]


def best_of(row: dict[str, Any], names: Sequence[str]) -> str | None:
    """Find the best stack; ceilings do not count."""
    known = {
        name: row["entries"][name]["value"]
        for name in names
        if name in row["entries"] and row["entries"][name]["value"] is not None
    }
    choose = min if row["less_is_better"] else max
    return choose(known, key=lambda name: known[name], default=None)


def cell(entry: dict[str, Any] | None, *, is_best: bool) -> str:
    """Write one figure or failure."""
    if entry is None:
        return ""
    if entry["failure"] is not None:
        return f"fails: {entry['failure'].replace('|', ' ')[:FAILURE_LEN_MAX]}"
    if entry["value"] is None:
        return ""
    text = number(entry["value"])
    return f"**{text}**" if is_best else text


def number(value: float) -> str:
    """Write a figure with its significant digits."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def ratio_text(value: float | None) -> str:
    """Write one ratio."""
    return "" if value is None else f"{value:.2f}"


def goal_text(row: dict[str, Any]) -> str:
    """Write the goal."""
    if row["goal"] is None:
        return ""
    return f"{'≤' if row['less_is_better'] else '≥'} {row['goal']:g}"


def verdict(report: Report) -> Iterator[str]:
    """Count the goals met, and list the missed ones."""
    for name in report["loops"]:
        if not report["contestants"][name]["stack"].startswith("ringloop"):
            continue
        rows = [row for row in report["rows"] if row["goal"] is not None and name in row["entries"]]
        missed = [row for row in rows if not is_met(row, row["entries"][name])]
        lost = [row for row in rows if row["best_peer"] and is_lost(row["entries"][name])]
        met = f"{len(rows) - len(missed)} of {len(rows)} goals met"
        yield f"### {name}: {met}, behind the best other stack in {len(lost)}"
        yield ""
        for row in missed:
            reached = (
                ratio_text(row["entries"][name]["to_peer"])
                or row["entries"][name]["failure"]
                or "no figure"
            )
            also = " (behind)" if row in lost else ""
            yield f"- {row['group']}, {row['title']}: {reached}, goal {goal_text(row)}{also}"
        yield ""


def is_met(row: dict[str, Any], entry: dict[str, Any]) -> bool:
    """Tell whether a goal is met."""
    reached = entry["to_peer"]
    if reached is None:
        return False
    goal: float = row["goal"]
    return bool(reached <= goal if row["less_is_better"] else reached >= goal)


def is_lost(entry: dict[str, Any]) -> bool:
    """Tell whether a stack failed or is slower than the best of the others."""
    return entry["to_best_peer"] is None or entry["to_best_peer"] < 1.0
