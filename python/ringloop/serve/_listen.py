"""Sockets of a server: one listening for TCP, and a UDP socket for each worker."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringloop.quic import bind_workers
from ringloop.quic._driver import bind

if TYPE_CHECKING:
    from ringloop.quic import Worker
    from ringloop.serve._settings import Address, Settings

__all__ = ["Listeners", "bound"]

_BACKLOG = 2048


@dataclass(frozen=True)
class Listeners:
    """The sockets of one worker."""

    tcp: socket.socket | None
    """Shared by all workers; each has its own descriptor."""
    quic: socket.socket
    worker: Worker | None
    """The worker of several."""

    def close(self) -> None:
        """Close them, if another process serves them."""
        self.quic.close()
        if self.tcp is not None:
            self.tcp.close()

    def again(self) -> Listeners:
        """Return the same sockets with their own descriptors."""
        tcp = None if self.tcp is None else self.tcp.dup()
        quic = self.quic.dup()
        quic.setblocking(False)
        worker = None if self.worker is None else _with_socket(self.worker, quic)
        return Listeners(tcp, quic, worker)


def _with_socket(worker: Worker, sock: socket.socket) -> Worker:
    return type(worker)(sock, worker.number, worker.count, worker.key)


def bound(settings: Settings, count: int = 1) -> list[Listeners]:
    """Bind the sockets of `count` workers.

    OSError: an address is in use or not this machine's, or a name is not found.
    """
    tcp = None if settings.bind is None else _listening(settings.bind)
    try:
        address = settings.quic_bind
        if address is None:
            assert settings.bind is not None and tcp is not None, "checked by the settings"  # noqa: S101, PT018
            address = (settings.bind[0], tcp.getsockname()[1])
        return _with_quic(tcp, address, count)
    except BaseException:
        if tcp is not None:
            tcp.close()
        raise


def _with_quic(tcp: socket.socket | None, address: Address, count: int) -> list[Listeners]:
    host, port = address
    try:
        if count == 1:
            return [Listeners(tcp, bind(_numeric(host), port), None)]
        workers = bind_workers(_numeric(host), port, count=count)
    except OSError as error:
        raise _told(error, f"UDP {host or '*'}:{port}") from error
    tcps = [tcp, *(None if tcp is None else tcp.dup() for _ in workers[1:])]
    return [Listeners(tcp, worker.sock, worker) for tcp, worker in zip(tcps, workers, strict=True)]


def _listening(address: Address) -> socket.socket:
    """Return a socket that listens; at both families' addresses where the host is ""."""
    host, port = address
    try:
        numeric = _numeric(host)
        if numeric is None:
            family, dual = socket.AF_INET6, True
        else:
            family, dual = (socket.AF_INET6 if ":" in numeric else socket.AF_INET), False
        sock = socket.create_server(
            (numeric or "", port), family=family, backlog=_BACKLOG, dualstack_ipv6=dual
        )
    except OSError as error:
        raise _told(error, f"TCP {host or '*'}:{port}") from error
    sock.setblocking(False)
    return sock


def _numeric(host: str) -> str | None:
    """Return the first address of a name; None for all addresses."""
    if not host:
        return None
    found = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE)
    return str(found[0][4][0])


def _told(error: OSError, where: str) -> OSError:
    """Return the error with the address that it is about."""
    return type(error)(error.errno, f"{error.strerror or error} ({where})")
