"""The commands of `python -m ringloop`: a table with one module per command.

A module has `main(arguments) -> int`, which parses the arguments after the command's name and returns
the exit status; it is imported when its command is run.
"""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass
from typing import Any

import ringloop
from ringloop import _output

__all__ = ["COMMANDS", "Command", "main"]

PROGRAM = "python -m ringloop"
# They run a program, which sees what it sees under plain python.
_OF_PROGRAMS = {"run", "profile"}
_USAGE_ERROR = 2


@dataclass(frozen=True)
class Command:
    """One command: its line in `--help`, and its module."""

    summary: str
    module: str

    def main(self, arguments: list[str]) -> int:
        """Run it; return the exit status."""
        module: Any = importlib.import_module(self.module)
        status: int = module.main(arguments)
        return status


COMMANDS = {
    "run": Command("run a script or a module on ringloop's loop", "ringloop._commands.run"),
    "doctor": Command(
        "report which driver loops use here, why, and what to change", "ringloop._commands.doctor"
    ),
    "bench": Command(
        "compare ringloop with asyncio and uvloop on this machine", "ringloop._commands.bench"
    ),
    "serve": Command(
        "serve an ASGI application over HTTP/3 and HTTP/1.1", "ringloop._commands.serve"
    ),
    "profile": Command(
        "run a program and record where its loops spend their time", "ringloop._commands.profile"
    ),
    "top": Command("show the loops of a running process", "ringloop._commands.top"),
}

_HELP = """\
usage: {program} COMMAND ...
       {program} [OPTIONS] (FILE | -m MODULE | -c COMMAND | -) [ARGUMENT ...]

The second form is short for the command run, and takes its options.

commands:
{commands}

options:
  -h, --help     show this message and exit
  -V, --version  show ringloop's version and exit

Run '{program} COMMAND --help' for more about a command.
"""


def main(arguments: list[str]) -> int:
    """Run a command, or a program; return the exit status."""
    return _output.ended(lambda: _run(arguments), PROGRAM)


def _run(arguments: list[str]) -> int:
    if not arguments:
        _open_closed_streams()
        _output.tell(_help())
        return _USAGE_ERROR
    first = arguments[0]
    if first in {"-h", "--help"}:
        _open_closed_streams()
        _output.say(_help())
        return 0
    if first in {"-V", "--version"}:
        _open_closed_streams()
        _output.say(f"ringloop {ringloop.__version__}\n")
        return 0
    if first in COMMANDS:
        if first not in _OF_PROGRAMS:
            _open_closed_streams()
        return COMMANDS[first].main(arguments[1:])
    return COMMANDS["run"].main(arguments)


def _open_closed_streams() -> None:
    """Open what a service's starter has closed: it is None, which nothing can write to."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123


def _help() -> str:
    width = max(map(len, COMMANDS))
    rows = (f"  {name:{width}}  {command.summary}" for name, command in COMMANDS.items())
    return _HELP.format(program=PROGRAM, commands="\n".join(rows))
