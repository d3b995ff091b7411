"""`python -m ringloop COMMAND …`; `ringloop._commands` has them."""

from __future__ import annotations

import sys

from ringloop._commands import main

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
