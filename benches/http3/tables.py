"""The rows of the comparison and the figures of a run.

Owns: names, order, arguments, the figures of each row and their goals. Called by: `compare`.
"""

from collections.abc import Callable

from comparison.figures import Figure, Run
from comparison.rows import Row

# What the goals refer to.
PEREGRINE = "peregrine"
HYPERCORN = "hypercorn"
AIOPQUIC = "aiopquic"
STREAMS = "QUIC streams"

DATAGRAMS = (100, 1000)
SESSIONS_IN_FLIGHT = 8


def rate(counted: str, scale: float = 1.0) -> Callable[[Run], float | None]:
    """A count of the run per second."""
    return lambda run: run[counted] * scale / run["seconds"]


def cpu(counted: str, scale: float) -> Callable[[Run], float | None]:
    """The server's CPU time per operation or byte."""
    return lambda run: run["server_cpu_s"] * scale / run[counted] if run[counted] else None


def client_cpu(counted: str, scale: float) -> Callable[[Run], float | None]:
    """The load generator's CPU time per operation or byte; it bounds the rates of all servers."""
    return lambda run: run["client_cpu_s"] * scale / run[counted] if run[counted] else None


def latency(name: str) -> Callable[[Run], float | None]:
    """A percentile of the client's latencies, in microseconds."""
    return lambda run: run[name] or None


def arrived(run: Run) -> float | None:
    """Datagrams received, in per cent of those sent."""
    return run["operations"] * 100 / run["sent"] if run["sent"] else None


REQUESTS = (
    Figure("", "/s", rate("operations"), goals={PEREGRINE: 2.0, HYPERCORN: 10.0}),
    Figure(
        "CPU of the server",
        "µs",
        cpu("operations", 1e6),
        less_is_better=True,
        goals={PEREGRINE: 0.5, HYPERCORN: 0.1},
    ),
    Figure("CPU of the client", "µs", client_cpu("operations", 1e6), less_is_better=True),
    Figure("p50", "µs", latency("p50_us"), less_is_better=True),
    Figure("p99", "µs", latency("p99_us"), less_is_better=True),
)
SERIAL = (
    Figure("p50", "µs", latency("p50_us"), less_is_better=True, goals={PEREGRINE: 1.0}),
    Figure("p99", "µs", latency("p99_us"), less_is_better=True, goals={PEREGRINE: 1.0}),
    Figure("rate", "/s", rate("operations")),
    Figure("CPU of the server", "µs", cpu("operations", 1e6), less_is_better=True),
)
SESSIONS = (
    Figure("", "/s", rate("operations"), goals={AIOPQUIC: 1.0}),
    Figure("CPU of the server", "µs", cpu("operations", 1e6), less_is_better=True),
    Figure("p99", "µs", latency("p99_us"), less_is_better=True),
)
RECEIVED = (
    Figure("received", "/s", rate("operations"), goals={AIOPQUIC: 1.0}),
    Figure("arrived", "%", arrived),
    Figure("CPU of the server", "µs", cpu("operations", 1e6), less_is_better=True),
)


def bulk(goals: dict[str, float]) -> tuple[Figure, ...]:
    """The figures of a row of bulk data."""
    return (
        Figure("", "Mbit/s", rate("bytes", 8e-6), goals=goals),
        Figure("CPU of the server", "s/GB", cpu("bytes", 1e9), less_is_better=True),
        Figure("CPU of the client", "s/GB", client_cpu("bytes", 1e9), less_is_better=True),
    )


# By the workload's name, which is the load generator's.
FIGURES: dict[str, tuple[Figure, ...]] = {
    "requests": REQUESTS,
    "serial": SERIAL,
    "download": bulk({PEREGRINE: 1.0, STREAMS: 0.5}),
    "upload": bulk({PEREGRINE: 1.0, STREAMS: 0.5}),
    "wt-sessions": SESSIONS,
    "wt-download": bulk({AIOPQUIC: 2.5, STREAMS: 0.5}),
    "wt-upload": bulk({AIOPQUIC: 2.5, STREAMS: 0.5}),
    "wt-datagrams": RECEIVED,
}


def all_rows() -> list[Row]:
    """Every row, in the order of the tables; the argument is the workload's SIZE."""
    return [
        Row(
            "requests/8x32",
            "requests",
            "Requests",
            "8 connections, 32 in flight on each",
            ("8x32",),
        ),
        Row("serial/1x1", "serial", "Requests, one at a time", "1 connection", ("1x1",)),
        Row("download/16M", "download", "Bodies", "responses of 16 MiB", ("1",)),
        Row("upload/4M", "upload", "Bodies", "requests of 4 MiB", ("1",)),
        Row(
            f"wt-sessions/{SESSIONS_IN_FLIGHT}",
            "wt-sessions",
            "WebTransport sessions, a connection each",
            f"{SESSIONS_IN_FLIGHT} in flight",
            (str(SESSIONS_IN_FLIGHT),),
        ),
        Row("wt-download/16M", "wt-download", "WebTransport streams", "16 MiB down", ("1",)),
        Row("wt-upload/4M", "wt-upload", "WebTransport streams", "4 MiB up", ("1",)),
        *(
            Row(
                f"wt-datagrams/{size}",
                "wt-datagrams",
                "WebTransport datagrams",
                f"{size} B up",
                (str(size),),
            )
            for size in DATAGRAMS
        ),
    ]
