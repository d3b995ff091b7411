"""The cases tried with every pair. Called by: `__main__`, `table`, `peers`, `session_peers`."""

from __future__ import annotations

from dataclasses import dataclass

CASES = {
    "get": "GET",
    "head": "HEAD",
    "post": "POST, 1 MiB, every byte compared",
    "parallel": "100 requests in parallel",
    "headers": "a field of 12,000 bytes, both ways",
    "trailers": "trailers of a response",
    "request-trailers": "trailers of a request",
    "interim": "interim response (103)",
    "priority": "`priority` field",
    "client-reset": "response cancelled by the client",
    "server-reset": "response reset by the server",
    # Last: it ends the server.
    "goaway": "GOAWAY, and the response in progress",
}

# WebTransport; programs/session_contract.py has what the two ends do.
SESSION_CASES = {
    "session": "session; its path and query",
    "reject": "session rejected with 404",
    "protocol": "sub-protocol",
    "bidi": "bidirectional stream of the client, 1 MiB both ways",
    "uni": "unidirectional streams, 1 MiB both ways",
    "server-bidi": "bidirectional stream of the server, 1 MiB both ways",
    "parallel": "100 streams, 20 at a time",
    "datagrams": "datagrams",
    "reset": "code of a reset by the client",
    "server-reset": "code of a reset by the server",
    "stop": "code of STOP_SENDING by the client",
    "server-stop": "code of STOP_SENDING by the server",
    "close": "close of the client: code and reason",
    "server-close": "close of the server: code and reason",
}


@dataclass(frozen=True)
class Cell:
    """The result of one case."""

    # "pass", "fail" or "cannot"
    outcome: str
    detail: str = ""
