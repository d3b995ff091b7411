"""`python -m ringloop run`: runs a program on this loop, whichever loop it asks asyncio for."""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import _ringloop_install
from ringloop import _output, _program, _run, _workers
from ringloop._commands import COMMANDS, PROGRAM
from ringloop._driver import NAMES

if TYPE_CHECKING:
    from collections.abc import Callable

# Options that take the next argument, unless "=" joins the two.
_WITH_VALUE = {"--driver", "--workers", "--kind", "--bind", "--grace"}

_EPILOG = """\
The program runs as __main__, as under plain python: sys.argv, sys.path[0], exit status and tracebacks
are the same. asyncio.run, asyncio.new_event_loop and everything built on them create ringloop's loop, in
this process and in Python programs that it starts (through RINGLOOP_INSTALL in their environment).

  python -m ringloop app.py                             a script
  python -m ringloop -m pytest tests                    a module
  python -m ringloop - <app.py                          a script on standard input
  python -m ringloop --as-uvloop -m uvicorn app:app     a server that asks for uvloop's or asyncio's loop

Workers:
  python -m ringloop run --workers 4 --bind :8000 app:main      await main(worker) in each; threads if
                                                                Python is free-threaded
  python -m ringloop run --workers 4 app.py                     the script in 4 processes; their numbers
                                                                are in RINGLOOP_WORKER
A worker that crashes is restarted. SIGTERM or SIGINT asks all to end; a second one ends them at once.

Exit status: the program's; 2 if it is not found, as with python; with workers 0, or 1 if one was cut off
or did not start.
"""


def main(arguments: list[str]) -> int:
    """Run the program that `arguments` name; return 0 at its end."""
    parser = _parser()
    own, program = _split(arguments)
    asked = parser.parse_args(own)
    if not program:
        parser.error("which program? give FILE, -m MODULE, -c COMMAND, or - for standard input")
    if asked.workers is not None:
        _choose_loop(asked)
        return _run_workers(parser, asked, program)
    if asked.kind or asked.bind or asked.grace is not None:
        parser.error("--kind, --bind and --grace are for workers: give --workers N, too")
    run = _checked(parser, program)
    _choose_loop(asked)
    run()
    return 0


def _checked(parser: argparse.ArgumentParser, program: list[str]) -> Callable[[], None]:
    """Return what runs a program in this process; ends with status 2 where there is no such file."""
    name, *rest = program
    if name == "-":
        return functools.partial(_program.run_input, _standard_input(), rest)
    if name.startswith(("-m", "-c")):
        option, value = name[:2], name[2:] or (rest.pop(0) if rest else None)
        if option == "-c" and value is not None:
            return functools.partial(_program.run_command, value, rest)
        if not value:
            parser.error(f"{option} needs {'the name of a module' if option == '-m' else 'source'}")
        return functools.partial(_program.run_module, value, rest)
    if not os.path.exists(name):  # noqa: PTH110 - names are passed on as they came
        commands = ", ".join(COMMANDS)
        parser.exit(
            2, f"{PROGRAM}: can't open file {name!r}: no such file (nor a command: {commands})\n"
        )
    return functools.partial(_program.run_file, name, rest)


def _standard_input() -> bytes | None:
    """Return a program that comes in on standard input; None if that is a terminal."""
    if sys.stdin is None:
        return b""
    return None if sys.stdin.isatty() else sys.stdin.buffer.read()


def _run_workers(
    parser: argparse.ArgumentParser, asked: argparse.Namespace, program: list[str]
) -> int:
    """Run a function `await main(worker)`, or a program, in workers; return the exit status."""
    grace = 30.0 if asked.grace is None else asked.grace
    name, *rest = program
    module, colon, attribute = name.partition(":")
    is_function = bool(colon) and not name.startswith("-") and not Path(name).exists()
    try:
        if is_function:
            if rest:
                parser.error(f"{name} takes no arguments: {' '.join(rest)}")
            main = _function(module, attribute)
            return _workers.run_workers(
                main, asked.workers, kind=asked.kind, listen=asked.bind, grace=grace
            )
        if asked.kind == "thread":
            parser.error("threads run a function: give MODULE:FUNCTION, or --kind process")
        if asked.bind:
            parser.error("--bind needs MODULE:FUNCTION: a program binds its own sockets")
        run = _checked(parser, program)
        return _workers.run_programs(run, asked.workers, grace=grace)
    except (OSError, ValueError, TypeError, LookupError, ImportError, NotImplementedError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")


def _function(module: str, attribute: str) -> Any:
    """Import the coroutine function; the current folder comes first, as for `python -m`."""
    found: Any = importlib.import_module(module)
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise LookupError(f"module {module!r} has no {attribute!r}")
        found = getattr(found, name)
    return found


def _parser() -> argparse.ArgumentParser:
    parser = _output.Parser(
        prog=f"{PROGRAM} run",
        usage=f"{PROGRAM} [run] [OPTIONS] (FILE | -m MODULE | -c COMMAND | -) [ARGUMENT ...]",
        description="Run a script or a module with ringloop's loop as asyncio's default one.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--as-uvloop",
        action="store_true",
        help="import uvloop gives ringloop's loop, too: for servers that know the loops 'asyncio'"
        " and 'uvloop' (uvicorn, hypercorn, gunicorn, granian)",
    )
    add("--driver", choices=NAMES, help="the driver of its loops (auto)")
    group = parser.add_argument_group("workers")
    add = group.add_argument
    add(
        "--workers", type=int, metavar="N", help="number of workers; those that crash are restarted"
    )
    add(
        "--kind",
        choices=["thread", "process"],
        help="kind of worker (threads if Python is free-threaded, otherwise processes)",
    )
    add(
        "--bind",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="HOST:PORT, :PORT or unix:PATH that all serve (worker.sockets); may be repeated",
    )
    add("--grace", type=float, metavar="SECONDS", help="time that they have to end (30)")
    return parser


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return our own options, and the program with all that follows it."""
    position = 0
    while position < len(arguments):
        argument = arguments[position]
        if argument == "--":
            return arguments[:position], arguments[position + 1 :]
        if argument == "-" or argument.startswith(("-m", "-c")) or not argument.startswith("-"):
            break
        position += 2 if argument in _WITH_VALUE else 1
    return arguments[:position], arguments[position:]


def _choose_loop(asked: argparse.Namespace) -> None:
    """Make the loop the default one, here and in children."""
    value = _ringloop_install.AS_UVLOOP if asked.as_uvloop else _ringloop_install.DEFAULT
    os.environ[_ringloop_install.VARIABLE] = value
    if asked.driver is not None:
        os.environ["RINGLOOP_DRIVER"] = asked.driver
    _run.install(as_uvloop=asked.as_uvloop)
