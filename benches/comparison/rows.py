"""The rows of the comparison: one workload with its arguments each.

Owns: their names and order. Called by: `compare`, `measuring`.
"""

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SCHEDULING = {
    "callbacks_batch": "callbacks, pre-scheduled batch",
    "ready_chain": "ready chain",
    "ready_chain_idle": "ready chain beside 250 idle connections",
    "tasks": "tasks, gathered in batches",
    "sleep_zero": "sleep(0)",
    "timers": "timers, completed and cancelled",
    "timeouts": "time-outs not reached",
    "threadsafe": "call_soon_threadsafe",
    "executor": "run_in_executor",
    "queue_ping_pong": "queue ping-pong",
}
PROCESSES = {
    "process_spawn": "children started and waited for",
    "process_pipe": "MiB through children, 12 at once",
}
CONNECTING = {
    "connect_protocol": "opened and closed, by protocol",
    "connect_streams": "opened and closed, by streams",
}
ECHO = {
    "tcp_protocol": "TCP echo by protocol",
    "tcp_buffered": "TCP echo by buffered protocol",
    "tcp_streams": "TCP echo by streams",
    "tcp_fast_streams": "TCP echo by ringloop's fast streams, others by streams",
}
# Echo of one size, without a floor.
SMALL_ECHO = {
    "tcp_sock": "TCP echo by sock_recv and sock_sendall",
    "unix_protocol": "Unix echo by protocol",
}
SMALL_ECHO_SIZE = 1024
TCP_ACCEPTS = {"tcp_accept": "TCP connections accepted"}
TLS_ECHO = {
    "tls_protocol": "TLS echo by protocol",
    "tls_streams": "TLS echo by streams",
    "tls_fast_streams": "TLS echo by ringloop's fast streams, others by streams",
}
TLS_HANDSHAKES = {"tls_handshakes": "TLS connections"}
UDP_ECHO_CONNECTIONS = (1, 32)
UDP_ECHO_SIZE = 64
# Bytes of a datagram, and datagrams per GSO message.
UDP_FLOODS = ((64, 1), (1200, 1), (1200, 40))
# Workloads without a load generator other than the scheduling ones.
UDP_SENDS = {"udp_send": "bursts of 64, 1200 B"}
HTTP = {
    "uvicorn_plaintext": "uvicorn plaintext",
    "fastapi_json": "FastAPI under uvicorn, JSON",
    "aiohttp_json": "aiohttp, JSON",
}
PACKAGES = {
    "websockets_echo": "messages echoed by websockets, both ends",
    "redis_get": "values read from Redis by redis-py",
    "asyncpg_select": "rows selected from PostgreSQL by asyncpg",
}

SIZES = (64, 1024, 10 * 1024, 100 * 1024, 1024 * 1024)
CONNECTIONS = (1, 32, 256)
# Sizes that show the cost per record, of a whole record, and the cost per byte.
TLS_SIZES = (1024, 16 * 1024, 100 * 1024)
TLS_CONNECTIONS_MAX = 32


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    name: str
    workload: str
    group: str
    title: str
    arguments: tuple[str, ...] = ()
    has_floor: bool = False

    @property
    def is_tls(self) -> bool:
        """Whether it uses TLS."""
        return self.workload in TLS_ECHO or self.workload in TLS_HANDSHAKES

    @property
    def is_served(self) -> bool:
        """Whether it has a server and a load generator."""
        return self.workload not in SCHEDULING | PROCESSES | CONNECTING | UDP_SENDS | PACKAGES


def all_rows(sizes: Iterable[int], connections: Sequence[int]) -> list[Row]:
    """Every row, in the order of the tables."""
    rows = [Row(name, name, "Scheduling", title) for name, title in SCHEDULING.items()]
    rows += [Row(name, name, "Child processes", title) for name, title in PROCESSES.items()]
    rows += [Row(name, name, "Connections", title) for name, title in CONNECTING.items()]
    sizes = tuple(sizes)
    for workload, group in ECHO.items():
        for size in sizes:
            for count in connections:
                arguments = ("--size", str(size), "--connections", str(count))
                name = f"{workload}/{size}/{count}"
                title = f"{size_text(size)}, {connections_text(count)}"
                rows.append(Row(name, workload, group, title, arguments, has_floor=True))
    rows += small_echo_rows(connections)
    rows += udp_rows()
    for workload, group in TLS_ECHO.items():
        for size in tls_sizes(sizes):
            for count in (count for count in connections if count <= TLS_CONNECTIONS_MAX):
                arguments = ("--size", str(size), "--connections", str(count))
                title = f"{size_text(size)}, {connections_text(count)}"
                rows.append(Row(f"{workload}/{size}/{count}", workload, group, title, arguments))
    for workload, group in (TCP_ACCEPTS | TLS_HANDSHAKES | HTTP).items():
        for count in connections:
            held = ("--connections", str(count))
            title = connections_text(count)
            rows.append(Row(f"{workload}/{count}", workload, group, title, held))
    rows += [Row(name, name, "Clients and WebSocket", title) for name, title in PACKAGES.items()]
    return rows


def small_echo_rows(connections: Sequence[int]) -> list[Row]:
    """The echo rows of one size."""
    rows = []
    for workload, group in SMALL_ECHO.items():
        for count in connections:
            arguments = ("--size", str(SMALL_ECHO_SIZE), "--connections", str(count))
            name = f"{workload}/{SMALL_ECHO_SIZE}/{count}"
            title = f"{size_text(SMALL_ECHO_SIZE)}, {connections_text(count)}"
            rows.append(Row(name, workload, group, title, arguments))
    return rows


def tls_sizes(sizes: Sequence[int]) -> list[int]:
    """The sizes of the TLS rows: all of them, if the sizes asked for reach as far."""
    return [size for size in TLS_SIZES if min(sizes) <= size <= max(sizes)]


def udp_rows() -> list[Row]:
    """The datagram rows."""
    rows = []
    for count in UDP_ECHO_CONNECTIONS:
        arguments = ("--size", str(UDP_ECHO_SIZE), "--connections", str(count))
        title = f"{size_text(UDP_ECHO_SIZE)}, {count} in flight"
        name = f"udp_echo/{UDP_ECHO_SIZE}/{count}"
        rows.append(Row(name, "udp_echo", "UDP echo", title, arguments))
    for size, segments in UDP_FLOODS:
        arguments = ("--size", str(size), "--segments", str(segments))
        trains = f", trains of {segments}" if segments > 1 else ""
        title = f"{size_text(size)}{trains}"
        name = f"udp_flood/{size}/{segments}"
        rows.append(Row(name, "udp_flood", "UDP received in a flood", title, arguments))
    rows += [Row(name, name, "UDP sent", title) for name, title in UDP_SENDS.items()]
    return rows


def size_text(size: int) -> str:
    """Format a size for people."""
    for unit, name in ((1024 * 1024, "MiB"), (1024, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def connections_text(count: int) -> str:
    """Format a number of connections for people."""
    return "1 connection" if count == 1 else f"{count} connections"


def selected(rows: Iterable[Row], patterns: Sequence[str]) -> list[Row]:
    """The rows whose name, or workload, matches one of the patterns; all without patterns."""
    return [
        row
        for row in rows
        if not patterns
        or any(
            fnmatch.fnmatch(row.name, pattern) or fnmatch.fnmatch(row.workload, pattern)
            for pattern in patterns
        )
    ]
