"""The report as a picture: python plot.py REPORT.json PICTURE.svg (or .png).

Called by: `compare`, in the benchmark's own environment, which has matplotlib.
Shows each loop's rate as a share of the best other loop's, as the report has it.
"""

import json
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter

COLOURS = {
    "asyncio": "#9e9e9e",
    "uvloop": "#1f77b4",
    "rloop": "#8c564b",
    "zloop": "#bcbd22",
    "zuvloop": "#9467bd",
    "rsloop": "#17becf",
    "blazio": "#2ca02c",
    "std": "#9e9e9e",
    "tokio": "#1f77b4",
    "monoio": "#9467bd",
    "compio": "#17becf",
    "glommio": "#8c564b",
    "glommio-busy": "#c49c94",
    "ringcore": "#bcbd22",
    "aioquic": "#9e9e9e",
    "qh3": "#1f77b4",
    "aiopquic": "#9467bd",
    "ringloop": "#d62728",
    "ringloop-aio": "#ff7f0e",
    "ringloop-asyncio": "#8c564b",
    "ringloop-uring": "#d62728",
    "ringloop-epoll": "#ff9896",
    "ringloop-uring-busy": "#ff7f0e",
    "peregrine": "#1f77b4",
    "hypercorn": "#17becf",
    "anycorn": "#9e9e9e",
    "pywebtransport": "#bcbd22",
    "ringloop-asgi": "#ff7f0e",
    "ringloop-wt": "#d62728",
    "ringloop-wt-asyncio": "#8c564b",
}
FLOOR_COLOUR = "#000000"
ROW_HEIGHT_INCHES = 0.26
# Keep text as text: drawn as paths it is most of the file.
plt.rcParams["svg.fonttype"] = "none"
plt.rcParams["font.family"] = "sans-serif"


def main() -> None:
    """Draw the report named on the command line."""
    source, target = (Path(argument) for argument in sys.argv[1:3])
    report = json.loads(source.read_text())
    rows = [row for row in report["rows"] if row.get("best_peer")]
    figure, axes = plt.subplots(figsize=(9, 1.6 + ROW_HEIGHT_INCHES * len(rows)))
    names = [*report["loops"], *report["floors"][:1]]
    for name in names:
        points = [
            (row["entries"][name].get("to_best_peer"), place)
            for place, row in enumerate(rows)
            if name in row["entries"] and row["entries"][name].get("to_best_peer")
        ]
        is_ours = name.startswith("ringloop")
        axes.scatter(
            [share for share, _ in points],
            [place for _, place in points],
            s=44 if is_ours else 22,
            marker="o" if name in COLOURS else "|",
            color=COLOURS.get(name, FLOOR_COLOUR),
            label=name,
            zorder=3 if is_ours else 2,
        )
    axes.axvline(1.0, color="#555555", linewidth=0.8, zorder=1)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_yticks(range(len(rows)), [f"{row['group']}, {row['title']}" for row in rows])
    axes.tick_params(labelsize=8)
    axes.invert_yaxis()
    axes.grid(axis="y", color="#eeeeee")
    axes.set_xlabel("rate as a share of the best other loop (log scale; right is faster)")
    title = report.get("title") or f"CPython {report['python']['version']}"
    axes.set_title(f"{title}, {report['machine']['cpu']}", fontsize=9)
    axes.legend(
        ncols=5, fontsize=8, loc="upper center", bbox_to_anchor=(0.4, -0.9 / len(rows) - 0.02)
    )
    figure.savefig(target, bbox_inches="tight", dpi=150, metadata={"Date": None})


if __name__ == "__main__":
    main()
