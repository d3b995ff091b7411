"""Standard output and error of the package's own commands.

Owns: how a command ends whose output cannot be written: with one line about it, or quietly if the reader
of a pipe is gone. Called by: the commands, never by a program that one of them runs.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import SupportsWrite

__all__ = ["OutputError", "Parser", "ended", "say", "tell"]

# As Python's own tools and the documentation of `signal` have it for EPIPE.
_NOT_WRITTEN = 1


class OutputError(Exception):
    """Standard output cannot be written; the cause is the OSError."""


def say(text: str) -> None:
    """Write to standard output, at once. OutputError: it cannot be written."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        raise OutputError from error


def tell(text: str) -> None:
    """Write to standard error, at once; what cannot be written is lost, as there is no other place."""
    # None: a service's starter has closed it.
    with suppress(OSError, AttributeError):
        sys.stderr.write(text)
        sys.stderr.flush()


class Parser(argparse.ArgumentParser):
    """A parser whose help is output like any other; argparse's own ignores errors."""

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Print the help."""
        if file is None and sys.stdout is not None:
            say(self.format_help())
        else:
            super().print_help(file)


def ended(command: Callable[[], int], name: str) -> int:
    """Run a command to its end; return the exit status."""
    try:
        return command()
    except OutputError as error:
        _discard_buffered()
        cause = error.__cause__
        if isinstance(cause, OSError) and not isinstance(cause, BrokenPipeError):
            tell(f"{name}: cannot write to standard output: {cause.strerror}\n")
        return _NOT_WRITTEN


def _discard_buffered() -> None:
    """Let the interpreter flush standard output at its end without another error."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
