"""Compare event loops: the same work on each, interleaved, one process per run.

    python3 benches/compare.py --quick                 a first look, some minutes
    python3 benches/compare.py                         everything
    python3 benches/compare.py --only tcp_protocol     one workload (see --list)
    python3 benches/compare.py --loops uvloop,ringloop-uring --only 'tcp_*/1024/32'

The first use sets up (as --setup does): a virtual environment .venv-bench/VERSION with the peers of
requirements.txt and a release build of ringloop from this checkout, the load generator, the floor
servers. Needs a Rust toolchain, a C compiler and CPython 3.11 or later. Run --setup again after
changing ringloop. The tables go to standard output, progress to standard error.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from comparison import machine, markdown, paths, program
from comparison.environment import (
    SetupError,
    available_loops,
    build_native,
    commit,
    environment_for,
    set_up,
)
from comparison.measuring import Contestant, Settings, measure
from comparison.results import Report, row_results
from comparison.rows import CONNECTIONS, SIZES, Row, all_rows, selected
from comparison.telling import plot, say
from workloads.support.loops import FACTORIES

QUICK = {"rounds": 3, "seconds": 0.4, "sizes": (1024, 100 * 1024), "connections": (1, 32)}
FULL = {"rounds": 5, "seconds": 1.0, "sizes": SIZES, "connections": CONNECTIONS}


def main() -> None:
    """Run what the command line asks for."""
    options = parse_arguments()
    rows = selected(all_rows(options.sizes, options.connections), options.only)
    report = program.run(options, rows, lambda: compare(options, rows))
    if report is not None:
        write(report, options)


def compare(options: argparse.Namespace, rows: Sequence[Row]) -> Report | None:
    """Set up, run everything and return the report; `None` if only the set-up was requested."""
    if not rows and not options.setup:
        raise SetupError("--only matches no row; --list shows their names")
    environment = environment_for(options.python)
    floors = build_native(say)
    if options.setup or not environment.is_set_up():
        set_up(environment, say)
    if options.setup:
        return None
    installed = environment.ringloop_commit()
    if installed != commit():
        say(
            f"ringloop is installed from {installed}, but the checkout is at {commit()}: see --setup"
        )
    found = available_loops(environment, options.loops)
    absent = {name: reason for name, reason in found.items() if reason is not None}
    for name, reason in absent.items():
        say(f"not compared: {name}: {reason}")
    loops = [name for name, reason in found.items() if reason is None]
    if options.no_floor:
        floors = {}
    contestants = [Contestant(name, program) for name, program in floors.items()]
    contestants += [Contestant(name) for name in loops]
    server_cpu, load_cpu = machine.choose_cpus(options.server_cpu, options.load_cpu)
    settings = Settings(
        environment.python, options.rounds, options.seconds, server_cpu, load_cpu, options.gc
    )
    before = machine.describe()
    measured = measure(rows, contestants, settings, say)
    return {
        **program.circumstances(),
        "commit": installed,
        "machine": before,
        "python": environment.describe(),
        "versions": {name: str(version) for name, version in environment.versions().items()},
        "settings": describe(settings),
        "absent": absent,
        "floors": list(floors),
        "loops": loops,
        "rows": row_results(rows, measured, list(floors)),
    }


def describe(settings: Settings) -> dict[str, object]:
    """The settings that a reader of the report needs."""
    return {
        "rounds": settings.rounds,
        "seconds": settings.seconds,
        "server_cpu": settings.server_cpu,
        "load_cpu": settings.load_cpu,
        "gc": settings.gc or "off in the scheduling rows, on in the servers",
    }


def write(report: Report, options: argparse.Namespace) -> None:
    """Write the report to the requested places."""
    text = markdown.render(report)
    print(text)
    python = environment_for(options.python).python
    if options.json:
        program.write_figures(report, options.json)
    if options.markdown:
        options.markdown.write_text(text)
    if options.plot:
        plot(report, options.plot, python)
    if options.write_results:
        head = "# Results\n\nHow to read and reproduce: README.md."
        shows = "each loop as a share of the best other loop"
        program.write_results(report, paths.RESULTS, head, shows, text, python)


def numbers(text: str) -> tuple[int, ...]:
    """Parse a list of numbers."""
    return tuple(int(number) for number in text.split(","))


def loop_names(text: str) -> list[str]:
    """Parse a list of loops."""
    names = text.split(",")
    unknown = set(names) - set(FACTORIES)
    if unknown:
        raise argparse.ArgumentTypeError(f"not a loop: {', '.join(sorted(unknown))}")
    return [name for name in FACTORIES if name in names]


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    program.add_common_arguments(parser)
    what = parser.add_argument_group("what is compared")
    what.add_argument(
        "--loops",
        type=loop_names,
        default=list(FACTORIES),
        metavar="A,B",
        help=f"loops [all: {', '.join(FACTORIES)}]",
    )
    what.add_argument("--sizes", type=numbers, metavar="N,N", help="echo message bytes")
    what.add_argument("--connections", type=numbers, metavar="N,N", help="held by the client")
    what.add_argument("--no-floor", action="store_true", help="leave the floor servers out")
    how = parser.add_argument_group("how")
    how.add_argument("--gc", choices=["on", "off"], help="[off in scheduling rows, on in servers]")
    how.add_argument("--server-cpu", type=int, metavar="N", help="CPU of the measured process")
    how.add_argument("--load-cpu", type=int, metavar="N", help="CPU of the load generator")
    how.add_argument(
        "--python",
        default=sys.executable,
        help="interpreter to use [the one that runs this]",
    )
    how.add_argument("--setup", action="store_true", help="(re)install everything and stop")
    out = parser.add_argument_group("where to")
    out.add_argument("--markdown", type=Path, metavar="FILE", help="the tables")
    out.add_argument("--plot", type=Path, metavar="FILE", help="a chart (.svg, .png)")
    return program.parse(parser, QUICK, FULL)


if __name__ == "__main__":
    main()
