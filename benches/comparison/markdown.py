"""The report as Markdown.

Owns: how figures are formatted. Called by: `compare`. Lists every row, loop and failure.
"""

import statistics
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Literal

from comparison.results import C_FLOOR, Entry, Report, RowResult
from workloads.support.loops import OURS_PREFIX, is_ours

FAILURE_LEN_MAX = 70
BETWEEN = (
    "in brackets, the 95 % confidence interval of the median (of fewer than six rounds: the minimum "
    "and maximum); a row is won or lost if it does not include 1"
)


def render(report: Report) -> str:
    """Write the whole report."""
    return (
        "\n".join(
            [
                *circumstances(report),
                *(line for table in tables(report) for line in table),
                *verdict(report),
            ]
        ).rstrip()
        + "\n"
    )


def circumstances(report: Report) -> Iterator[str]:
    """Describe what was measured, where and how."""
    machine, python, settings = report["machine"], report["python"], report["settings"]
    build = " free-threaded" if python["free_threaded"] else ""
    versions = report["versions"]
    shown = [name for name in report["loops"] if name in versions]
    ours = [f"ringloop {versions['ringloop']}"] if "ringloop" in versions else []
    yield f"- date: {report['date']}, ringloop at commit {report['commit']}"
    yield f"- command: `{report['command']}`"
    yield (
        f"- interpreter: {python['implementation']} {python['version']}{build}, "
        f"{python['compiler']}, configured with `{python['configured']}`"
    )
    yield "- versions: " + ", ".join(
        [*(f"{name} {versions[name]}" for name in shown), *ours]
        + [f"{name} {versions[name]}" for name in ("uvicorn", "httptools") if name in versions]
    )
    yield "- machine: " + ", ".join(f"{name} {value}" for name, value in machine.items())
    yield (
        f"- runs: {settings['rounds']} rounds of {settings['seconds']} s per contestant and row, one "
        f"process a run, taking turns; measured process on CPU {settings['server_cpu']}, load "
        f"generator on {place(settings['load_cpu'])}; garbage collection {settings['gc']}"
    )
    for name, reason in report["absent"].items():
        yield f"- not compared: {name}: {reason}"
    yield ""
    yield (
        "Cells are operations per second, median of the rounds; the best loop of a row is bold. `÷` "
        "columns are medians of the ratios within a round: to the best other loop, and to the C "
        "epoll server. † = the load generator was busier than the server, so that the figure is "
        f"a lower bound. Below: {BETWEEN}."
    )
    yield ""


def place(cpu: object) -> str:
    """Name the load generator's CPU."""
    return "the same CPU (there is only one)" if cpu is None else f"CPU {cpu}"


def tables(report: Report) -> Iterator[list[str]]:
    """One table per group."""
    for group, found in groupby(report["rows"], key=lambda row: row["group"]):
        rows = list(found)
        yield table(group, rows, report)
        if any(detail(entry, "p99_us") for row in rows for entry in row["entries"].values()):
            yield folded(
                "CPU time of the server, µs per operation",
                detail_table(rows, report, "server_cpu_us"),
            )
            if any(entry["cpu_to_best_peer"] for row in rows for entry in row["entries"].values()):
                yield folded(
                    "The same ÷ that of the best other, with intervals", cpu_table(rows, report)
                )
            yield folded("99th percentile of latency, µs", detail_table(rows, report, "p99_us"))


def table(group: str, rows: Sequence[RowResult], report: Report) -> list[str]:
    """Write one group's table."""
    floors = [name for name in report["floors"] if any(name in row["entries"] for row in rows)]
    loops = report["loops"]
    ours = [name for name in loops if is_ours(name)]
    ratios = [(name, "to_best_peer", "best") for name in ours]
    reference = report.get("reference", C_FLOOR)
    if reference in floors:
        ratios += [(name, "to_floor", reference) for name in ours]
    heads = [name.removeprefix(OURS_PREFIX) for name, _, _ in ratios]
    header = ["", *floors, *loops, "best other"]
    header += [f"{head} ÷ {to}" for head, (_, _, to) in zip(heads, ratios, strict=True)]
    lines = [f"### {group}", "", line(header), line(["---", *["---:"] * (len(header) - 1)])]
    for row in rows:
        best = best_loop(row, loops)
        cells = [floor_cell(name, reference, row["entries"].get(name)) for name in floors]
        cells += [cell(row["entries"].get(name), is_best=name == best) for name in loops]
        compared = [share(row["entries"].get(name), key) for name, key, _ in ratios]
        lines.append(line([row["title"], *cells, row["best_peer"] or "none", *compared]))
    return [*lines, ""]


def detail_table(rows: Sequence[RowResult], report: Report, key: str) -> list[str]:
    """Write one table of another value that the load generator counted; lower is better."""
    floors = [name for name in report["floors"] if any(name in row["entries"] for row in rows)]
    names = [*floors, *report["loops"]]
    lines = [line(["", *names]), line(["---", *["---:"] * len(names)])]
    for row in rows:
        values = (detail(row["entries"].get(name), key) for name in names)
        cells = ["" if value is None else f"{value:.1f}" for value in values]
        lines.append(line([row["title"], *cells]))
    return lines


