"""The rows of the comparison.

Owns: their names, order and arguments. Called by: `compare`. Never: runs anything.
"""

from comparison.rows import Row, connections_text, size_text

ECHO_SIZES = (64, 1024)
ECHO_CONNECTIONS = (1, 64, 1000)
# As mioco's own benchmark had it: many small requests of a connection in flight at once. A batch of
# them goes out as one message and is awaited as one; the server reads and writes as it likes.
PIPELINED = 64
PIPELINED_SIZE = 64
PIPELINED_CONNECTIONS = (1, 64)

# Name: title, operations of a run and workers. One worker is on one CPU.
SCHEDULING = {
    "spawn": ("spawn and join, one after the other", 100_000, 1),
    "batch": ("spawn 1,000 and join them, again and again", 100_000, 1),
    "yield": ("switch: 100 that yield", 1_000_000, 1),
    "pingpong": ("channel ping-pong", 100_000, 1),
    "lock": ("mutex, 8 that want it, 2 workers", 800_000, 2),
    "held": ("mutex held across a yield, 8 that want it", 100_000, 1),
}
# What runs on every CPU: it has two workers.
UNPINNED = ("lock",)
REQUESTS_A_MESSAGE = {f"pipelined/{count}": PIPELINED for count in PIPELINED_CONNECTIONS}
# The rows whose geometric mean is written: all.
AVERAGED = None
# The other suite's file, which no row reads.
CAT_BYTES = 0


def all_rows() -> list[Row]:
    """Every row, in the order of the tables."""
    rows = [
        Row(name, name, "Scheduling", title, ("--ops", str(ops), "--workers", str(workers)))
        for name, (title, ops, workers) in SCHEDULING.items()
    ]
    for size in ECHO_SIZES:
        for count in ECHO_CONNECTIONS:
            held = ("--connections", str(count), "--size", str(size))
            title = f"{size_text(size)}, {connections_text(count)}"
            rows.append(Row(f"echo/{size}/{count}", "echo", "TCP echo", title, held))
    for count in PIPELINED_CONNECTIONS:
        held = ("--connections", str(count), "--size", str(PIPELINED * PIPELINED_SIZE))
        title = f"{PIPELINED} requests of 64 B as one message, {connections_text(count)}"
        rows.append(Row(f"pipelined/{count}", "echo", "Pipelined TCP echo", title, held))
    return rows
