"""Write `docs/reliability.md` from the samples of runs: `python -m tests.soak.report SAMPLES... PAGE`.

The picture is of the first of them.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.soak.counters import LIMITS, MEMORY_SECONDS_MIN, WARM_UP_SHARE

UNITS = {"heap_bytes": (1e6, "MB"), "resident_bytes": (1e6, "MB")}
BEGIN, END = "<!-- written by tests/soak/report.py -->", "<!-- to here -->"


def _value(name: str, value: float) -> str:
    divisor, unit = UNITS.get(name, (1, ""))
    return f"{value / divisor:.2f} {unit}" if unit else f"{value:,.0f}"


def _environment(report: dict[str, Any]) -> list[str]:
    it = report["environment"]
    load = ", ".join(f"{one:.1f}" for one in it["load"])
    end = ", ".join(f"{one:.1f}" for one in it["load_at_the_end"])
    is_busy = min(it["load"][0], it["load_at_the_end"][0]) > it["processors"]
    text = (
        f"`{it['command']}`, started {it['began']}, commit {it['commit']}, ringloop {it['version']},"
        f" CPython {it['python']}, Linux {it['kernel']}, {it['processors']} processors of"
        f" {it['processor']}, {'busy with other work: ' if is_busy else ''}load average {load} at"
        f" the start, {end} at the end."
    )
    return [text, ""]


def _loops(report: dict[str, Any]) -> list[str]:
    loops = report["loops"]
    lines = ["| | " + " | ".join(loops) + " |", "|---|" + "---|" * len(loops)]
    rows: dict[str, list[str]] = {
        "minutes": [f"{it['samples'][-1]['seconds'] / 60:.1f}" for it in loops.values()],
        "transactions": [
            f"{sum(it['done'].values()) - it['done'].get('signals', 0):,}" for it in loops.values()
        ],
        "bytes compared": [f"{it['bytes'] / 1e9:.2f} GB" for it in loops.values()],
        "processor time": [f"{it['samples'][-1]['cpu_seconds']:.0f} s" for it in loops.values()],
        "errors explained by injected faults": [
            f"{sum(it['told'].values()):,}" for it in loops.values()
        ],
        "faults": [
            "none" if not it["faults"] else "; ".join(it["faults"])[:300] for it in loops.values()
        ],
    }
    for flat in zip(*(it["flat"] for it in loops.values()), strict=True):
        name = flat[0]["name"]
        rows[f"{name.removesuffix('_bytes')}, first third → last third"] = [
            f"{_value(name, one['first'])} → {_value(name, one['last'])}" for one in flat
        ]
    return [
        *lines,
        *(f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows.items()),
        "",
    ]


def _limits() -> list[str]:
    parts = []
    for name, limit in LIMITS.items():
        text = _value(name, limit.absolute)
        if limit.relative:
            text += f" or {100 * limit.relative:g} %"
        parts.append(f"{name.removesuffix('_bytes')} {text}")
    text = (
        f"Flat means: without the first {100 * WARM_UP_SHARE:g} % of the samples, the median of the"
        f" last third exceeds that of the first by at most: {', '.join(parts)}. Memory is not"
        f" judged in runs below {MEMORY_SECONDS_MIN / 60:g} minutes."
    )
    return [text, ""]


def _parts(report: dict[str, Any]) -> list[str]:
    lines = ["| part | " + " | ".join(report["loops"]) + " |"]
    lines.append("|---|" + "---|" * len(report["loops"]))
    names = sorted({name for it in report["loops"].values() for name in it["done"]})
    for name in names:
        counts = [f"{it['done'].get(name, 0):,}" for it in report["loops"].values()]
        lines.append(f"| {name} | " + " | ".join(counts) + " |")
    return [*lines, ""]


def _episodes(report: dict[str, Any]) -> list[str]:
    lines = ["| episode | runs | outcome | transactions | times faulted |", "|---|---|---|---|---|"]
    groups: dict[str, list[dict[str, Any]]] = {}
    for one in report["episodes"]:
        groups.setdefault(one["name"], []).append(one)
    for name in sorted(groups):
        runs = groups[name]
        words = Counter(one["word"] for one in runs)
        outcome = "; ".join(words)[:200]
        parts = f"{sum(one['parts'] for one in runs):,}"
        faulted = f"{sum(one['faulted'] for one in runs):,}"
        lines.append(f"| {name} | {len(runs)} | {outcome} | {parts} | {faulted} |")
    return [*lines, ""]


def written(report: dict[str, Any]) -> str:
    """Return what the page says of a run."""
    lines = _environment(report) + _loops(report)
    lines += ["### Transactions by part", "", *_parts(report)]
    if report["episodes"]:
        lines += ["### Episodes", "", *_episodes(report)]
    return "\n".join(lines)


def main() -> None:
    *sources, page = (Path(argument) for argument in sys.argv[1:])
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    picture = "![resources held by the processes](reliability.svg)"
    parts = ["\n".join([picture, "", *_limits()])]
    for number, source in enumerate(sources):
        heading = "## Another run\n\n" if number else ""
        parts.append(heading + written(json.loads(source.read_text())))
    page.write_text("\n".join([f"{before}{BEGIN}\n", *parts, f"{END}{after}"]))


if __name__ == "__main__":
    main()
