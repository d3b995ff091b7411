"""HTTP/3 for asyncio: requests and responses on any event loop.

The protocol runs in native code; a request costs one call for its fields and one per part of its body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringloop.h3._alt_svc import AltSvcCache
from ringloop.h3._client import Client, connect, open_client
from ringloop.h3._exchange import Exchange, Request, Response
from ringloop.h3._pool import Pool
from ringloop.h3._priority import Priority
from ringloop.h3._server import Server, serve
from ringloop.h3.errors import MessageError, RequestRejected

if TYPE_CHECKING:
    from ringloop.h3._httpx import HTTPTransport as HTTPTransport

# Without `HTTPTransport`, which needs httpx.
__all__ = [
    "AltSvcCache",
    "Client",
    "Exchange",
    "MessageError",
    "Pool",
    "Priority",
    "Request",
    "RequestRejected",
    "Response",
    "Server",
    "connect",
    "open_client",
    "serve",
]


def __getattr__(name: str) -> Any:
    # httpx, which it is for, is no dependency.
    if name == "HTTPTransport":
        from ringloop.h3._httpx import HTTPTransport  # noqa: PLC0415

        return HTTPTransport
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
