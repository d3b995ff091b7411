"""`python -m ringloop COMMAND …`; `ringloop._commands` has them."""

from __future__ import annotations

import sys

# As the shell reports a command that SIGINT has ended.
_INTERRUPTED = 130


def _status() -> int:
    """Run the command; return the exit status."""
    try:
        # Here, because imports are what Ctrl-C interrupts first.
        from ringloop._commands import main  # noqa: PLC0415

        return main(sys.argv[1:])
    except KeyboardInterrupt:
        program = sys.modules.get("ringloop._program")
        if program is not None and program.has_begun():
            # It ends as under plain python: with its traceback, by the signal.
            raise
        return _INTERRUPTED


if __name__ == "__main__":
    raise SystemExit(_status())
