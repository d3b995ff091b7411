"""A server's settings: addresses, certificates, limits. Refuses invalid ones by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ringloop._arguments import check_bools

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Address", "Application", "Path", "Settings", "checked_workers", "parse_address"]

Path: TypeAlias = str | PathLike[str]
Address: TypeAlias = tuple[str, int]
"""A host, "" for all addresses, and a port, 0 for one that the system chooses."""

_Receive: TypeAlias = Callable[[], Awaitable[Any]]
_Send: TypeAlias = Callable[[Any], Awaitable[None]]
Application: TypeAlias = Callable[[dict[str, Any], _Receive, _Send], Awaitable[object]]
"""An application of ASGI 3."""

_PORT_MAX = 65535
_WORKERS_MAX = 256


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How an application is served. Numbers out of range raise ValueError."""

    certificate: Path
    """The certificate and its chain: a PEM file, leaf first."""
    private_key: Path
    """Its key (RSA, ECDSA or Ed25519): a PEM file without a password."""
    sni: Mapping[str, tuple[Path, Path]] = field(default_factory=dict)
    """Certificates and keys by the name that a client requests; others get `certificate`."""
    bind: Address | None = ("127.0.0.1", 8443)
    """Where HTTP/1.1 and WebSocket are served, over TLS; None: nowhere."""
    quic_bind: Address | None = None
    """Where HTTP/3 is served; None: at the host and port of `bind`."""
    root_path: str = ""
    """The path prefix under which a proxy serves the application (`root_path` of ASGI)."""
    lifespan: Literal["auto", "on", "off"] = "auto"
    """Whether the application gets lifespan events; "auto": unless it raises at start-up."""
    access_log: bool = True
    """Whether each request is logged, with its protocol, on `uvicorn.access`."""
    alt_svc_seconds: int = 86400
    """How long clients may remember HTTP/3 (RFC 7838); 0: not advertised."""
    alt_svc_port: int = 0
    """The port of HTTP/3 that clients see, if a router translates it; 0: that of the socket."""
    graceful_seconds: int = 30
    """How long open requests may take at shutdown."""
    websocket_bytes_max: int = 16 << 20
    """Bytes of a WebSocket message, decompressed."""
    quic: Mapping[str, Any] = field(default_factory=dict)
    """Further keywords of `ringloop.h3.serve`, such as `retry` and `max_connections`."""

    def __post_init__(self) -> None:
        for name in ("alt_svc_seconds", "graceful_seconds"):
            _check(name, getattr(self, name), 0, 10 * 366 * 86400)
        check_bools(access_log=self.access_log)
        _check("alt_svc_port", self.alt_svc_port, 0, _PORT_MAX)
        _check("websocket_bytes_max", self.websocket_bytes_max, 1, 1 << 40)
        if self.bind is None and self.quic_bind is None:
            raise ValueError("bind and quic_bind are None: nothing is served; give one of them")
        for name, address in (("bind", self.bind), ("quic_bind", self.quic_bind)):
            if address is not None:
                _check(f"the port of {name}", address[1], 0, _PORT_MAX)
        if self.root_path and (not self.root_path.startswith("/") or self.root_path.endswith("/")):
            raise ValueError(
                f"root_path is {self.root_path!r}: it begins with a slash and does not end with one"
            )


def checked_workers(count: int) -> int:
    """Return a number of workers: 1 to 256."""
    _check("workers", count, 1, _WORKERS_MAX)
    return count


def _check(name: str, value: int, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {value!r}: give a whole number, {least} to {most}")
    if not least <= value <= most:
        raise ValueError(f"{name} is {value}: {least} to {most}")


def parse_address(text: str) -> Address:
    """Read `host:port`, `[::1]:port`, `:port` (all addresses) or a port alone.

    ValueError: none of these.
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: an address of IPv6 stands in brackets, as in [::1]:8443")
    if not (port.isascii() and port.isdigit()) or int(port) > _PORT_MAX:
        raise ValueError(f"{text!r}: give HOST:PORT with a port of 0 to {_PORT_MAX}")
    return (host if colon else "", int(port))
