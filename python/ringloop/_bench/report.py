"""A benchmark's results as a table, as JSON, as a chart.

Called by: `python -m ringloop bench`. Pure functions of a report.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from ringloop._bench.runs import row_text

if TYPE_CHECKING:
    from ringloop._bench.runs import Report

# A figure whose runs differ by more is unreliable.
_SPREAD_MAX = 0.1

_COLOURS = {
    "asyncio": "#9aa0a6",
    "uvloop": "#e8a33d",
    "ringloop-uring": "#1a73e8",
    "ringloop-epoll": "#81b1f4",
}
_FONT = 'font-family="sans-serif" font-size="12"'
_BAR_HEIGHT = 16
_NAME_WIDTH = 130
_PLOT_WIDTH = 560
_VALUE_WIDTH = 150
_HEADER_HEIGHT = 84


def as_table(report: Report) -> str:
    """Return the table, the machine it was measured on, and the rows in which ringloop is slower."""
    loops = list(next(iter(report.results.values())))
    width = max(len(row) for row in report.results)
    columns = [max(len(loop), 9) + 2 for loop in loops]
    lines = [" " * width + _cells(loops, columns) + "  ringloop / best other"]
    is_unsteady = False
    for row, results in report.results.items():
        cells = []
        for loop in loops:
            result = results[loop]
            unsteady = result.spread > _SPREAD_MAX
            is_unsteady |= unsteady
            cells.append(f"{'~' if unsteady else ''}{result.median:,.0f}")
        ratio = report.ratio(row)
        share = "" if ratio is None else f"{ratio:.2f}"
        lines.append(f"{row:{width}}" + _cells(cells, columns) + f"{share:>10}")
    return "\n".join([*lines, "", *_notes(report, is_unsteady=is_unsteady)]) + "\n"


def _cells(texts: list[str], widths: list[int]) -> str:
    return "".join(f"{text:>{width}}" for text, width in zip(texts, widths, strict=True))


def _notes(report: Report, *, is_unsteady: bool) -> list[str]:
    machine = report.machine
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    how = f"median of {report.rounds} alternating runs, each in a separate process"
    notes = [
        f"Operations per second; {how}.",
        f"{_about(machine)}; {versions}; load {machine['load']}.",
    ]
    notes += [f"{row}: {row_text(row)}." for row in report.results]
    if is_unsteady:
        notes.append("~ runs differ by more than 10 %: use more --rounds, or an idle machine.")
    if machine["load"] > machine["cpus"]:
        notes.append("The machine was busy with other work: figures may be distorted.")
    behind = report.behind()
    notes.append(
        f"ringloop is slower in: {', '.join(behind)}."
        if behind
        else "ringloop is slower in no row."
    )
    return notes


def _about(machine: dict[str, Any]) -> str:
    return f"{machine['cpu']}, {machine['cpus']} CPUs; {machine['kernel']}; {machine['python']}"


def as_json(report: Report) -> dict[str, Any]:
    """Return everything, for other programs."""
    return {
        "machine": report.machine,
        "rounds": report.rounds,
        "unit": "operations per second",
        "rows": {
            row: {
                "what": row_text(row),
                "ratio": report.ratio(row),
                "loops": {
                    loop: {"median": result.median, "runs": result.rates}
                    for loop, result in results.items()
                },
            }
            for row, results in report.results.items()
        },
        "behind": report.behind(),
    }


def as_svg(report: Report) -> str:
    """Return a chart: each loop as a share of the fastest, by row."""
    loops = list(next(iter(report.results.values())))
    row_height = _BAR_HEIGHT * len(loops) + 18
    height = _HEADER_HEIGHT + row_height * len(report.results) + 34
    width = _NAME_WIDTH + _PLOT_WIDTH + _VALUE_WIDTH
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {_FONT}>',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _text(12, 24, "Operations per second, as a share of the fastest loop", size=16),
    ]
    left = 12
    for loop in loops:
        parts.append(_rect(left, 38, 12, 12, _COLOURS[loop]))
        parts.append(_text(left + 17, 48, loop))
        left += 34 + 7 * len(loop)
    parts.append(_text(12, 68, _about(report.machine), size=11, colour="#5f6368"))
    top = _HEADER_HEIGHT
    for row, results in report.results.items():
        best = max(result.median for result in results.values())
        parts.append(_text(12, top + _BAR_HEIGHT, row))
        for loop in loops:
            median = results[loop].median
            length = round(_PLOT_WIDTH * median / best)
            parts.append(_rect(_NAME_WIDTH, top + 2, length, _BAR_HEIGHT - 3, _COLOURS[loop]))
            value = f"{median:,.0f}"
            parts.append(_text(_NAME_WIDTH + length + 6, top + _BAR_HEIGHT - 3, value, size=11))
            top += _BAR_HEIGHT
        top += 18
    runs = f"Median of {report.rounds} alternating runs, each in a separate process."
    parts.append(_text(12, top + 12, runs, size=11, colour="#5f6368"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _text(x: int, y: int, text: str, *, size: int = 12, colour: str = "#202124") -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}">{escape(text)}</text>'


def _rect(x: int, y: int, width: int, height: int, colour: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{colour}"/>'
