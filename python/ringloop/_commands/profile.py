"""`python -m ringloop profile`: like `run`, with a profile of the program's loops."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ringloop import _output, profiling
from ringloop._commands import PROGRAM, run
from ringloop.profiling import _formats, _running

# Options that take the next argument, unless "=" joins the two.
_WITH_VALUE = {"-o", "--output", "--format", "--mode", "--rate"}

_EPILOG = """\
Runs the program like the command run, whose options may precede it. The profile is written when the
program ends, including by an exception or Ctrl-C.

  python -m ringloop profile app.py                          a flame graph in profile.svg
  python -m ringloop profile -o app.speedscope.json app.py   a file for https://www.speedscope.app
  python -m ringloop profile --mode waiting -m uvicorn app:app
                                                             what the tasks wait for

Exit status: the program's; 2 for a usage error.
"""


def main(arguments: list[str]) -> int:
    """Profile the program that `arguments` name; return its exit status."""
    parser = _parser()
    position = 0
    while position < len(arguments) and arguments[position].startswith("-"):
        name = arguments[position].partition("=")[0]
        if name not in {*_WITH_VALUE, "-h", "--help"} and not name.startswith("-o"):
            break
        position += 2 if arguments[position] in _WITH_VALUE else 1
    asked = parser.parse_args(arguments[:position])
    try:
        name = _formats.of(asked.output, asked.format)
        profiled = profiling.profile(mode=asked.mode, rate=asked.rate)
    except ValueError as error:
        parser.error(str(error))
    # The program may change the current directory.
    file = Path(asked.output).absolute()
    if not file.parent.is_dir():
        parser.error(f"the profile cannot be written: there is no directory {file.parent}")
    process = os.getpid()
    try:
        with profiled as profile:
            return run.main(arguments[position:])
    finally:
        # A child forked by the program ends here, too.
        if os.getpid() == process:
            told = _written(profile, asked.output, file, name)
            _output.tell(f"{PROGRAM} profile: {told}\n")


def _written(profile: profiling.Profile, shown: str, file: Path, name: str) -> str:
    """Write the profile, and report it; a program that ran no loop has none."""
    if not profile.samples:
        return "no sample was taken: the program ran no loop for long enough"
    try:
        profile.save(file, name)
    except OSError as error:
        return f"the profile cannot be written: {error}"
    return f"{profile.samples:,} samples in {profile.seconds:.1f} s, written to {shown}"


def _parser() -> argparse.ArgumentParser:
    parser = _output.Parser(
        prog=f"{PROGRAM} profile",
        usage=f"{PROGRAM} profile [OPTIONS] [OPTIONS of run]"
        " (FILE | -m MODULE | -c COMMAND | -) [ARGUMENT ...]",
        description="Run a script or a module on ringloop's loop, and record where its time goes.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "-o",
        "--output",
        default="profile.svg",
        metavar="FILE",
        help="the file to write (profile.svg)",
    )
    add(
        "--format",
        choices=list(_formats.WRITERS),
        help="its format (default: by the file's extension)",
    )
    add(
        "--mode",
        choices=["running", "waiting"],
        default="running",
        help="what the loops' threads do, or what the tasks wait for (running)",
    )
    add(
        "--rate",
        type=float,
        help=f"samples per second, up to {_running.RATE_MAX} (100; waiting: 10)",
    )
    return parser
