"""Scopes of ASGI, made of requests of HTTP/3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from ringloop.h3 import Request

__all__ = ["address", "made", "place"]

_SPEC_VERSION = "2.4"


def made(
    request: Request,
    kind: str,
    root_path: str,
    server: tuple[str, int],
    state: dict[str, Any],
) -> dict[str, Any]:
    """Make the scope of a request to `server`: what all kinds have.

    As uvicorn's: `path` is decoded and begins with `root_path`, `raw_path` is not decoded.
    """
    raw, _, query = (request.path or "").partition("?")
    return {
        "type": kind,
        "asgi": {"version": "3.0", "spec_version": _SPEC_VERSION},
        "http_version": "3",
        "scheme": "https",
        "root_path": root_path,
        "path": root_path + (unquote(raw) if "%" in raw else raw),
        "raw_path": (root_path + raw).encode(),
        "query_string": query.encode(),
        "headers": _headers(request),
        "client": address(request.connection.remote_address),
        "server": server,
        "state": state.copy(),
        "extensions": {},
    }


def place(scope: dict[str, Any]) -> str:
    """Return the client's address, as the access log has it."""
    # A proxy's header may have replaced it.
    client = scope["client"]
    return f"{client[0]}:{client[1]}" if client else ""


def address(of_socket: tuple[Any, ...]) -> tuple[str, int]:
    """Return host and port; those of IPv4 as such, though the socket is of both families."""
    return of_socket[0].removeprefix("::ffff:"), of_socket[1]


def _headers(request: Request) -> list[tuple[bytes, bytes]]:
    """Return the fields with `host` first, from `:authority`, and one cookie (RFC 9114 §4.2.1)."""
    fields = request.headers or []
    cookies = [value for name, value in fields if name == b"cookie"]
    if len(cookies) > 1:
        fields = [pair for pair in fields if pair[0] != b"cookie"]
        fields.append((b"cookie", b"; ".join(cookies)))
    if request.authority is None:
        return fields
    host = (b"host", request.authority.encode())
    return [host, *(pair for pair in fields if pair[0] != b"host")]
