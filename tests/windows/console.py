"""Ctrl-C in a console, under Wine: python tests/windows/console.py PYTHON.EXE

Run on Linux by `make windows`. Wine gives a program a console where it has a terminal: each loop gets a
program in one, and this types Ctrl-C there while the loop waits. Wine 8.0 sends no Ctrl-Break: asyncio
cannot break a child either.
"""

from __future__ import annotations

import os
import pty
import re
import select
import sys
import time

LOOPS = ("asyncio.ProactorEventLoop", "ringloop.new_event_loop")
SECONDS = 90
CTRL_C = b"\x03"
# What the terminal gets beside the text.
ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|[\r\n]")
PROGRAM = """\
import asyncio, time, ringloop
async def main():
    print("waits[]", flush=True)
    await asyncio.sleep(60)
start = time.monotonic()
try:
    with asyncio.Runner(loop_factory={loop}) as runner:
        runner.run(main())
except KeyboardInterrupt:
    print("interrupted[%s]" % (time.monotonic() - start < 30), flush=True)
"""


def play(interpreter: str, loop: str) -> str:
    """Run the program on `loop` in a terminal, type Ctrl-C when it waits; return what it printed."""
    program = PROGRAM.format(loop=loop)
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm"
        os.execvp("wine", ["wine", interpreter, "-c", program])
    output, typed, end = b"", False, time.monotonic() + SECONDS
    while time.monotonic() < end:
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            data = os.read(terminal, 4096)
        except OSError:  # the program has ended
            break
        output += data
        if not typed and b"waits[" in ESCAPES.sub(b"", output):
            os.write(terminal, CTRL_C)
            typed = True
    else:
        os.kill(pid, 9)
    os.waitpid(pid, 0)
    os.close(terminal)
    return ESCAPES.sub(b"", output).decode(errors="replace")


def main() -> int:
    """Compare the loops; return the exit status."""
    status = 0
    for loop in LOOPS:
        output = play(sys.argv[1], loop)
        passed = "interrupted[True]" in output
        print(f"{loop} in a console: {'Ctrl-C ends a wait' if passed else output}")
        status |= not passed
    return status


if __name__ == "__main__":
    sys.exit(main())
