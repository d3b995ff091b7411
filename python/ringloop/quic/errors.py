"""What can go wrong with a connection, a stream or a datagram.

::

    QuicError (ConnectionError)
    ├─ ConnectError                  it could not be begun; nothing was sent
    ├─ ConnectionClosed              it is over: code, reason, by_peer, is_application
    │  ├─ ConnectionClosedByPeer     the peer's program closed it
    │  ├─ TransportError             the protocol was broken, here or there (RFC 9000 §20.1)
    │  │  └─ TlsError                the handshake was refused: .alert (RFC 8446 §6)
    │  ├─ Unreachable                this machine or the network refused the first packets: .errno
    │  ├─ HandshakeTimeout (TimeoutError) the handshake was not complete in its time
    │  ├─ IdleTimeout (TimeoutError) nothing came for the idle time-out
    │  ├─ StatelessReset             the peer has forgotten it
    │  └─ VersionMismatch            the peer speaks no version that this end speaks
    ├─ StreamError
    │  ├─ StreamResetError           the peer gave up sending: .code
    │  ├─ StreamStoppedError         the peer does not want to receive: .code
    │  ├─ StreamClosedError          it was finished, reset or stopped here
    │  └─ EarlyDataRejected          the server refused early data: open the stream again
    └─ DatagramError                 it cannot be sent: too long, or the peer takes none
    ConfigurationError (ValueError)
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ringloop._native import quic as _quic
from ringloop.quic._alerts import cause, remedy

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "ConfigurationError",
    "ConnectError",
    "ConnectionClosed",
    "ConnectionClosedByPeer",
    "DatagramError",
    "EarlyDataRejected",
    "HandshakeTimeout",
    "IdleTimeout",
    "QuicError",
    "StatelessReset",
    "StreamClosedError",
    "StreamError",
    "StreamResetError",
    "StreamStoppedError",
    "TlsError",
    "TransportError",
    "Unreachable",
    "VersionMismatch",
]


class ConfigurationError(ValueError):
    """A certificate, a key or a number that does not do."""


class QuicError(ConnectionError):
    """What all errors of connections are."""

    attempts: Sequence[tuple[tuple[Any, ...], str]] = ()
    """Where a name has several addresses, of which none did: each of them, with its error."""

    def __str__(self) -> str:
        if not self.attempts:
            return super().__str__()
        tried = "; ".join(f"{shown(address)}: {text}" for address, text in self.attempts)
        return f"none of {len(self.attempts)} addresses could be connected to: {tried}"


def shown(address: tuple[Any, ...]) -> str:
    """Return an address as people write it."""
    host, port = address[:2]
    if len(address) > 2 and address[3] and "%" not in host:  # noqa: PLR2004
        host = f"{host}%{address[3]}"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class ConnectError(QuicError):
    """A connection could not be begun; nothing was sent."""


class ConnectionClosed(QuicError):  # noqa: N818
    """A connection is over.

    `code` and `reason` are what was said with the end, `by_peer` by whom; `is_application`: the
    code is the program's own, not QUIC's (RFC 9000 §20.1). `in_handshake`: the handshake was not
    complete.
    """

    def __init__(
        self,
        code: int = 0,
        reason: str = "",
        by_peer: bool = False,
        is_application: bool = True,
        in_handshake: bool = False,
    ) -> None:
        self.code = code
        self.reason = reason
        self.by_peer = by_peer
        self.is_application = is_application
        self.in_handshake = in_handshake
        super().__init__(self._text())

    def _text(self) -> str:
        return f"the connection was closed here{self._when()} with code {self.code}{self._said()}"

    def _when(self) -> str:
        return " during the handshake" if self.in_handshake else ""

    def _said(self) -> str:
        return f": {self.reason}" if self.reason else ""


class ConnectionClosedByPeer(ConnectionClosed):
    """The peer's program closed the connection, with its own code and reason."""

    def _text(self) -> str:
        return f"the peer closed the connection{self._when()} with code {self.code}{self._said()}"


class TransportError(ConnectionClosed):
    """The protocol was broken, here or there; `by_peer` tells who said so."""

    def _text(self) -> str:
        who = "the peer" if self.by_peer else "this end"
        why = _quic.explained(self.code, self.reason)
        return f"{who} closed the connection{self._when()} with {why}"


class TlsError(TransportError):
    """The handshake was refused, most often because of a certificate or of ALPN.

    Its text says what helps at this end; `reason` is what the end that refused has said.
    """

    def _text(self) -> str:
        who = "the peer" if self.by_peer else "this end"
        why = _quic.explained(self.code, self.reason or cause(self.alert))
        text = f"{who} closed the connection{self._when()} with {why}"
        helps = remedy(self.alert, by_peer=self.by_peer)
        return f"{text}. What helps: {helps}" if helps else text

    @property
    def alert(self) -> int:
        """The alert (RFC 8446 §6)."""
        return self.code & 0xFF


class Unreachable(ConnectionClosed):
    """This machine or the network refused the first packets; `errno` says how.

    There is no route, a firewall is in the way, or nobody listens at the port. Only a connection
    that has received nothing ends so: what comes later may be forged, and is a lost packet.
    """

    def __init__(self, errno: int, address: tuple[Any, ...]) -> None:
        self.address = address
        super().__init__(1, os.strerror(errno), by_peer=False, is_application=False)
        self.errno = errno

    def _text(self) -> str:
        return f"cannot reach {shown(self.address)}: {self.reason}"


class HandshakeTimeout(ConnectionClosed, TimeoutError):  # noqa: N818
    """The handshake was not complete within `handshake_timeout`, whatever the peer has sent."""

    def _text(self) -> str:
        return self.reason


class IdleTimeout(ConnectionClosed, TimeoutError):  # noqa: N818
    """Nothing came for the idle time-out. `keep_alive` keeps a quiet connection open."""

    def _text(self) -> str:
        if self.in_handshake:
            return self.reason
        return "nothing came from the peer for the idle time-out"


class StatelessReset(ConnectionClosed):
    """The peer does not know the connection any more: it was started again, most often."""

    def _text(self) -> str:
        return "the peer has forgotten the connection (stateless reset)"


class VersionMismatch(ConnectionClosed):
    """The peer speaks no version of QUIC that this end speaks."""

    def _text(self) -> str:
        return (
            "the peer speaks no version of QUIC that this end speaks. What helps: version 1 (RFC 9000)"
            " or 2 at both ends (version= of clients, versions= of endpoints)"
        )


class StreamError(QuicError):
    """What all errors of streams are."""


class StreamResetError(StreamError):
    """The peer gave up sending, with its program's code."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(f"the peer reset the stream with code {code}")


class StreamStoppedError(StreamError):
    """The peer does not want to receive, with its program's code."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(f"the peer stopped the stream with code {code}")


class StreamClosedError(StreamError):
    """The stream was finished, reset or stopped here, or does not go this way."""

    def __init__(self, text: str = "the stream is closed, or does not go this way") -> None:
        super().__init__(text)


class EarlyDataRejected(StreamError):  # noqa: N818
    """The server refused early data; the stream was never there."""

    def __init__(self) -> None:
        super().__init__("the server refused early data: open the stream again")


class DatagramError(QuicError):
    """A datagram cannot be sent: it is too long, or the peer takes none."""
