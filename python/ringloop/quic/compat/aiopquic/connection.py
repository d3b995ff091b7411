"""aiopquic's connection: reserved stream numbers, and bounded queues.

Owns: the reserved numbers, and the waiters for streams' queues. Called by: `asyncio`,
programs. Never does: send from another thread; written data is sent in the loop's pass.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

from ringloop.quic import connection, events
from ringloop.quic.asyncio.endpoint import AsyncEndpoint
from ringloop.quic.connection import (
    NetworkAddress,
    QuicErrorCode,
    stream_is_client_initiated,
    stream_is_unidirectional,
)

if TYPE_CHECKING:
    from ringloop.quic.asyncio.protocol import QuicConnectionProtocol
    from ringloop.quic.compat.aiopquic.configuration import QuicConfiguration

__all__ = [
    "Endpoint",
    "QuicConnection",
    "QuicErrorCode",
    "stream_is_client_initiated",
    "stream_is_unidirectional",
]


class QuicConnection(connection.QuicConnection):
    """One connection, made by `connect` and `serve`; or by a program, with its own socket.

    The program calls `_start_transport(port)`, makes a protocol, calls the protocol's `_start()`, and
    `stop()` at the end. A server's connection serves its first client.
    """

    _configuration: QuicConfiguration

    def __init__(self, *, configuration: QuicConfiguration) -> None:
        if configuration.is_client:
            super().__init__(configuration=configuration)
        else:
            self._prepare(configuration, None)
        self._keep()

    def _prepare(self, configuration: Any, driver: Any) -> None:
        super()._prepare(configuration, driver)
        self._keep()

    def _keep(self) -> None:
        first = 0 if self._is_client else 1
        self._next_ids = [first, first + 2]
        self._drained: dict[int, asyncio.Event] = {}
        self._transport: Endpoint | None = None
        self._is_closed = False

    # --- its own socket ---

    def _start_transport(self, port: int = 0) -> None:
        if self._transport is not None:
            return
        loop, configuration = asyncio.get_running_loop(), self._configuration
        server = None if self._is_client else configuration.server_config()
        self._transport = Endpoint(
            loop,
            configuration,
            host=None,
            port=port,
            family=socket.AF_INET,
            server=server,
            connection_id=self.host_cid or None,
        )
        self._transport._only = self
        self._attach(self._transport._native, self._transport._driver)

    def _begin(self, protocol: QuicConnectionProtocol) -> None:
        """Deliver events to a protocol."""
        if (transport := self._transport) is None:
            return
        if self._is_client:
            transport._take_client(self, protocol)
        else:
            transport._make_protocol = lambda _connection: protocol

    def stop(self) -> None:
        """Close the socket; does nothing if `connect` or `serve` owns it."""
        if self._transport is not None:
            self._transport.close()

    @property
    def closed(self) -> bool:
        """Whether the connection has ended; writes are then dropped."""
        return self._is_closed

    @property
    def bytes_sent(self) -> int:
        """Bytes sent in all packets."""
        stats = self.stats()
        return 0 if stats is None else int(stats.bytes_sent)

    @property
    def bytes_received(self) -> int:
        """Bytes received in all packets."""
        stats = self.stats()
        return 0 if stats is None else int(stats.bytes_received)

    def connect(self, addr: NetworkAddress, now: float = 0.0) -> None:
        """Start the handshake with the server at `addr`."""
        if self._driver is None:
            self._start_transport()
        super().connect(addr, now or asyncio.get_running_loop().time())

    def close(
        self,
        error_code: int = QuicErrorCode.NO_ERROR,
        frame_type: int | None = None,
        reason_phrase: str = "",
    ) -> None:
        """Close the connection."""
        super().close(error_code, frame_type, reason_phrase)
        self._end()

    def _note(self, event: events.QuicEvent) -> None:
        super()._note(event)
        if isinstance(event, events.ConnectionTerminated):
            self._end()

    def _end(self) -> None:
        self._is_closed = True
        for event in self._drained.values():
            event.set()

    # --- streams ---

    def get_next_available_stream_id(self, is_unidirectional: bool = False) -> int:
        """Reserve the number of this end's next stream."""
        stream_id = self._next_ids[is_unidirectional]
        self._next_ids[is_unidirectional] += 4
        return stream_id

    def send_stream_data(
        self, stream_id: int, data: connection.BytesLike, end_stream: bool = False
    ) -> None:
        """Write to a stream, all of `data` or nothing; dropped once the connection has ended.

        Errors: BufferError if `stream_ring_cap` bytes would be queued past the send window, or
        `tx_max_queued_bytes` of all streams are: `get_tx_data_drain_event` tells when to write
        again. ValueError if `data` alone is longer than `stream_ring_cap`.
        """
        if self._is_closed:
            return
        if len(data) > self._configuration.stream_ring_cap:
            raise ValueError(f"{len(data)} bytes exceed stream_ring_cap")
        queued = self.get_send_buffer_size(stream_id)
        if queued and queued + len(data) > self._configuration.stream_ring_cap:
            self.set_tx_data_drain_pending(stream_id)
            raise BufferError(
                f"{queued} bytes of stream {stream_id} are queued already: await"
                " send_stream_data_drained(), or raise stream_ring_cap"
            )
        try:
            super().send_stream_data(stream_id, data, end_stream)
        except BufferError:
            self.set_tx_data_drain_pending(stream_id)
            raise

    async def send_stream_data_drained(
        self, stream_id: int, data: connection.BytesLike, end_stream: bool = False
    ) -> None:
        """Write to a stream once there is space."""
        event = self.get_tx_data_drain_event(stream_id)
        while not self._is_closed:
            event.clear()
            try:
                self.send_stream_data(stream_id, data, end_stream)
            except BufferError:
                await event.wait()
            else:
                return
        # A program that writes in an endless loop must let other tasks run.
        await asyncio.sleep(0)

    def get_tx_data_drain_event(self, stream_id: int) -> asyncio.Event:
        """Return the event that is set once a full stream's queue is empty."""
        return self._drained.setdefault(stream_id, asyncio.Event())

    def tx_data_ring_used(self, stream_id: int) -> int:
        """Return how many bytes of a stream are queued past the send window."""
        return self.get_send_buffer_size(stream_id)

    def set_tx_data_drain_pending(self, stream_id: int) -> None:
        """Arrange for the stream's event to be set once its queue is empty."""
        if not self.want_writable(stream_id):
            # Other streams have taken all the space.
            waits = [other for other in self._drained if self.want_writable(other)]
            if not waits:
                self.get_tx_data_drain_event(stream_id).set()

    def clear_tx_data_drain_pending(self, stream_id: int) -> None:
        """Do nothing: an event without a waiter is harmless."""

    def tx_event_ring_fill(self) -> float:
        """Return 0: there is no ring between threads that could be full."""
        return 0.0

    def take_writable(self) -> list[int]:
        """Return the streams whose queues are empty now, and wake their waiters."""
        stream_ids = super().take_writable()
        if stream_ids:
            for event in self._drained.values():
                event.set()
        return stream_ids


class Endpoint(AsyncEndpoint):
    """What `serve` returns; also the socket of a connection that a program made."""

    _only: QuicConnection | None = None
    """Limits an endpoint to one connection."""

    def _accepted(self, key: int) -> connection.QuicConnection:
        if (only := self._only) is None:
            return QuicConnection._let_in(self._configuration, self._native, key, self._driver)
        # First packets of other clients are not accepted.
        self._native.set_server(None)
        only._bind(self._native, key)
        return only
