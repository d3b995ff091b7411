"""One run.

Owns: one process per run, time-outs. Called by: `compare`.
Computes only rates.
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

from contestants import program, variables
from tables import CAT_BYTES, REQUESTS_A_MESSAGE, UNPINNED

from comparison import paths
from comparison.disturbance import Patience, held, undisturbed
from comparison.environment import reason_of
from comparison.measuring import (
    WARMUP_SECONDS,
    Contestant,
    Further,
    Measured,
    Runs,
    in_turns,
)
from comparison.results import in_question
from comparison.rows import Row

# The reference of our servers' ratios, next to the peers.
REFERENCE = "C uring"
SERVED = {"echo", "http"}
RUN_SECONDS_MAX = 60.0
# Options of a server with several threads or processes; it runs on every CPU.
SPREAD = {"--workers", "--processes"}
# Every connection needs a descriptor, on either side.
DESCRIPTORS = 4096


@dataclass(frozen=True)
class Settings:
    """How the runs are made."""

    rounds: int
    # Extra rounds for contestants close to the best of a row.
    more: int
    seconds: float
    server_cpu: int
    load_cpu: int | None
    # Held during a row, shared by all benchmarks on this machine.
    lock: Path | None


class RunError(Exception):
    """A failed run; the message says why."""


def measure(
    rows: Sequence[Row],
    peers: Sequence[str],
    floors: Mapping[str, Path],
    settings: Settings,
    say: Callable[[str], None],
) -> Measured:
    """Run everything."""
    fields = [
        (row, [Contestant(name) for name in (*(floors if row.has_floor else ()), *peers)])
        for row in rows
    ]
    with input_file() as path:

        def once(row: Row, contestant: Contestant, runs: Runs) -> None:
            run_once(row, contestant.name, floors, settings, path, runs)

        further = Further(settings.more, lambda runs: in_question(runs, list(floors), REFERENCE))
        return in_turns(
            fields,
            settings.rounds,
            once,
            say,
            further if settings.more else None,
            lambda: held(settings.lock),
        )


def run_once(
    row: Row, name: str, floors: Mapping[str, Path], settings: Settings, path: Path, runs: Runs
) -> None:
    """Run one process and keep what it measured, or why it failed."""
    command = [str(program(name)), row.workload, *arguments_of(row), "--path", str(path)]
    environment = clean() | variables(name)
    if name in floors:
        command = [str(floors[name])]
        if name.startswith("engine "):
            environment |= {"RINGLOOP_DRIVER": name.removeprefix("engine ")}
    cpu = None if row.workload in UNPINNED else settings.server_cpu

    def once() -> dict:
        if row.workload in SERVED:
            return served(row, command, environment, settings)
        return timed(command, environment, cpu)

    try:
        counted = undisturbed(once, Patience())
    except RunError as failure:
        runs.failure = str(failure)
        return
    runs.details.append(counted)
    runs.rates.append(counted["ops"] / counted["seconds"])


def arguments_of(row: Row, without: Sequence[str] = ("--connections", "--processes")) -> list[str]:
    """A row's arguments without those for another program."""
    pairs = zip(row.arguments[::2], row.arguments[1::2], strict=True)
    return [word for pair in pairs if pair[0] not in without for word in pair]


def clean() -> dict[str, str]:
    """Our environment without variables that select a driver."""
    return {name: value for name, value in os.environ.items() if name != "RINGLOOP_DRIVER"}


def timed(command: Sequence[str], environment: Mapping[str, str], cpu: int | None) -> dict:
    """Run a workload that times itself."""
    try:
        done = subprocess.run(
            [*pinned(cpu), *command],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=RUN_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RunError(f"no result within {RUN_SECONDS_MAX:.0f} s") from None
    if done.returncode != 0:
        raise RunError(reason_of(done.stderr) or f"ended with {done.returncode}")
    return json.loads(done.stderr.splitlines()[-1])


def served(
    row: Row, command: Sequence[str], environment: Mapping[str, str], settings: Settings
) -> dict:
    """Start a server, load it, and return the result."""
    cpu = settings.server_cpu if SPREAD.isdisjoint(row.arguments) else None
    with contextlib.ExitStack() as servers:
        pids = []
        for one in sharing(row, [*pinned(cpu), *command]):
            process = servers.enter_context(server(one, environment))
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            if not port:
                raise RunError(reason_of(process.communicate()[1]) or "the server did not start")
            pids.append(process.pid)
        load = [
            *limited(),
            str(paths.LOADGEN),
            *("--addr", f"127.0.0.1:{port}"),
            *("--mode", row.workload),
            *arguments_of(row, tuple(SPREAD)),
            *("--seconds", str(settings.seconds)),
            *("--warmup", str(WARMUP_SECONDS)),
            *(word for pid in pids for word in ("--server-pid", str(pid))),
            *(() if settings.load_cpu is None else ("--cpu", str(settings.load_cpu))),
        ]
        timeout_seconds = settings.seconds * 3 + RUN_SECONDS_MAX / 2
        try:
            done = subprocess.run(
                load, capture_output=True, text=True, timeout=timeout_seconds, check=False
            )
        except subprocess.TimeoutExpired:
            raise RunError(f"no result within {timeout_seconds:.0f} s") from None
    if done.returncode != 0:
        raise RunError(reason_of(done.stderr))
    counted = json.loads(done.stdout)
    if counted["errors"]:
        raise RunError(f"{counted['errors']} connections lost: {counted['first_error']}")
    if not counted["requests"]:
        raise RunError("no request was answered in the measured time")
    if counted["server_busy"] is not None:
        seconds = counted["server_busy"] * counted["seconds"]
        counted["server_cpu_us"] = seconds / counted["requests"] * 1e6
    return {"ops": counted["requests"] * REQUESTS_A_MESSAGE.get(row.name, 1), **counted}


def sharing(row: Row, command: Sequence[str]) -> list[list[str]]:
    """Return the command of each of a row's processes: one, or several that listen on one port."""
    if "--processes" not in row.arguments:
        return [list(command)]
    count = int(row.arguments[row.arguments.index("--processes") + 1])
    # Released before the processes start: they bind with SO_REUSEPORT, which this socket lacks.
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return [[*command, "--port", str(port)]] * count


@contextlib.contextmanager
def server(
    command: Sequence[str], environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[str]]:
    """Start a server; kill it at the end."""
    with subprocess.Popen(
        [*limited(), *command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def pinned(cpu: int | None) -> list[str]:
    """Command prefix that pins a program to one CPU."""
    return [] if cpu is None else ["taskset", "--cpu-list", str(cpu)]


def limited() -> list[str]:
    """Command prefix that raises a program's descriptor limit."""
    return ["prlimit", f"--nofile={DESCRIPTORS}:"]


@contextlib.contextmanager
def input_file() -> Iterator[Path]:
    """Create the file that `cat` reads, in memory and read once."""
    with tempfile.NamedTemporaryFile(prefix="ringloop-bench-") as file:
        block = os.urandom(1024 * 1024)
        for _ in range(CAT_BYTES // len(block)):
            file.write(block)
        file.flush()
        yield Path(file.name)
