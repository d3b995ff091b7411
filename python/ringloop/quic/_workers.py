"""Several servers at one address, each with its own loop: in threads or in processes.

Owns: the sockets that share the address, and the worker number in connection ids. Called by: programs
before they start their workers. Never does: start them.

The kernel gives each datagram to the worker whose number its connection id names, so connections
stay with their worker when clients migrate (RFC 9000 §9); without that a client that migrates, or whose
NAT rebinds, could reach any of them.
"""

from __future__ import annotations

import operator
import secrets
import socket
from dataclasses import dataclass
from typing import Self

from ringloop._native import quic as _quic
from ringloop.quic._driver import bind

__all__ = ["Worker", "bind_workers"]


@dataclass(frozen=True)
class Worker:
    """One of several workers: `serve(worker=…)` in its thread or process.

    Can be passed unchanged to a forked process. A process closes the other processes' workers.
    """

    sock: socket.socket
    number: int
    count: int
    key: int

    def close(self) -> None:
        """Close the socket, if another process serves it."""
        self.sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def bind_workers(host: str | None = None, port: int = 0, *, count: int) -> list[Worker]:
    """Bind the sockets of `count` workers (1 to 256) to one address; port 0: the system chooses it.

    `host` is as for `serve`, except that a name is looked up immediately, in this thread.

    All of them have to be served: data for a worker that does not run is lost. Workers that
    should resume each other's sessions take `ServerConfig`s with the same `sessions` directory (in
    one process: the same `ServerConfig`) and the same `token_secret`.
    """
    if isinstance(count, bool) or not hasattr(count, "__index__"):
        raise TypeError(f"count is {count!r}: give a whole number, 1 to 256")
    if not 1 <= (count := operator.index(count)) <= 256:  # noqa: PLR2004
        raise ValueError(f"count is {count}: 1 to 256 workers")
    if host is not None:
        host = _numeric(host)
    sockets: list[socket.socket] = []
    try:
        for _ in range(count):
            sockets.append(bind(host, port, reuse_port=True))
            port = sockets[0].getsockname()[1]
        _quic.steer(sockets[0].fileno(), count)
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
    key = secrets.randbits(64)
    return [Worker(sock, number, count, key) for number, sock in enumerate(sockets)]


def _numeric(host: str) -> str | None:
    """Return the first address of a name, with its zone; `None` for no host, which means all."""
    if not isinstance(host, str):
        raise TypeError(f"host must be one name or address, not {host!r}")
    if not host:
        return None
    found = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE)
    first, _, *rest = found[0][4]
    return f"{first}%{rest[1]}" if rest and rest[1] else str(first)
