"""The served part of a workload: a server process on one CPU, the load generator on another.

Owns: the two processes of a run, and the JSON line. Called by: the server workloads.
Makes no load in Python.

The same script plays both parts. Without `--serve` it starts itself again as the server (or starts
a floor program instead), runs the load generator against it and prints what that counted.
"""

import argparse
import contextlib
import gc
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

from support import certificate
from support.loops import FACTORIES, new_loop, pin_to_cpu

# Starts serving and returns the free port of 127.0.0.1, or `unix:` and the path of the Unix socket, in
# a folder that is removed after the run.
Serve = Callable[[], Coroutine[None, None, int | str]]
UNIX = "unix:"

START_TIMEOUT_SECONDS = 20.0
STOP_TIMEOUT_SECONDS = 5.0


def measure(serve: Serve, load: str = "echo") -> None:
    """Run the part that the command line asks for; `load` is the load generator's mode."""
    options = parse_arguments()
    if options.serve:
        run_server(serve, options)
    else:
        sys.stdout.write(json.dumps(run_load(load, options)) + "\n")


def run_server(serve: Serve, options: argparse.Namespace) -> None:
    """Serve until killed; the address is the first line printed."""
    loop = new_loop(options.loop)
    if options.gc == "off":
        gc.disable()

    async def forever() -> None:
        address = await serve()
        sys.stdout.write(f"{address}\n")
        sys.stdout.flush()
        await loop.create_future()

    loop.run_until_complete(forever())


def run_load(mode: str, options: argparse.Namespace) -> dict[str, object]:
    """Start the server, load it, and return the result."""
    if not mode.startswith("tls-"):
        return loaded(mode, options)
    with certificate.made() as authority:
        return loaded(mode, options, "--authority", str(authority))


def loaded(mode: str, options: argparse.Namespace, *more: str) -> dict[str, object]:
    """Start a server and load it, with `more` options for the load generator."""
    with running_server(options) as server, served(first_line(server)) as address:
        command = [
            options.loadgen,
            *("--addr", address),
            *("--mode", mode),
            *("--connections", str(options.connections)),
            *("--size", str(options.size)),
            *("--segments", str(options.segments)),
            *("--seconds", str(options.seconds)),
            *("--warmup", str(options.warmup)),
            *("--server-pid", str(server.pid)),
            *(("--cpu", str(options.load_cpu)) if options.load_cpu is not None else ()),
            *more,
        ]
        load = subprocess.run(command, capture_output=True, text=True, check=False)
        if load.returncode != 0:
            fail(server, load.stderr)
        counted: dict[str, Any] = json.loads(load.stdout)
        if counted["errors"]:
            fail(server, f"{counted['errors']} connections lost: {counted['first_error']}")
        if not counted["requests"]:
            fail(server, "no request was answered in the measured time")
    if counted["server_busy"] is not None:
        server_seconds = counted["server_busy"] * counted["seconds"]
        counted["server_cpu_us"] = server_seconds / counted["requests"] * 1e6
    return {"loop": options.loop, "ops": counted["requests"], "gc": options.gc, **counted}


@contextlib.contextmanager
def running_server(options: argparse.Namespace) -> Iterator[subprocess.Popen[str]]:
    """Start the server process, on this process's CPU; kill it at the end."""
    pin_to_cpu(options.cpu)
    itself = [sys.executable, *sys.argv, "--serve"]
    command = [str(options.floor)] if options.floor else itself
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            yield server
        finally:
            server.kill()


@contextlib.contextmanager
def served(told: str) -> Iterator[str]:
    """The address for the load generator; remove the folder of a Unix socket at the end."""
    if not told.startswith(UNIX):
        yield f"127.0.0.1:{told}"
        return
    try:
        yield told
    finally:
        shutil.rmtree(Path(told.removeprefix(UNIX)).parent)


def first_line(server: subprocess.Popen[str]) -> str:
    """Wait for the address that the server prints when it listens."""
    assert server.stdout is not None
    line = server.stdout.readline().strip()
    if not line:
        fail(server, "the server did not start")
    return line


def fail(server: subprocess.Popen[str], reason: str) -> None:
    """Exit with a reason, preceded by the server's output: that is more often the cause."""
    if server.poll() is None:
        server.terminate()
    try:
        _, said = server.communicate(timeout=STOP_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        _, said = server.communicate()
    code = server.returncode
    if code < 0 and code not in {-signal.SIGTERM, -signal.SIGKILL}:
        reason = f"the server died of {signal.Signals(-code).name}; {reason}"
    sys.exit(f"{said.strip()}\n{reason.strip()}".strip())


def parse_arguments() -> argparse.Namespace:
    """Parse the arguments that all server workloads share."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("loop", choices=[*FACTORIES, "floor"])
    parser.add_argument("--size", type=int, default=1024, help="message bytes [%(default)s]")
    parser.add_argument("--segments", type=int, default=1, help="udp-flood [%(default)s]")
    parser.add_argument("--connections", type=int, default=32, help="[%(default)s]")
    parser.add_argument("--seconds", type=float, default=1.0, help="[%(default)s]")
    parser.add_argument("--warmup", type=float, default=0.3, help="[%(default)s]")
    parser.add_argument("--cpu", type=int, help="run the server on this CPU only")
    parser.add_argument("--load-cpu", type=int, help="run the load generator on this CPU only")
    parser.add_argument("--gc", choices=["on", "off"], default="on", help="[%(default)s]")
    parser.add_argument("--loadgen", default="target/release/loadgen", help="[%(default)s]")
    parser.add_argument("--floor", type=Path, help="loop `floor`: the program that serves")
    parser.add_argument("--serve", action="store_true", help="be the server (used internally)")
    return parser.parse_args()
