"""The rows of the comparison and the figures of a run.

Owns: names, order, arguments, the figures of each row and their goals. Called by: `compare`.
"""

from collections.abc import Callable

from comparison.figures import Figure, Run
from comparison.rows import Row, size_text

# The reference of the goals.
PEER = "aiopquic"
WRITES = (1024, 4096, 16384)
HANDSHAKES = (1, 128)
DATAGRAMS = (100, 1000)
IDLE = 1000
# The datagram size of the plain UDP rows among the stream rows.
UDP_PAYLOAD = 1400


def rate(counted: str, scale: float) -> Callable[[Run], float | None]:
    """The receiver's count per second of its own clock."""

    def of(run: Run) -> float | None:
        first, last = run["first"], run["last"]
        return (last[counted] - first[counted]) * scale / (last["time_ns"] - first["time_ns"]) * 1e9

    return of


def server_cpu(run: Run) -> float | None:
    """CPU seconds of the receiver per gigabyte."""
    first, last = run["first"], run["last"]
    moved = last["bytes"] - first["bytes"]
    return (last["cpu_ns"] - first["cpu_ns"]) / moved if moved else None


def client_cpu(run: Run) -> float | None:
    """CPU seconds of the sender per gigabyte, in its own measured time."""
    moved = (rate("bytes", 1.0)(run) or 0.0) * run["seconds"]
    return run["cpu_ns"] / moved if moved else None


def arrived(run: Run) -> float | None:
    """Datagrams received, in per cent of those sent, over the whole run."""
    return run["end"]["datagrams"] * 100 / run["sent_total"] if run["sent_total"] else None


def server_memory(run: Run) -> float | None:
    """KiB of server memory per connection."""
    return (run["last"]["rss"] - run["first"]["rss"]) / 1024 / IDLE


FIGURES: dict[str, tuple[Figure, ...]] = {
    "stream": (
        Figure("", "Mbit/s", rate("bytes", 8e-6), goals={PEER: 2.5}),
        Figure("CPU of the receiver", "s/GB", server_cpu, less_is_better=True),
        Figure("CPU of the sender", "s/GB", client_cpu, less_is_better=True),
        Figure(
            "memory of the receiver",
            "MiB",
            lambda run: run["last"].get("rss", 0) / 2**20,
            less_is_better=True,
        ),
    ),
    "handshake": (
        Figure("", "/s", lambda run: run["done"] / run["seconds"], goals={PEER: 2.0}),
        Figure("the server heard of", "/s", rate("handshakes", 1.0)),
    ),
    "request": (
        Figure("p50", "µs", lambda run: run["p50_us"], less_is_better=True, goals={PEER: 0.6}),
        Figure("p99", "µs", lambda run: run["p99_us"], less_is_better=True, goals={PEER: 0.6}),
        Figure("rate", "/s", lambda run: run["done"] / run["seconds"]),
    ),
    "pingpong": (
        Figure("p50", "µs", lambda run: run["p50_us"], less_is_better=True, goals={PEER: 0.6}),
        Figure("p99", "µs", lambda run: run["p99_us"], less_is_better=True, goals={PEER: 0.6}),
        Figure("rate", "/s", lambda run: run["done"] / run["seconds"]),
    ),
    "churn": (
        Figure("streams", "/s", lambda run: run["done"] / run["seconds"], goals={PEER: 2.0}),
        Figure("p99", "µs", lambda run: run["p99_us"], less_is_better=True),
    ),
    "datagram": (
        Figure("received", "/s", rate("datagrams", 1.0), goals={PEER: 2.0}),
        Figure("arrived", "%", arrived),
        Figure(
            "memory of the receiver",
            "MiB",
            lambda run: run["last"].get("rss", 0) / 2**20,
            less_is_better=True,
        ),
    ),
    "idle": (
        Figure("server", "KiB", server_memory, less_is_better=True, goals={PEER: 1.0}),
        Figure("client", "KiB", lambda run: run["client_rss"] / 1024 / IDLE, less_is_better=True),
    ),
}


def all_rows() -> list[Row]:
    """Every row, in the order of the tables; the argument is the workload's SIZE."""
    rows = [
        Row(
            f"stream/{size}",
            "stream",
            "One stream",
            f"writes of {size_text(size)}",
            (str(size),),
            has_floor=True,
        )
        for size in WRITES
    ]
    rows += [
        Row(f"handshake/{count}", "handshake", "Handshakes", f"{count} in flight", (str(count),))
        for count in HANDSHAKES
    ]
    rows += [
        Row("request/64", "request", "Request and answer", "64 B, a new stream each", ("64",)),
        Row("pingpong/64", "pingpong", "Request and answer", "64 B, one open stream", ("64",)),
        Row("churn/1024", "churn", "Churn", "1 KiB sent back, 100 streams in flight", ("1024",)),
    ]
    rows += [
        Row(
            f"datagram/{size}",
            "datagram",
            "Datagrams",
            size_text(size),
            (str(size),),
            has_floor=True,
        )
        for size in DATAGRAMS
    ]
    rows.append(
        Row("idle/1000", "idle", "Memory", f"a connection of {IDLE:,} idle ones", (str(IDLE),))
    )
    return rows
