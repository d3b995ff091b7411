"""Interrupt or cancel at random points of many runs of a mixed workload, and look for damage.

`python -m tests.injection keyboard io_uring --runs 10000`. A failed run is reported with its seed, and
`--seed SEED --runs 1` repeats it alone: the dice are the same, the machine's timing is not.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import random
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.injection import messages, operations, scheduled, talks
from tests.injection.run import DRIVERS, KINDS, PATIENCE_SECONDS, Run
from tests.support.tls import Certificates

if TYPE_CHECKING:
    from collections.abc import Callable

PARTS_PER_RUN = (2, 5)


def play(kind: str, driver: str, seed: int, contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> Run:
    """Execute one run, whose `faults` are its result."""
    dice = random.Random(f"parts {kind} {seed}")
    parts: list[Callable[[Run], object]] = []
    for module in (talks, messages, operations, scheduled):
        parts += module.PARTS
    if kind == "cancel":
        parts.append(operations.ATTEMPTS)
    run = Run(kind, driver, seed, contexts)
    run.execute(dice.sample(parts, dice.randint(*PARTS_PER_RUN)))
    return run


def tls_contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Create a server's and a client's context; certificates are created in the folder if missing."""
    authority, certificate, key = (
        folder / name for name in ("authority.pem", "localhost.pem", "localhost.key")
    )
    if not authority.exists():
        Certificates(folder).issue()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    return server, ssl.create_default_context(cafile=authority)


def play_all(arguments: argparse.Namespace) -> int:
    """Execute runs in this process, printing a line for each."""
    failed = 0
    contexts = tls_contexts(Path(arguments.certificates))
    gc.collect()
    gc.freeze()
    for seed in range(arguments.seed, arguments.seed + arguments.runs):
        print("run", seed, flush=True)
        faulthandler.dump_traceback_later(2 * PATIENCE_SECONDS, exit=True)
        run = play(arguments.kind, arguments.driver, seed, contexts)
        faulthandler.cancel_dump_traceback_later()
        print("thrown", run.thrown, flush=True)
        if run.faults:
            failed += 1
            print("fault", seed, " | ".join(run.faults).replace("\n", " "), flush=True)
    return failed


@dataclass
class Tally:
    """The reports of the processes."""

    runs: int = 0
    thrown: int = 0
    faults: dict[int, str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def line(self, line: str) -> int | None:
        """Record a line; return the seed if it starts a run."""
        word, _, rest = line.strip().partition(" ")
        with self.lock:
            if word == "run":
                return int(rest)
            if word == "thrown":
                self.runs += 1
                self.thrown += int(rest)
            elif word == "fault":
                seed, _, what = rest.partition(" ")
                self.failed(int(seed), what)
            return None

    def failed(self, seed: int, what: str) -> None:
        self.faults[seed] = what
        print(f"seed {seed}: {what}", flush=True)


def supervise(arguments: argparse.Namespace, first: int, count: int, tally: Tally) -> None:
    """Have a process execute `count` runs; one that dies is a fault, and another process continues."""
    end = first + count
    while first < end:
        command = [
            *(sys.executable, "-m", "tests.injection", arguments.kind, arguments.driver, "--alone"),
            *("--seed", str(first), "--runs", str(end - first)),
            *("--certificates", arguments.certificates),
        ]
        seed = first
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for line in child.stdout:
                began = tally.line(line)
                seed = seed if began is None else began
        if child.returncode in (0, 1) and seed == end - 1:
            return
        with tally.lock:
            tally.runs += 1
            tally.failed(seed, f"the process ended with {child.returncode}")
        first = seed + 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.injection", description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("driver", choices=DRIVERS)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument(
        "--seed", type=int, default=0, help="of the first run; the next one's is one more"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--certificates", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        return min(play_all(arguments), 1)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        arguments.certificates = folder
        tls_contexts(Path(folder))
        tally = Tally()
        share = -(-arguments.runs // arguments.jobs)
        threads = [
            threading.Thread(
                target=supervise,
                args=(arguments, arguments.seed + begin, min(share, arguments.runs - begin), tally),
            )
            for begin in range(0, arguments.runs, share)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(10.0)
                if thread.is_alive():
                    print(f"{tally.runs} of {arguments.runs} runs", file=sys.stderr, flush=True)
    seconds = time.monotonic() - began
    print(
        f"{arguments.kind}, {arguments.driver}: {tally.runs} runs, {tally.thrown} thrown,"
        f" {len(tally.faults)} failed, {seconds:.0f} s"
    )
    if tally.faults:
        print("failed:", *sorted(tally.faults))
    return 1 if tally.faults or tally.runs < arguments.runs else 0


if __name__ == "__main__":
    raise SystemExit(main())
