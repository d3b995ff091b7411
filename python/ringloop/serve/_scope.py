"""Scopes of ASGI: what all requests of a server have; native code adds what is a request's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["address", "place", "template"]

_SPEC_VERSION = "2.4"


def template(
    kind: str,
    extensions: Iterable[str],
    root_path: str,
    server: tuple[str, int],
    state: dict[str, Any],
) -> dict[str, Any]:
    """Make what all scopes of a kind have: those of requests are copies, with entries of their own.

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
    """Return the client's address, as the access log has it."""
    # A proxy's header may have replaced it.
    client = scope["client"]
    return f"{client[0]}:{client[1]}" if client else ""


def address(of_socket: tuple[Any, ...]) -> tuple[str, int]:
    """Return host and port; those of IPv4 as such, though the socket is of both families."""
    return of_socket[0].removeprefix("::ffff:"), of_socket[1]
