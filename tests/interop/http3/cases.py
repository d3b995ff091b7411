"""The cases tried with every pair. Called by: `__main__`, `page`, `peers`."""

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
    "goaway": "GOAWAY, and the response that is under way",
}


@dataclass(frozen=True)
class Cell:
    """The result of one case."""

    # "pass", "fail" or "cannot"
    outcome: str
    detail: str = ""
