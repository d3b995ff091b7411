"""A connection's properties without I/O: identity, negotiated parameters, state.

Owns: nothing; its subclass in `connection` sets the attributes. Called by: programs, the HTTP/3
layers and `asyncio`, through `QuicConnection`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringloop.quic._connection_state import QuicConnectionState, TlsState
from ringloop.quic.errors import ConnectionClosed
from ringloop.quic.packet import QuicTransportParameters, decode_transport_parameters
from ringloop.quic.tls import Certificate, CipherSuite

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringloop.quic import events
    from ringloop.quic.configuration import QuicConfiguration
    from ringloop.quic.connection import NetworkAddress


class ConnectionFacts:
    """The read-only part of `QuicConnection`."""

    tls: TlsState
    _configuration: QuicConfiguration
    _original: bytes
    _native: Any
    _peer_parameters: QuicTransportParameters | None
    _next_stream_id: Callable[[bool], int]

    @property
    def configuration(self) -> QuicConfiguration:
        """The configuration it was made with."""
        return self._configuration

    @property
    def original_destination_connection_id(self) -> bytes:
        """The id of the client's first packet."""
        return self._original

    @property
    def peer_transport_parameters(self) -> QuicTransportParameters | None:
        """The peer's transport parameters (RFC 9000 §18.2); `None` before the handshake has them."""
        if self._peer_parameters is None and self._native is not None:
            try:
                encoded = self._native.peer_transport_parameters()
            except ConnectionClosed:
                return None
            if encoded is not None:
                self._peer_parameters = decode_transport_parameters(encoded)
        return self._peer_parameters

    @property
    def max_concurrent_bidi_streams(self) -> int:
        """Bidirectional streams that may have been opened by now, since the connection's start."""
        return self._stream_count_max(unidirectional=False)

    @property
    def max_concurrent_uni_streams(self) -> int:
        """Unidirectional streams that may have been opened by now, since the connection's start."""
        return self._stream_count_max(unidirectional=True)

    def _stream_count_max(self, *, unidirectional: bool) -> int:
        if (native := self._native) is None or (peer := self.peer_transport_parameters) is None:
            return 0
        first = peer.initial_max_streams_uni if unidirectional else peer.initial_max_streams_bidi
        # The core does not expose the limit. A stream past it waits for credit, so one more is always
        # allowed while none waits.
        used = self._next_stream_id(unidirectional) // 4
        waits: bool = native.waits_for_credit(unidirectional)
        return max(first or 0, used if waits else used + 1)

    def get_cipher(self) -> CipherSuite | None:
        """Return the cipher suite; `None` before the handshake."""
        name = self.tls._agreed("cipher_suite")
        return None if name is None else CipherSuite[name.removeprefix("TLS13_")]

    def get_peercert(self) -> Certificate | None:
        """Return the peer's certificate; `None` before the handshake, or if it presented none."""
        chain = self._chain()
        return chain[0] if chain else None

    def get_issuercerts(self) -> list[Certificate]:
        """Return the chain that the peer presented with its certificate."""
        return self._chain()[1:]

    def _chain(self) -> list[Certificate]:
        try:
            chain = self._native.peer_certificates() if self._native is not None else ()
        except ConnectionClosed:
            return []
        return [Certificate(der) for der in chain]

    def get_peer_address(self) -> NetworkAddress | None:
        """Return the address that datagrams are sent to now."""
        try:
            return None if self._native is None else self._native.remote_address
        except ConnectionClosed:
            return None

    def stats(self) -> Any:
        """Return the connection's figures (`ringloop.quic.Stats`); `None` before it started."""
        return None if self._native is None else self._native.stats()

    def _end(self) -> ConnectionClosed | None:
        """Return why the connection ended, as an exception that was not raised."""
        end: ConnectionClosed | None = None if self._native is None else self._native.error
        return end

    @property
    def _close_event(self) -> events.ConnectionTerminated | None:
        closed: events.ConnectionTerminated | None = (
            None if self._native is None else self._native.close_info
        )
        return closed

    @property
    def _state(self) -> QuicConnectionState:
        native = self._native
        if native is None:
            return QuicConnectionState.FIRSTFLIGHT
        if native.close_info is not None:
            return QuicConnectionState.TERMINATED
        if native.is_handshaking:
            return QuicConnectionState.FIRSTFLIGHT
        return QuicConnectionState.CONNECTED

    # HTTP/3 layers read these two; the names are theirs.

    @property
    def _remote_max_datagram_frame_size(self) -> int | None:
        peer = self.peer_transport_parameters
        return None if peer is None else peer.max_datagram_frame_size

    @property
    def _remote_max_stream_data_bidi_remote(self) -> int:
        peer = self.peer_transport_parameters
        return 0 if peer is None else peer.initial_max_stream_data_bidi_remote or 0

    @property
    def _local_next_stream_id_bidi(self) -> int:
        return self._next_stream_id(False)

    @property
    def _local_next_stream_id_uni(self) -> int:
        return self._next_stream_id(True)
