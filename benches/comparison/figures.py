"""Figures of runs, their medians and ratios, and the report as Markdown.

Owns: the shape of the report and how figures are formatted. Called by: `compare` of QUIC and of
HTTP/3. Lists every row and failure.

A ratio is the median of the ratios of runs in the same round (see benches/README.md). `rate` and
the shares are those of a row's first figure; those where less is better are inverted, so that the
picture reads alike.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from comparison.disturbance import disturbed
from comparison.markdown import line
from comparison.measuring import Measured, Runs
from comparison.rows import Row

Report = dict[str, Any]
Run = Mapping[str, Any]
FAILURE_LEN_MAX = 70


@dataclass(frozen=True)
class Figure:
    """A figure computed from a run."""

    title: str
    unit: str
    of: Callable[[Run], float | None]
    less_is_better: bool = False
    # The target ratios, by the contestant that they refer to; empty: reported only.
    goals: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Field:
    """The contestants of a comparison, by name."""

    names: Sequence[str]
    # Ours; the others are peers, except `floors`, which are no products: ceilings.
    ours: Sequence[str]
    floors: Sequence[str]
    # Ours that have ratio columns, and what those refer to.
    shown: Sequence[str]
    references: Sequence[str]


def row_results(
    rows: Sequence[Row],
    measured: Measured,
    figures: Mapping[str, Sequence[Figure]],
    entered: Field,
) -> list[dict[str, Any]]:
    """Compute medians and ratios: one result per figure, those with goals and the others."""
    return [
        figure_result(row, figure, number == 0, measured[row.name], entered)
        for row in rows
        for number, figure in enumerate(figures[row.workload])
    ]


def figure_result(
    row: Row, figure: Figure, is_first: bool, runs: dict[str, Runs], entered: Field
) -> dict[str, Any]:
    """Compute medians and ratios of one figure of one row."""
    values = {name: figure_values(figure, one) for name, one in runs.items()}
    others = {
        name: statistics.median(values[name])
        for name in entered.names
        if name not in entered.ours and name not in entered.floors and values.get(name)
    }
    choose = min if figure.less_is_better else max
    best = choose(others, key=lambda name: others[name], default=None)
    entries = {}
    for name, own in values.items():
        ratios = {one: ratio(own, values.get(one)) for one in entered.references}
        entries[name] = {
            "value": statistics.median(own) if own else None,
            "values": own,
            "failure": runs[name].failure,
            "ratios": {one: found for one, found in ratios.items() if found is not None},
            "to_best_peer": share(ratio(own, values.get(best or "")), figure),
            "details": runs[name].details if is_first else [],
        }
    return {
        "name": row.name,
        "group": row.group,
        "title": ", ".join(part for part in (row.title, figure.title) if part),
        "unit": figure.unit,
        "less_is_better": figure.less_is_better,
        "goals": dict(figure.goals),
        "best_peer": best if figure.goals else None,
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
    yield f"- date: {report['date']}, ringloop at commit {report['commit']}"
    yield f"- command: `{report['command']}`"
    yield f"- interpreter: {python['implementation']} {python['version']}, {python['compiler']}"
    shown = [name for name in report["shown_versions"] if name in versions]
    yield "- versions: " + ", ".join(f"{name} {versions[name]}" for name in shown)
    yield "- machine: " + ", ".join(f"{name} {one}" for name, one in report["machine"].items())
    yield (
        f"- runs: {settings['rounds']} rounds per contestant and row, taking turns, "
        f"{settings['warmup']} s of warm-up and {settings['seconds']} s measured; server and client "
        "in separate processes, not pinned"
    )
    for note in report["notes"]:
        yield f"- {note}"
    for name, reason in report["absent"].items():
        yield f"- not compared: {name}: {reason}"
    entries = (entry for row in report["rows"] for entry in row["entries"].values())
    yield from disturbed(entries, report["stolen_max"])
    yield ""
    yield (
        "Cells are medians of the rounds, counted by the receiver; the best stack of a row is bold. "
        "`÷` columns are medians of the ratios within a round. Where less is better (µs, s/GB, KiB, "
        "MiB), a ratio below 1 is better."
    )
    yield ""


def groups(report: Report) -> Iterator[list[str]]:
    """One table per group; figures without a goal are collapsed below."""
    for group, found in groupby(report["rows"], key=lambda row: row["group"]):
        rows = list(found)
        yield [f"### {group}", ""]
        yield table([row for row in rows if row["goals"]], report)
        rest = [row for row in rows if not row["goals"]]
        if rest:
            yield [
                "<details><summary>More figures from the same runs</summary>",
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
    ratios = [
        (own, other)
        for other in report["references"]
        for own in report["shown"]
        if any(other in row["entries"].get(own, {}).get("ratios", ()) for row in rows)
    ]
    header = ["", *names, *(f"{own} ÷ {other}" for own, other in ratios), "goal"]
    lines = [line(header), line(["---", *["---:"] * (len(header) - 1)])]
    for row in rows:
        best = best_of(row, report["loops"])
        cells = [cell(row["entries"].get(name), is_best=name == best) for name in names]
        cells += [
            ratio_text(row["entries"].get(own, {}).get("ratios", {}).get(other))
            for own, other in ratios
        ]
        lines.append(line([f"{row['title']}, {row['unit']}", *cells, goals_text(row)]))
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


def goals_text(row: dict[str, Any]) -> str:
    """Write the goals."""
    return ", ".join(f"{goal_text(row, other)} × {other}" for other in row["goals"])


def goal_text(row: dict[str, Any], other: str) -> str:
    """Write one goal."""
    return f"{'≤' if row['less_is_better'] else '≥'} {row['goals'][other]:g}"


def verdict(report: Report) -> Iterator[str]:
    """Count the goals met, and list the missed ones."""
    for name in report["ours"]:
        rows = [row for row in report["rows"] if row["goals"] and name in row["entries"]]
        aims = [(row, other) for row in rows for other in row["goals"]]
        missed = [(row, other) for row, other in aims if not is_met(row, name, other)]
        lost = [row for row in rows if row["best_peer"] and is_lost(row["entries"][name])]
        met = f"{len(aims) - len(missed)} of {len(aims)} goals met"
        yield f"### {name}: {met}, behind the best other stack in {len(lost)}"
        yield ""
        for row, other in missed:
            entry = row["entries"][name]
            reached = ratio_text(entry["ratios"].get(other)) or entry["failure"] or "no figure"
            aim = goal_text(row, other)
            yield f"- {row['group']}, {row['title']}: {reached} of {other}, goal {aim}"
        for row in lost:
            share_text = ratio_text(row["entries"][name]["to_best_peer"]) or "no figure"
            yield f"- {row['group']}, {row['title']}: behind {row['best_peer']}, {share_text} of it"
        yield ""


def is_met(row: dict[str, Any], name: str, other: str) -> bool:
    """Tell whether a goal is met."""
    reached = row["entries"][name]["ratios"].get(other)
    if reached is None:
        return False
    goal: float = row["goals"][other]
    return bool(reached <= goal if row["less_is_better"] else reached >= goal)


def is_lost(entry: dict[str, Any]) -> bool:
    """Tell whether a stack failed or is slower than the best of the others."""
    return entry["to_best_peer"] is None or entry["to_best_peer"] < 1.0
