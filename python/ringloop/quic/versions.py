"""Details of this installation for a bug report: `python -m ringloop.quic versions`."""

from __future__ import annotations

import os
import platform
import socket
import sys
from importlib import metadata

from ringloop import __version__, _system
from ringloop._native import quic as _quic

__all__ = ["report"]

_BESIDE = ("aioquic", "qh3", "aiopquic", "uvloop", "cryptography")


def report() -> list[tuple[str, str]]:
    """Return names and values, in printing order."""
    found = [
        ("ringloop", __version__),
        ("QUIC engine", _quic.engine_versions()),
        ("QUIC versions", "1 (RFC 9000), 2 (RFC 9369)"),
        ("Python", f"{sys.version.split()[0]} {sys.implementation.name} ({_locking()})"),
        ("platform", f"{platform.system()} {platform.release()} {platform.machine()}"),
        ("processors", f"{_system.usable_processors()} of {os.cpu_count()}"),
        ("UDP", ", ".join(_udp())),
    ]
    for name in _BESIDE:
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    found += [(name, os.environ[name]) for name in ("SSLKEYLOGFILE",) if name in os.environ]
    return found


def _locking() -> str:
    is_enabled = getattr(sys, "_is_gil_enabled", lambda: True)
    return "with the interpreter lock" if is_enabled() else "free-threaded"


def _udp() -> list[str]:
    """Describe the kernel's support for datagram batches."""
    segment, gro = 103, 104  # UDP_SEGMENT, UDP_GRO: udp(7)
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for name, option, value in (("GSO", segment, 1200), ("GRO", gro, 1)):
            try:
                sock.setsockopt(socket.IPPROTO_UDP, option, value)
            except OSError:
                found.append(f"no {name}")
            else:
                found.append(name)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        granted = sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
    found.append(f"receive buffer {granted >> 10} KiB of 4096 requested")
    return found
