"""HTTP/3 for asyncio: requests and responses on any event loop.

The protocol runs in native code; a request costs a call for its fields and one a part of its body.
"""

from __future__ import annotations

from ringloop.h3._client import Client, connect, open_client
from ringloop.h3._exchange import Exchange, Request, Response
from ringloop.h3._priority import Priority
from ringloop.h3._server import Server, serve
from ringloop.h3.errors import MessageError, RequestRejected

__all__ = [
    "Client",
    "Exchange",
    "MessageError",
    "Priority",
    "Request",
    "RequestRejected",
    "Response",
    "Server",
    "connect",
    "open_client",
    "serve",
]
