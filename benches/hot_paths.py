"""Count the instructions of the loop's hot paths, and compare with recorded counts.

    make hot-paths              # fails if a path takes 3 % more than in benches/hot/recorded.json
    make hot-paths WRITE=1      # records the current counts

Each path of `hot/paths.py` runs under valgrind's callgrind, on a clock that counts its readings
(`hot/clock.c`), for two numbers of operations; the difference leaves out everything but an operation.
Records are per CPython version and machine architecture: another interpreter executes other
instructions for the same Python. Without a record the counts are only printed.
"""

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from comparison.telling import say

FOLDER = Path(__file__).parent / "hot"
RECORDS = FOLDER / "recorded.json"
RENEW = "make hot-paths WRITE=1"

MORE_MAX = 0.03
# Between runs of one build; the limit of a path that varies more is raised by its variation.
NOISE_MAX = 0.01
RECORDED_RUNS = 5
# As in hot/paths.py: the second measured run has three times the operations of the first.
OPERATIONS = 400
MARKS = 3

Counts = dict[str, float]


def main() -> None:
    """Run what the command line asks for."""
    options = parse_arguments()
    if shutil.which("valgrind") is None:
        say("the instructions of the hot paths were NOT counted: there is no valgrind on the path")
        return
    with tempfile.TemporaryDirectory() as name:
        clock = build_clock(Path(name))
        runs = [count(options, clock, Path(name)) for _ in range(options.runs)]
    if options.write:
        write(runs)
        return
    sys.exit(compare({name: statistics.median(values(runs, name)) for name in runs[0]}))


def build_clock(folder: Path) -> Path:
    """Compile the clock."""
    library = folder / "clock.so"
    command = ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-o"]
    subprocess.run([*command, str(library), str(FOLDER / "clock.c")], check=True)
    return library


def count(options: argparse.Namespace, clock: Path, folder: Path) -> Counts:
    """Instructions of an operation by path, on all drivers."""
    counts: Counts = {}
    for driver in options.drivers:
        say(f"counting on {driver}")
        counts |= {f"{path}, {driver}": figure for path, figure in counted(driver, clock, folder)}
    return counts


def counted(driver: str, clock: Path, folder: Path) -> Iterable[tuple[str, float]]:
    """Run the paths of a driver in one process."""
    out = folder / f"{driver}.callgrind"
    command = [
        *("valgrind", "--tool=callgrind", "--dump-before=ctermid"),
        *(f"--callgrind-out-file={out}", sys.executable, str(FOLDER / "paths.py"), driver),
    ]
    variables = os.environ | {"LD_PRELOAD": str(clock), "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    if done.returncode != 0:
        sys.exit(f"hot/paths.py {driver} failed:\n{done.stderr}")
    names = json.loads(done.stdout.splitlines()[-1])
    parts = [instructions(Path(f"{out}.{part + 1}")) for part in range(MARKS * len(names))]
    for index, name in enumerate(names):
        _, few, many = parts[MARKS * index : MARKS * (index + 1)]
        yield name, (many - few) / (2 * OPERATIONS)


def instructions(part: Path) -> int:
    """Read the total that callgrind wrote at a mark."""
    found = re.search(r"^totals: (\d+)", part.read_text(), re.MULTILINE)
    if found is None:
        sys.exit(f"callgrind wrote no total into {part}")
    return int(found[1])


def key() -> str:
    """Return the key of a record."""
    free_threaded = "" if getattr(sys, "_is_gil_enabled", bool)() is not False else "t"
    return f"CPython {platform.python_version()}{free_threaded} {platform.machine()}"


def tools() -> dict[str, str]:
    """Return the versions that also affect the counts."""
    commands = {"rustc": ["rustc", "--version"], "valgrind": ["valgrind", "--version"]}
    told = {
        name: subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        for name, command in commands.items()
    }
    return told | {"interpreter": platform.python_compiler()}


def values(runs: Iterable[Counts], name: str) -> list[float]:
    """The counts of one path."""
    return [run[name] for run in runs]


def write(runs: list[Counts]) -> None:
    """Record the medians, and the variation of the runs if it is large."""
    paths = {}
    for name in runs[0]:
        figures = values(runs, name)
        middle = statistics.median(figures)
        noise = (max(figures) - min(figures)) / middle
        paths[name] = {"instructions": round(middle)}
        if noise > NOISE_MAX:
            paths[name]["noise"] = round(noise, 3)
            say(f"{name}: its counts vary by {noise:.1%}, which raises its limit")
    records = json.loads(RECORDS.read_text()) if RECORDS.exists() else {}
    records[key()] = {"tools": tools(), "paths": paths}
    RECORDS.write_text(json.dumps(records, indent=2, sort_keys=True) + "\n")
    say(f"recorded {len(paths)} paths for {key()} in {RECORDS}")


def compare(counts: Counts) -> int:
    """Print one line per path; the exit status is 1 if one takes too many instructions."""
    records = json.loads(RECORDS.read_text()) if RECORDS.exists() else {}
    record = records.get(key())
    beyond = []
    for name, figure in counts.items():
        known = record and record["paths"].get(name)
        line = f"{name:45} {figure:10,.0f}"
        if known:
            ratio = figure / known["instructions"]
            line += f"  {ratio - 1:+7.1%}"
            if ratio > limit(known):
                beyond.append(f"{name}: {ratio - 1:+.1%} (limit {limit(known) - 1:+.1%})")
        print(line)
    if record is None:
        say(f"not compared: no record for {key()}; {RENEW} makes one")
        return 0
    if not beyond:
        return 0
    say("more instructions than recorded:\n  " + "\n  ".join(beyond))
    here = tools()
    for name, version in record["tools"].items():
        if here.get(name) != version:
            say(f"recorded with {name} {version!r}, here it is {here.get(name)!r}")
    say(f"if intended: {RENEW}, and give the reason in the commit")
    return 1


def limit(known: Mapping[str, float]) -> float:
    """The largest allowed ratio to the recorded count."""
    return 1 + MORE_MAX + known.get("noise", 0.0)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="record the counts")
    parser.add_argument("--runs", type=int, help="number of runs for the median [1; to record 5]")
    parser.add_argument("--drivers", nargs="+", choices=["epoll", "uring"], default=["epoll"])
    options = parser.parse_args()
    options.runs = options.runs or (RECORDED_RUNS if options.write else 1)
    return options


if __name__ == "__main__":
    main()
