"""`python -m ringloop top`: the loops of a running process, once a second."""

from __future__ import annotations

import argparse
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

from ringloop import _output, _system
from ringloop._commands import PROGRAM
from ringloop.metrics import _serving
from ringloop.metrics._snapshot import Histogram

_EPILOG = """\
A process offers its metrics if it was started with RINGLOOP_TOP=1 in its environment, or has called
ringloop.metrics.serve(). Without PID, shows the only such process of this user, or lists them if there
are several. Ctrl-C ends.

  util   time in which the loop was not asleep        lag    time between two polls of the kernel
  ready  callbacks in the ready queue                 conns  open transports

Exit status: 0; 1 if the process does not offer its metrics, or has ended; 2 for a usage error.
"""
_CLEAR = "\x1b[H\x1b[2J"
ANSWER_SECONDS_MAX = 10.0
HEAD = (
    f"{'loop':16} {'driver':6} {'util':>6} {'lag 50%':>8} {'99%':>8} {'max':>8} {'turns/s':>8} "
    f"{'calls/s':>8} {'ops/s':>8} {'in/s':>8} {'out/s':>8} {'ready':>6} {'timers':>6} {'conns':>6} "
    f"{'slow':>5}"
)


class NotOffered(Exception):  # noqa: N818 - it is what happened
    """A process does not offer its metrics; the text says why, and what to do."""


class Source:
    """The socket of a process."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(ANSWER_SECONDS_MAX)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise
        self._file = self._socket.makefile("rb")

    def ask(self) -> dict[str, Any]:
        """Return a report; NotOffered once the process has ended."""
        try:
            self._socket.sendall(b"\n")
            line = self._file.readline()
        except OSError:
            line = b""
        if not line:
            raise NotOffered("the process has ended, or has closed its socket")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """Close the socket."""
        self._file.close()
        self._socket.close()


def main(arguments: list[str]) -> int:
    """Show the loops of a process; return the exit status."""
    asked = _parser().parse_args(arguments)
    try:
        _system.require_unix("metrics on a Unix socket")
        source = Source(_path_of(asked.pid)) if asked.path is None else Source(Path(asked.path))
    except (NotOffered, NotImplementedError) as reason:
        _output.tell(f"{PROGRAM} top: {reason}\n")
        return 1
    except OSError as error:
        _output.tell(f"{PROGRAM} top: {asked.path or asked.pid}: {error.strerror}\n")
        return 1
    try:
        return _show(source, asked)
    except NotOffered as reason:
        _output.tell(f"{PROGRAM} top: {reason}\n")
        return 1
    except KeyboardInterrupt:
        return 0
    finally:
        source.close()


def _show(source: Source, asked: argparse.Namespace) -> int:
    if asked.json:
        _output.say(json.dumps(source.ask(), indent=2) + "\n")
        return 0
    before = source.ask()
    while True:
        time.sleep(asked.interval)
        now = source.ask()
        text = "\n".join(lines(now, before))
        _output.say(f"{text}\n" if asked.once else f"{_CLEAR}{text}\n")
        if asked.once:
            return 0
        before = now


def lines(now: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """Return one screen for two consecutive reports."""
    clock = time.strftime("%H:%M:%S", time.localtime(now["time"]))
    program = now["program"] or "python"
    versions = f"CPython {now['python']}, ringloop {now['ringloop']}"
    shown = [f"{program}, process {now['pid']}, {versions}, {clock}", HEAD]
    known = {loop["loop"]: loop for loop in before["loops"]}
    shown += [_row(loop, known.get(loop["loop"])) for loop in now["loops"]]
    if not now["loops"]:
        shown.append("no loop is open")
    slow = [
        (one["ended"], loop["loop"], one) for loop in now["loops"] for one in loop["slow_callbacks"]
    ]
    if slow:
        shown += ["", "slow callbacks, latest first:"]
    for _, number, one in sorted(slow, key=lambda found: -found[0])[:8]:
        shown.append(f"  {one['seconds']:7.3f} s in loop {number}: {one['what']}")
    for loop in now["loops"]:
        shown += [f"loop {loop['loop']}: {reason}" for reason in loop["fallbacks"]]
    return [_printable(line) for line in shown]


def _printable(line: str) -> str:
    """Replace what a terminal would take for a command: names are the program's."""
    return "".join(letter if letter.isprintable() else "?" for letter in line)


