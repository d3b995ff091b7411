"""Errors of connections, streams and datagrams.

::

    QuicError (ConnectionError)
    ├─ ConnectError                  it could not be started; nothing was sent
    ├─ ConnectionClosed              it is closed: code, reason, by_peer, is_application
    │  ├─ ConnectionClosedByPeer     the peer's program closed it
    │  ├─ TransportError             either end violated the protocol (RFC 9000 §20.1)
    │  │  └─ TlsError                the handshake was refused: .alert (RFC 8446 §6)
    │  ├─ Unreachable                this machine or the network refused the first packets: .errno
    │  ├─ HandshakeTimeout (TimeoutError) the handshake did not complete in time
    │  ├─ IdleTimeout (TimeoutError) no packet arrived within the idle time-out
    │  ├─ StatelessReset             the peer no longer knows it
    │  └─ VersionMismatch            the ends have no version in common
    ├─ StreamError
    │  ├─ StreamResetError           the peer reset its sending side: .code
    │  ├─ StreamStoppedError         the peer stopped receiving: .code
    │  ├─ StreamClosedError          it was finished, reset or stopped here
    │  └─ EarlyDataRejected          the server refused early data: open the stream again
    └─ DatagramError                 it cannot be sent: too long, or the peer accepts none
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
    """An invalid setting: a certificate, a key, a number."""


class QuicError(ConnectionError):
    """Base of all errors of connections."""

    attempts: Sequence[tuple[tuple[Any, ...], str]] = ()
    """If a name has several addresses and all failed: each address, with its error."""

    def __str__(self) -> str:
        if not self.attempts:
            return super().__str__()
        tried = "; ".join(f"{shown(address)}: {text}" for address, text in self.attempts)
        return f"all {len(self.attempts)} addresses failed: {tried}"


def shown(address: tuple[Any, ...]) -> str:
    """Format an address for people."""
    host, port = address[:2]
    if len(address) > 2 and address[3] and "%" not in host:  # noqa: PLR2004
        host = f"{host}%{address[3]}"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class ConnectError(QuicError):
    """A connection could not be started; nothing was sent."""


class ConnectionClosed(QuicError):  # noqa: N818
    """A connection is closed.

    `code` and `reason` are those of the close; `by_peer`: the peer sent it. `is_application`: the
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
    """Either end violated the protocol; `by_peer` tells who reported it."""

    def _text(self) -> str:
        who = "the peer" if self.by_peer else "this end"
        why = _quic.explained(self.code, self.reason)
        return f"{who} closed the connection{self._when()} with {why}"


class TlsError(TransportError):
    """The handshake was refused, most often because of a certificate or ALPN.

    The text includes the remedy at this end; `reason` is the refusing end's.
    """

    def _text(self) -> str:
        who = "the peer" if self.by_peer else "this end"
        why = _quic.explained(self.code, self.reason or cause(self.alert))
        text = f"{who} closed the connection{self._when()} with {why}"
        helps = remedy(self.alert, by_peer=self.by_peer)
        return f"{text}. Remedy: {helps}" if helps else text

    @property
    def alert(self) -> int:
        """The alert (RFC 8446 §6)."""
        return self.code & 0xFF


class Unreachable(ConnectionClosed):
    """This machine or the network refused the first packets; `errno` says why.

    There is no route, a firewall blocks them, or no process listens at the port. Only a connection
    that has received nothing ends this way: later ICMP errors may be forged, and count as lost packets.
    """

    def __init__(self, errno: int, address: tuple[Any, ...]) -> None:
        self.address = address
        super().__init__(1, os.strerror(errno), by_peer=False, is_application=False)
        self.errno = errno

    def _text(self) -> str:
        return f"cannot reach {shown(self.address)}: {self.reason}"


class HandshakeTimeout(ConnectionClosed, TimeoutError):  # noqa: N818
    """The handshake did not complete within `handshake_timeout`, whatever the peer sent."""

    def _text(self) -> str:
        return self.reason


class IdleTimeout(ConnectionClosed, TimeoutError):  # noqa: N818
    """No packet arrived within the idle time-out. `keep_alive` keeps a quiet connection open."""

    def _text(self) -> str:
        if self.in_handshake:
            return self.reason
        return "the peer sent nothing within the idle time-out"


class StatelessReset(ConnectionClosed):
    """The peer no longer knows the connection, usually because it was restarted."""

    def _text(self) -> str:
        return "the peer no longer knows the connection (stateless reset)"


class VersionMismatch(ConnectionClosed):
    """The ends have no QUIC version in common."""

    def _text(self) -> str:
        return (
            "no QUIC version in common with the peer. Remedy: use version 1 (RFC 9000)"
            " or 2 at both ends (version= of clients, versions= of endpoints)"
        )


class StreamError(QuicError):
    """Base of all errors of streams."""


class StreamResetError(StreamError):
    """The peer reset its sending side, with its program's code."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(f"the peer reset the stream with code {code}")


class StreamStoppedError(StreamError):
    """The peer stopped receiving, with its program's code."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(f"the peer stopped the stream with code {code}")


class StreamClosedError(StreamError):
    """The stream was finished, reset or stopped here, or has no such direction."""

    def __init__(self, text: str = "the stream is closed, or has no such direction") -> None:
        super().__init__(text)


class EarlyDataRejected(StreamError):  # noqa: N818
    """The server refused early data; the stream was never opened."""

    def __init__(self) -> None:
        super().__init__("the server refused early data: open the stream again")


class DatagramError(QuicError):
    """A datagram cannot be sent: it is too long, or the peer accepts none."""
