"""One run: a server and a client, each in its own process.

Owns: the processes, time-outs. Called by: `compare`.
"""

import contextlib
import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from contestants import CEILING, Contestant
from tables import FIGURES

from comparison.disturbance import Patience, held, undisturbed
from comparison.environment import reason_of
from comparison.measuring import Measured, Runs, end_session, in_turns, run_variables
from comparison.rows import Row

START_SECONDS_MAX = 20.0
# What a run may take beyond its measured time: a thousand connections, closing.
EXTRA_SECONDS = 60.0


@dataclass(frozen=True)
class Settings:
    """How the runs are made."""

    python: Path
    certificates: Path
    rounds: int
    warmup: float
    seconds: float
    patience: Patience
    lock: Path | None


class RunError(Exception):
    """A failed run; the message says why."""


def measure(
    rows: Sequence[Row],
    contestants: Sequence[Contestant],
    settings: Settings,
    say: Callable[[str], None],
) -> Measured:
    """Run everything."""
    fields = [
        (row, [one for one in contestants if one.stack != "udp" or row.has_floor]) for row in rows
    ]

    def once(row: Row, one: Contestant, runs: Runs) -> None:
        run_once(row, one, settings, runs)

    return in_turns(fields, settings.rounds, once, say)


def run_once(row: Row, one: Contestant, settings: Settings, runs: Runs) -> None:
    """Run both processes and keep the result, or why it failed."""
    try:
        with held(settings.lock):
            counted = undisturbed(lambda: timed(row, one, settings), settings.patience)
    except RunError as failure:
        runs.failure = str(failure)
        return
    runs.details.append(counted)
    runs.rates.append(FIGURES[row.workload][0].of(counted) or 0.0)


def timed(row: Row, one: Contestant, settings: Settings) -> dict:
    """One run."""
    port = free_port()
    client = one.client(settings.python, port, settings.certificates, row.workload, *row.arguments)
    client += [str(settings.warmup), str(settings.seconds)]
    with contextlib.ExitStack() as stack:
        if one.stack != "udp":
            command = one.server(settings.python, port, settings.certificates)
            stack.enter_context(server(command, one))
        process = subprocess.Popen(
            client,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=run_variables() | one.variables,
            start_new_session=True,
        )
        try:
            out, error = process.communicate(
                timeout=settings.warmup + settings.seconds + EXTRA_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise RunError("no result in time") from None
        finally:
            end_session(process)
    if process.returncode:
        raise RunError(reason_of(error))
    return json.loads(out.splitlines()[-1])


@contextlib.contextmanager
def server(command: Sequence[str], one: Contestant) -> Iterator[None]:
    """Run a server for the duration of the block, which begins when the server is ready."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=run_variables() | one.variables,
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            if not process.stdout.readline():
                errors.seek(0)
                raise RunError(reason_of(errors.read()))
            yield
        finally:
            end_session(process)
            assert process.stdout is not None
            process.stdout.close()


def free_port() -> int:
    """Find a free UDP port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def make_certificates(python: Path, folder: Path) -> None:
    """Create the CA and the server's certificate of a run."""
    script = Path(__file__).with_name("certificates.py")
    subprocess.run([python, script, folder], check=True, env=os.environ)


def field(names: Sequence[str], contestants: Sequence[Contestant]) -> list[Contestant]:
    """The contestants with these names."""
    return [
        one
        for one in contestants
        if one.name in names or (one.name == CEILING and CEILING in names)
    ]
