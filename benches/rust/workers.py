"""Compare the CPU time per request of one worker, of two, and of two processes of one worker.

    python3 benches/rust/workers.py monoio ringloop-uring --rounds 34 --seconds 0.4

The three take turns, so that the figures of a round are close in time; the output is the median of
the ratios within a round. Run `compare.py` first, or anything else that builds the contestants.
Run it under `chrt -f 10` to keep other work off the CPUs.
"""

import argparse
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from contestants import CONTESTANTS
from running import Settings, run_once
from tables import all_rows

from comparison import machine
from comparison.measuring import Runs
from comparison.results import interval

ONE, TWO, APART = "workers/1", "workers/2", "workers/2x1"


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("peers", nargs="+", choices=CONTESTANTS)
    parser.add_argument("--rounds", type=int, default=34)
    parser.add_argument("--seconds", type=float, default=0.4)
    options = parser.parse_args()
    server_cpu, load_cpu = machine.choose_cpus(None, None)
    settings = Settings(options.rounds, 0, options.seconds, server_cpu, load_cpu, None)
    for name in options.peers:
        costs = measure(name, settings)
        for few, many in ((ONE, TWO), (ONE, APART), (TWO, APART)):
            factor = 2 if few == ONE else 1
            pairs = zip(costs[few], costs[many], strict=True)
            ratios = [factor * one / other for one, other in pairs]
            low, high = interval(ratios)
            middle = statistics.median(ratios)
            print(f"{name}: {factor} x {few} / {many}: {middle:.3f} ({low:.3f} to {high:.3f})")


def measure(name: str, settings: Settings) -> dict[str, list[float]]:
    """Run a contestant's three rows in turn; return µs of CPU time per request by row."""
    rows = [row for row in all_rows() if row.name in (ONE, TWO, APART)]
    measured = {row.name: Runs() for row in rows}
    for _ in range(settings.rounds):
        for row in rows:
            runs = measured[row.name]
            run_once(row, name, {}, settings, Path("/dev/null"), runs)
            if runs.failure is not None:
                raise SystemExit(f"{name}, {row.name}: {runs.failure}")
    return {row: [one["server_cpu_us"] for one in runs.details] for row, runs in measured.items()}


if __name__ == "__main__":
    main()
