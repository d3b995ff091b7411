"""What can go wrong with a session, beyond the errors of `ringloop.quic`."""

from __future__ import annotations

from ringloop.quic.errors import ConnectError, ConnectionClosed

__all__ = ["SessionClosed", "SessionRejected"]


class SessionClosed(ConnectionClosed):
    """A session is over; its connection may go on.

    `code` and `reason` are what was said with the end, `by_peer` by whom; `is_application`: the code is
    the program's own, and not HTTP/3's.
    """

    def _text(self) -> str:
        who = "the peer closed" if self.by_peer else "this end closed"
        if self.is_application:
            return f"{who} the session with code {self.code}{self._said()}"
        return f"{who} the session with code {self.code:#x} of HTTP/3{self._said()}"


class SessionRejected(ConnectError):  # noqa: N818
    """The server does not want the session: `status` and `headers` of its answer tell why."""

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.status = status
        self.headers = headers
        super().__init__(f"the server rejected the session with status {status}")
