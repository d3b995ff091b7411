"""The checks, one file per topic; importing this package declares them all, in the table's order."""

from tests.compatibility.rows import (
    connections,
    debugging,
    introspection,
    lifecycle,
    processes,
    scheduling,
    servers,
    sockets,
    tls,
)

__all__ = [
    "connections",
    "debugging",
    "introspection",
    "lifecycle",
    "processes",
    "scheduling",
    "servers",
    "sockets",
    "tls",
]
