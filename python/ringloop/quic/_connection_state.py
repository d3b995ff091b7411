"""A connection's properties and its stream numbering, under aioquic's names.

Owns: nothing; `connection` has the connection. Called by: `connection`, which gives these names to
programs.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from ringloop.quic.errors import ConnectionClosed

if TYPE_CHECKING:
    from ringloop.quic.configuration import QuicConfiguration
    from ringloop.quic.connection import QuicConnection, QuicTokenHandler
    from ringloop.quic.tls import SessionTicket

__all__ = [
    "QuicConnectionError",
    "QuicConnectionState",
    "TlsState",
    "check_arguments",
    "stream_is_client_initiated",
    "stream_is_unidirectional",
]


def stream_is_client_initiated(stream_id: int) -> bool:
    """Return whether the client opened a stream (RFC 9000 §2.1)."""
    return not stream_id & 1


def stream_is_unidirectional(stream_id: int) -> bool:
    """Return whether a stream is unidirectional (RFC 9000 §2.1)."""
    return bool(stream_id & 2)


class QuicConnectionState(Enum):
    """The state of a connection."""

    FIRSTFLIGHT = 0
    CONNECTED = 1
    CLOSING = 2
    DRAINING = 3
    TERMINATED = 4


class QuicConnectionError(Exception):
    """A protocol violation, with the fields of its close."""

    def __init__(self, error_code: int, frame_type: int | None, reason_phrase: str) -> None:
        super().__init__(error_code, frame_type, reason_phrase)
        self.error_code = error_code
        self.frame_type = frame_type
        self.reason_phrase = reason_phrase

    def __str__(self) -> str:
        frame = "" if self.frame_type is None else f", frame_type: {self.frame_type}"
        return f"Error: {self.error_code}, reason: {self.reason_phrase}{frame}"


class TlsState:
    """The TLS properties of a connection, under the names that programs use."""

    def __init__(self, connection: QuicConnection) -> None:
        self._connection = connection
        self.session_ticket: SessionTicket | None = None
        """Clients: the server's last ticket; only set if there is a ticket handler."""

    def _agreed(self, name: str) -> Any:
        native = self._connection._native
        try:
            handshake = native.handshake() if native is not None else None
        except ConnectionClosed:
            return None
        return None if handshake is None else getattr(handshake, name)

    @property
    def alpn_negotiated(self) -> str | None:
        """The application's protocol."""
        alpn: str | None = self._agreed("alpn")
        return alpn

    @property
    def session_resumed(self) -> bool:
        """Whether an earlier session was resumed."""
        return bool(self._agreed("is_resumed"))

    @property
    def early_data_accepted(self) -> bool:
        """Whether the server accepted the early data."""
        return bool(self._agreed("early_data_accepted"))

    @property
    def _peer_certificate(self) -> Any:
        certificate = self._connection.get_peercert()
        return None if certificate is None else certificate.to_cryptography()

    @property
    def _peer_certificate_chain(self) -> list[Any]:
        return [issuer.to_cryptography() for issuer in self._connection.get_issuercerts()]


def check_arguments(
    configuration: QuicConfiguration,
    original: bytes | None,
    retry_source: bytes | None,
    token_handler: QuicTokenHandler | None,
) -> None:
    """Refuse arguments that do not apply to this side."""
    if configuration.is_client:
        if original is not None:
            raise ValueError("Cannot set original_destination_connection_id for a client")
        if retry_source is not None:
            raise ValueError("Cannot set retry_source_connection_id for a client")
        return
    if token_handler is not None:
        raise ValueError("Cannot set `token_handler` for a server")
    if configuration.token:
        raise ValueError("Cannot set `configuration.token` for a server")
    if retry_source is not None:
        raise ValueError(
            "retry_source_connection_id is not taken: `serve(retry=True)` does retries"
        )
    if original is None:
        raise ValueError("original_destination_connection_id is required for a server")