def cpu_table(rows: Sequence[RowResult], report: Report) -> list[str]:
    """Write our CPU time per operation next to that of the fastest peer; lower is better."""
    ours = [name for name in report["loops"] if is_ours(name)]
    lines = [line(["", "best other", *ours]), line(["---", "---:", *["---:"] * len(ours)])]
    for row in rows:
        cells = [between(row["entries"].get(name), "cpu") for name in ours]
        lines.append(line([row["title"], row["best_peer"] or "none", *cells]))
    return lines


def between(entry: Entry | None, which: Literal["rate", "cpu"]) -> str:
    """Write a ratio to the best peer with the confidence interval of its median."""
    if entry is None:
        return ""
    value, ends = entry["to_best_peer"], entry["to_best_peer_interval"]
    if which == "cpu":
        value, ends = entry["cpu_to_best_peer"], entry["cpu_to_best_peer_interval"]
    return "" if value is None or ends is None else f"{value:.2f} ({ends[0]:.2f} to {ends[1]:.2f})"


def folded(title: str, lines: Sequence[str]) -> list[str]:
    """Put a table into a collapsed section."""
    return [f"<details><summary>{title}</summary>", "", *lines, "", "</details>", ""]


def detail(entry: Entry | None, key: str) -> float | None:
    """The median of a counted value over the rounds."""
    values = (
        [one.get(key) for one in entry["details"]] if entry and entry["failure"] is None else []
    )
    figures = [value for value in values if isinstance(value, int | float)]
    return statistics.median(figures) if figures else None


def line(cells: Sequence[str]) -> str:
    """Join cells into a line of a table."""
    return "| " + " | ".join(cells) + " |"


def best_loop(row: RowResult, loops: Sequence[str]) -> str | None:
    """Find the fastest loop; floors do not count."""
    rates = {name: row["entries"][name]["rate"] or 0.0 for name in loops if name in row["entries"]}
    return max(rates, key=lambda name: rates[name], default=None)


def cell(entry: Entry | None, *, is_best: bool) -> str:
    """Write one rate or failure."""
    if entry is None:
        return ""
    if entry["rate"] is None:
        reason = (entry["failure"] or "not run").replace("|", "\\|")
        return f"fails: {reason[:FAILURE_LEN_MAX]}"
    text = rate_text(entry["rate"]) + ("†" if entry["client_bound"] else "")
    return f"**{text}**" if is_best else text


def floor_cell(name: str, reference: str, entry: Entry | None) -> str:
    """Write a floor's rate and, for the other floors, its share of the reference floor."""
    compared = "" if name == reference else share(entry, "to_floor")
    return cell(entry, is_best=False) + (f" ({compared})" if compared else "")


def rate_text(rate: float) -> str:
    """Write a rate with three or four significant digits."""
    if rate >= 1e6:
        return f"{rate / 1e6:.2f}M"
    if rate >= 1e3:
        return f"{rate / 1e3:.1f}k"
    return f"{rate:.0f}"


def share(entry: Entry | None, key: str) -> str:
    """Write one ratio."""
    value = entry["to_best_peer" if key == "to_best_peer" else "to_floor"] if entry else None
    return "" if value is None else f"{value:.2f}"


def verdict(report: Report) -> Iterator[str]:
    """Count the rows won; list every row lost and every undecided one."""
    for name in (loop for loop in report["loops"] if is_ours(loop)):
        entered = [row for row in report["rows"] if name in row["entries"] and row["best_peer"]]
        lost = [row for row in entered if is_lost(row["entries"][name])]
        open_rows = [row for row in entered if row not in lost and is_open(row["entries"][name])]
        won = f"{len(entered) - len(lost) - len(open_rows)} of {len(entered)}"
        yield f"### {name}: ahead of every other loop in {won} rows, behind in {len(lost)}"
        yield ""
        yield from listed("Behind in:", lost, name)
        yield from listed("Undecided in this run:", open_rows, name)


def listed(heading: str, rows: Sequence[RowResult], name: str) -> Iterator[str]:
    """List rows, the worst first, with the confidence interval of the median ratio."""
    if not rows:
        return
    yield heading
    yield ""
    for row in sorted(rows, key=lambda row: row["entries"][name]["to_best_peer"] or 0.0):
        yield f"- {row['group']}, {row['title']}: {behind(row, name)}"
    yield ""


def is_lost(entry: Entry) -> bool:
    """Tell whether a loop failed or is significantly slower than the best other loop."""
    ends = entry["to_best_peer_interval"]
    return ends is None or ends[1] < 1.0


def is_open(entry: Entry) -> bool:
    """Tell whether the confidence interval of the ratio to the best other loop includes 1."""
    ends = entry["to_best_peer_interval"]
    return ends is not None and ends[0] <= 1.0 <= ends[1]


def behind(row: RowResult, name: str) -> str:
    """Say by how much a row is lost, or why it failed."""
    entry = row["entries"][name]
    rate, cpu = between(entry, "rate"), between(entry, "cpu")
    if not rate:
        return f"fails: {entry['failure']}"
    return f"{rate} of {row['best_peer']}" + (f"; CPU time {cpu}" if cpu else "")