def _row(loop: dict[str, Any], old: dict[str, Any] | None) -> str:
    old = loop if old is None else old
    span = max(loop["at"] - old["at"], 1e-9)

    def per_second(name: str) -> str:
        return _amount((loop[name] - old[name]) / span)

    busy = loop["busy_seconds"] - old["busy_seconds"]
    total = busy + loop["waited_seconds"] - old["waited_seconds"]
    lag = _histogram(loop["lag"]).since(_histogram(old["lag"]))
    name = f"{loop['loop']} {loop['thread'] or 'stopped'}"
    return (
        f"{name[:16]:16} {loop['driver']:6} {100 * busy / total if total else 0:5.1f}% "
        f"{_seconds(lag.quantile(0.5)):>8} {_seconds(lag.quantile(0.99)):>8} {_seconds(lag.max):>8} "
        f"{per_second('turns'):>8} {per_second('callbacks'):>8} "
        f"{per_second('operations_completed'):>8} {per_second('received_bytes'):>8} "
        f"{per_second('sent_bytes'):>8} {loop['ready']:6} {loop['timers']:6} {loop['transports']:6} "
        f"{loop['slow_callbacks_total']:5}"
    )


def _histogram(found: dict[str, Any]) -> Histogram:
    return Histogram(tuple(found["bounds"]), tuple(found["counts"]), found["sum"], found["max"])


def _seconds(value: float) -> str:
    for unit, name, digits in ((1, "s", 2), (1e-3, "ms", 1)):
        if value >= unit:
            return f"{value / unit:.{digits}f}{name}"
    return f"{value * 1e6:.0f}us"


def _amount(value: float) -> str:
    for bound, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= bound:
            return f"{value / bound:.1f}{letter}"
    return f"{value:.0f}"


def _path_of(pid: int | None) -> Path:
    """Return the socket of a process; without an id, of the only process with a socket."""
    folder = _serving.folder()
    if pid is not None:
        path = folder / f"{pid}.sock"
        if path.is_socket():
            return path
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            raise NotOffered(f"there is no process {pid}") from None
        except PermissionError:
            raise NotOffered(
                f"process {pid} is another user's: ask as that user, or root"
            ) from None
        raise NotOffered(
            f"process {pid} does not offer its metrics: start it with RINGLOOP_TOP=1 in its "
            "environment, or call ringloop.metrics.serve() in it"
        )
    found = sorted(path for path in folder.glob("*.sock") if _serving._answers(path))
    if not found:
        raise NotOffered(
            "no process of this user offers its metrics: start one with RINGLOOP_TOP=1 in its "
            "environment, or call ringloop.metrics.serve() in it"
        )
    if len(found) > 1:
        pids = ", ".join(path.stem for path in found)
        raise NotOffered(f"which process? {pids}")
    return found[0]


def _parser() -> argparse.ArgumentParser:
    parser = _output.Parser(
        prog=f"{PROGRAM} top",
        description="Show the loops of a running process, once a second.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("pid", nargs="?", type=_pid, metavar="PID", help="the process")
    add("--path", metavar="SOCKET", help="the path given to ringloop.metrics.serve()")
    add(
        "--interval",
        type=_interval,
        default=1.0,
        metavar="SECONDS",
        help="time between updates (1)",
    )
    add("--once", action="store_true", help="print one screen and exit")
    add("--json", action="store_true", help="print everything as JSON and exit")
    return parser


def _pid(text: str) -> int:
    # No system has longer ones.
    if not text.isdecimal() or not 0 < int(text) < 1 << 31:
        raise argparse.ArgumentTypeError(f"{text} is not the id of a process")
    return int(text)


def _interval(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.05 <= value <= 3600:  # noqa: PLR2004 - said below
        raise argparse.ArgumentTypeError("between 0.05 and 3600 seconds")
    return value
