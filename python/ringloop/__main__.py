"""`python -m ringloop serve app:app …`."""

from __future__ import annotations

import argparse
import sys


def main(arguments: list[str]) -> int:
    """Run a command; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m ringloop")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    try:
        from ringloop.serve._arguments import add_arguments  # noqa: PLC0415  # optional packages
    except ImportError as error:
        sys.stderr.write(f"python -m ringloop serve: {error}\n")
        return 1
    add_arguments(commands)
    asked = parser.parse_args(arguments)
    status: int = asked.run(asked)
    return status


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
