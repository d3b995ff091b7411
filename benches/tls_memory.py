"""Resident memory of an idle TLS connection on the server's side, by loop.

    .venv-bench/3.14/bin/python benches/tls_memory.py [--loops asyncio,uvloop] [--connections 1000]

Each loop serves `tls_protocol` in its own process. The connections are blocking sockets of this
process; each has a message of `--size` bytes echoed and stays open. The printed figure is the growth of
the server's resident memory after the first 50 connections, divided by the number of the rest.
"""

import argparse
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from workloads.support import certificate

WORKLOADS = Path(__file__).parent / "workloads"
# Connections after which all code is loaded and all pools have reached their size.
FIRST = 50
LOOPS = "asyncio,uvloop,zuvloop,aiofastnet,ringloop-uring,ringloop-epoll"


def main() -> None:
    """Measure each loop and print a table."""
    options = parse_arguments()
    print(f"{options.connections} connections, {options.size} bytes echoed on each")
    for name in options.loops.split(","):
        with certificate.made() as authority, serving(name) as (pid, port):
            context = ssl.create_default_context(cafile=authority)
            cost = bytes_a_connection(pid, port, context, options)
        print(f"{name:<16} {cost / 1024:8.1f} KiB")


@contextmanager
def serving(name: str) -> Iterator[tuple[int, int]]:
    """Start the server; return its process and its port."""
    command = [sys.executable, str(WORKLOADS / "tls_protocol.py"), name, "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.pid, int(server.stdout.readline())
        finally:
            server.kill()


def bytes_a_connection(
    pid: int, port: int, context: ssl.SSLContext, options: argparse.Namespace
) -> float:
    """Open the connections and compare the server's memory before and after."""
    with ExitStack() as open_ones:
        for _ in range(FIRST):
            connect(port, context, options.size, open_ones)
        before = resident_bytes(pid)
        for _ in range(options.connections):
            connect(port, context, options.size, open_ones)
        return (resident_bytes(pid) - before) / options.connections


def connect(port: int, context: ssl.SSLContext, size: int, open_ones: ExitStack) -> None:
    """Open one connection, and echo one message on it."""
    plain = socket.create_connection(("127.0.0.1", port))
    sock = open_ones.enter_context(context.wrap_socket(plain, server_hostname="localhost"))
    message = os.urandom(size)
    # Fits the kernel's buffers in both directions, so no second thread is needed.
    sock.sendall(message)
    received = 0
    while received < size:
        received += len(sock.recv(65536))


def resident_bytes(pid: int) -> int:
    """Read the resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--loops", default=LOOPS, help="[%(default)s]")
    parser.add_argument("--connections", type=int, default=1000, help="[%(default)s]")
    parser.add_argument("--size", type=int, default=100_000, help="[%(default)s]")
    return parser.parse_args()


if __name__ == "__main__":
    main()
