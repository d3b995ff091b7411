"""The rows of the comparison.

Owns: their names, order and arguments. Called by: `compare`.
"""

from comparison.rows import Row, connections_text, size_text

ECHO_SIZES = (64, 1024, 16 * 1024, 100 * 1024)
ECHO_CONNECTIONS = (1, 64, 1000)
HTTP_CONNECTIONS = (1, 1000)
WORKERS = (1, 2)
PROCESSES = 2

# Not pinned: these use threads of their own.
UNPINNED = ("wake", "cat")
# Requests per message, by row name, if one message of the load stands for several.
REQUESTS_A_MESSAGE: dict[str, int] = {}

# Name: title and number of operations. All on one CPU, except the thread that wakes.
EXECUTOR = {
    "spawn": ("spawn and join 1M tasks", 1_000_000),
    "wake": ("wake from another thread, round trips", 20_000),
    "timers": ("1M timers, one half cancelled", 1_000_000),
    "pingpong": ("channel ping-pong", 1_000_000),
}
# The rows of the geometric mean; `None`: all.
AVERAGED: tuple[str, ...] | None = tuple(EXECUTOR)
CAT_BYTES = 100 * 1024 * 1024


def all_rows() -> list[Row]:
    """Every row, in the order of the tables."""
    rows = [
        Row(name, name, "Executor", title, ("--ops", str(ops)))
        for name, (title, ops) in EXECUTOR.items()
    ]
    rows.append(Row("cat", "cat", "Files", "cat of 100 MiB"))
    for count in HTTP_CONNECTIONS:
        title = f"HTTP, {connections_text(count)}"
        rows.append(Row(f"http/{count}", "http", "HTTP", title, ("--connections", str(count))))
    for size in ECHO_SIZES:
        for count in ECHO_CONNECTIONS:
            held = ("--connections", str(count), "--size", str(size))
            title = f"{size_text(size)}, {connections_text(count)}"
            name = f"echo/{size}/{count}"
            rows.append(Row(name, "echo", "TCP echo", title, held, has_floor=True))
    # Judged by CPU time per request: with two CPUs the load generator shares one with a worker.
    for count in WORKERS:
        held = ("--connections", "256", "--size", "1024", "--workers", str(count))
        title = f"1 KiB, 256 connections, {count} worker{'s' if count > 1 else ''}"
        rows.append(Row(f"workers/{count}", "echo", "Workers, on every CPU", title, held))
    # The same in processes that share only the port: the cost that the machine itself adds.
    held = ("--connections", "256", "--size", "1024", "--processes", str(PROCESSES))
    title = f"1 KiB, 256 connections, {PROCESSES} processes of 1 worker"
    rows.append(Row(f"workers/{PROCESSES}x1", "echo", "Workers, on every CPU", title, held))
    return rows
