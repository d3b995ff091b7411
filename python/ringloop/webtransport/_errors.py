"""What can go wrong with a session, beyond the errors of `ringloop.quic`."""

from __future__ import annotations

from ringloop.quic.errors import ConnectError, ConnectionClosed

__all__ = ["SessionClosed", "SessionRejected"]


class SessionClosed(ConnectionClosed):
    """The session has ended; its connection may still be open.

    `code` and `reason` are those of the close, and `by_peer` says whether the peer sent it.
    `is_application`: the code is a program's (0 to 2^32 - 1), not one of HTTP/3 (RFC 9114 §8.1).
    """

    def _text(self) -> str:
        who = "the peer closed" if self.by_peer else "this end closed"
        if self.is_application:
            return f"{who} the session with code {self.code}{self._said()}"
        return f"{who} the session with code {self.code:#x} of HTTP/3{self._said()}"


class SessionRejected(ConnectError):  # noqa: N818
    """The server has refused the session: `status` and `headers` are those of its response."""

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.status = status
        self.headers = headers
        super().__init__(f"the server rejected the session with status {status}")
