"""`python -m ringloop.quic versions`."""

from __future__ import annotations

import sys

from ringloop.quic import versions


def main(arguments: list[str]) -> int:
    """Run a command; return the exit status."""
    if arguments != ["versions"]:
        sys.stderr.write("usage: python -m ringloop.quic versions\n")
        return 2
    for name, value in versions.report():
        sys.stdout.write(f"{name + ':':16} {value}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
