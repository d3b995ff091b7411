"""`python -m ringloop serve`: the entry point of `ringloop.serve`, which needs optional packages."""

from __future__ import annotations

from ringloop import _output
from ringloop._commands import PROGRAM


def main(arguments: list[str]) -> int:
    """Serve; return the exit status."""
    try:
        from ringloop.serve._arguments import add_arguments  # noqa: PLC0415  # optional packages
    except ImportError as error:
        _output.tell(f"{PROGRAM} serve: {error}\n")
        return 1
    parser = _output.Parser(prog=PROGRAM)
    add_arguments(parser.add_subparsers(dest="command", required=True))
    asked = parser.parse_args(["serve", *arguments])
    status: int = asked.run(asked)
    return status
