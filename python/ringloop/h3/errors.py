"""What can go wrong with a request. All are `QuicError`s, and so `ConnectionError`s and `OSError`s.

::

    ringloop.quic.errors.QuicError
    ├─ ConnectError, ConnectionClosed …   there is no connection, or it has ended
    └─ StreamError
       ├─ RequestRejected      the server has not processed the request: it may be sent again
       ├─ MessageError         the peer's message is malformed: .code
       ├─ StreamResetError     the peer gave up its message: .code
       ├─ StreamStoppedError   the peer does not want the rest of ours: .code
       └─ StreamClosedError    it was cancelled here, or is complete
"""

from __future__ import annotations

from ringloop.quic.errors import StreamError

__all__ = ["MessageError", "RequestRejected"]


class RequestRejected(StreamError):  # noqa: N818
    """The server has not processed the request: it may be sent again, on another connection.

    The server is going away, or has rejected the one request (RFC 9114 §4.1.1, §5.2).
    """

    code = 0x10B

    def __init__(self) -> None:
        super().__init__("the server has not processed the request: it may be sent again")


class MessageError(StreamError):
    """The peer's message is malformed or too long; `code` was sent to the peer (RFC 9114 §8.1)."""

    def __init__(self, reason: str, code: int) -> None:
        self.code = code
        super().__init__(f"the peer's message is malformed: {reason}")
