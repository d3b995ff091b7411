"""The samples of a run as a picture: `python plot.py SAMPLES.json PICTURE.svg`.

Called by `make soak WRITE=1`, in an environment that has matplotlib.
"""

import json
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt

COLOURS = {"ringloop-uring": "#d62728", "ringloop-epoll": "#ff9896", "asyncio": "#9e9e9e"}
PANELS = (
    ("resident_bytes", "anonymous memory, MB", 1e6),
    ("heap_bytes", "C heap, MB", 1e6),
    ("blocks", "Python's blocks, thousands", 1e3),
    ("descriptors", "descriptors", 1),
    ("tasks", "tasks", 1),
    ("bytes", "bytes compared, GB", 1e9),
)
# Text as text: drawn as paths it is most of the file.
plt.rcParams["svg.fonttype"] = "none"


def main() -> None:
    source, target = (Path(argument) for argument in sys.argv[1:3])
    loops = json.loads(source.read_text())["loops"]
    figure, panels = plt.subplots(2, 3, figsize=(11, 5.2), sharex=True)
    for axes, (name, title, divisor) in zip(panels.flat, PANELS, strict=True):
        for loop, run in loops.items():
            minutes = [sample["seconds"] / 60 for sample in run["samples"]]
            values = [sample[name] / divisor for sample in run["samples"]]
            axes.plot(minutes, values, color=COLOURS[loop], label=loop, linewidth=1.2)
        axes.set_title(title, fontsize=9)
        axes.set_ylim(bottom=0)
        axes.tick_params(labelsize=8)
        axes.grid(color="#eeeeee")
    for axes in panels[1]:
        axes.set_xlabel("minutes", fontsize=8)
    panels[0][0].legend(fontsize=8, loc="lower right")
    figure.tight_layout()
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    main()
