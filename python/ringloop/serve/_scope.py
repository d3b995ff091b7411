"""ASGI scopes: what all requests of a server share; native code adds the rest for each request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["address", "place", "target", "template"]

_SPEC_VERSION = "2.4"


def template(
    kind: str,
    extensions: Iterable[str],
    root_path: str,
    server: tuple[str, int],
    state: dict[str, Any],
) -> dict[str, Any]:
    """Make the common part of all scopes of a kind: requests get copies with their own entries.

    None stands for these.
    """
    return {
        "type": kind,
        "asgi": {"version": "3.0", "spec_version": _SPEC_VERSION},
        "http_version": "3",
        "scheme": "https",
        "root_path": root_path,
        "path": None,
        "raw_path": None,
        "query_string": None,
        "headers": None,
        "client": None,
        "server": server,
        "state": state,
        "extensions": dict.fromkeys(extensions),
    }


def place(scope: dict[str, Any]) -> str:
    """Return the client's address for the access log."""
    # A proxy's header may have replaced it.
    client = scope["client"]
    return f"{client[0]}:{client[1]}" if client else ""


def target(scope: dict[str, Any]) -> str:
    """Return path and query for the log: escaped, so that no client breaks its lines."""
    path, query = quote(scope["path"]), scope["query_string"]
    return f"{path}?{query.decode('ascii', 'replace')}" if query else path


def address(of_socket: tuple[Any, ...]) -> tuple[str, int]:
    """Return host and port; IPv4 addresses as such, although the socket is dual-stack."""
    return of_socket[0].removeprefix("::ffff:"), of_socket[1]
