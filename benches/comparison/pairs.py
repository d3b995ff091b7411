"""One run: a server and a client, each in its own process.

Owns: the processes, time-outs. Called by: `compare` of QUIC and of HTTP/3.
"""

import contextlib
import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from comparison import paths
from comparison.disturbance import Patience, held, undisturbed
from comparison.environment import reason_of
from comparison.measuring import Measured, Runs, end_session, in_turns, run_variables
from comparison.rows import Row

START_SECONDS_MAX = 20.0
# What a run may take beyond its measured time: a thousand connections, closing.
EXTRA_SECONDS = 60.0


class Contestant(Protocol):
    """What can be run: a server and its client."""

    @property
    def name(self) -> str:
        """Its name in the tables."""

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables to add for its processes."""

    @property
    def is_ours(self) -> bool:
        """Whether it is this project's."""


C = TypeVar("C", bound=Contestant)


@dataclass(frozen=True)
class Commands:
    """The command lines of a run."""

    # `None`: the client is all there is.
    server: list[str] | None
    # By the server's session.
    client: Callable[[int], list[str]]
    folder: Path | None = None
    # The server prints a line once it is ready; otherwise the client waits for it.
    tells: bool = True


@dataclass(frozen=True)
class Settings(Generic[C]):
    """How the runs are made."""

    commands: Callable[[Row, C, int, Path], Commands]
    # The rate of a run, for the progress.
    rate: Callable[[Row, Mapping[str, Any]], float | None]
    certificates: Path
    rounds: int
    warmup: float
    seconds: float
    patience: Patience
    lock: Path | None


class RunError(Exception):
    """A failed run; the message says why."""


def measure(
    fields: Sequence[tuple[Row, Sequence[C]]], settings: Settings[C], say: Callable[[str], None]
) -> Measured:
    """Run everything: each row with its contestants."""

    def once(row: Row, one: C, runs: Runs) -> None:
        run_once(row, one, settings, runs)

    return in_turns(fields, settings.rounds, once, say)


def run_once(row: Row, one: C, settings: Settings[C], runs: Runs) -> None:
    """Run both processes and keep the result, or why it failed."""
    try:
        with held(settings.lock):
            counted = undisturbed(lambda: timed(row, one, settings), settings.patience)
    except RunError as failure:
        runs.failure = str(failure)
        return
    runs.details.append(counted)
    runs.rates.append(settings.rate(row, counted) or 0.0)


def timed(row: Row, one: C, settings: Settings[C]) -> dict[str, Any]:
    """One run."""
    port = free_port()
    commands = settings.commands(row, one, port, settings.certificates)
    with contextlib.ExitStack() as stack:
        session = 0
        if commands.server is not None:
            session = stack.enter_context(server(commands, one))
        process = subprocess.Popen(
            [*commands.client(session), str(settings.warmup), str(settings.seconds)],
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
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


@contextlib.contextmanager
def server(commands: Commands, one: Contestant) -> Iterator[int]:
    """Run a server for the duration of the block; its session.

    The block begins when the server is ready, if it tells.
    """
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            commands.server or (),
            stdout=subprocess.PIPE if commands.tells else errors,
            stderr=errors,
            text=True,
            env=run_variables() | one.variables,
            cwd=commands.folder,
            start_new_session=True,
        )
        try:
            if process.stdout is not None and not process.stdout.readline():
                errors.seek(0)
                raise RunError(reason_of(errors.read()))
            yield process.pid
            if process.poll() is not None:
                errors.seek(0)
                raise RunError(f"the server has ended: {reason_of(errors.read())}")
        finally:
            end_session(process)
            if process.stdout is not None:
                process.stdout.close()


def free_port() -> int:
    """Find a free UDP port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def make_certificates(python: Path, folder: Path) -> None:
    """Create the CA and the server's certificate of a run."""
    script = paths.BENCHES / "quic" / "certificates.py"
    subprocess.run([python, script, folder], check=True, env=os.environ)
