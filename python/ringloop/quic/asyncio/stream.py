"""One stream as asyncio's pair of reader and writer.

Owns: the transport under the pair: `drain` waits while the stream's writes are queued beyond the send
window, and a full reader pauses its stream's events, so that the peer's window closes.
Called by: the protocol. Never does: buffer; queued data belongs to the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from ringloop.quic.connection import stream_is_unidirectional
from ringloop.quic.errors import StreamClosedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringloop.quic.asyncio.protocol import QuicConnectionProtocol

READER_BYTES = 1 << 16
"""Bytes that a reader buffers before its stream is paused: half of asyncio's limit."""


class QuicStreamAdapter(asyncio.Transport):
    """The transport of one stream, and the part of a protocol that its writer uses."""

    def __init__(self, protocol: QuicConnectionProtocol, stream_id: int) -> None:
        super().__init__()
        self.protocol = protocol
        self.stream_id = stream_id
        self.reader: asyncio.StreamReader | None = asyncio.StreamReader(
            READER_BYTES, protocol._loop
        )
        self._drained: asyncio.Future[None] | None = None
        self._closed: asyncio.Future[None] = protocol._loop.create_future()
        # Its exception counts as retrieved.
        self._closed.add_done_callback(_retrieve)
        self._error: Exception | None = None
        self.reader.set_transport(self)
        if self._cannot_write():
            self._closed.set_result(None)

    def pair(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return the pair for the program; dropping the writer finishes its stream."""
        reader = self.reader
        assert reader is not None  # noqa: S101 (made once, before anything has come)
        protocol: Any = self
        return reader, asyncio.StreamWriter(self, protocol, reader, self.protocol._loop)

    # --- called by the writer ---

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the stream's number as "stream_id"; all other values are the connection's."""
        if name == "stream_id":
            return self.stream_id
        return self.protocol.get_extra_info(name, default)

    def can_write_eof(self) -> bool:
        """Return whether this end may write to the stream."""
        return self.protocol._quic._stream_can_send(self.stream_id)

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Write to the stream."""
        if self._error is None:
            self.protocol._quic.send_stream_data(self.stream_id, data)
            self.protocol._transmit_soon()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        """Write several pieces to the stream."""
        for data in list_of_data:
            self.write(data)

    def write_eof(self) -> None:
        """Finish the stream."""
        if self._closed.done():
            return
        self._closed.set_result(None)
        with contextlib.suppress(StreamClosedError):  # it was reset under the writer
            self.protocol._quic.send_stream_data(self.stream_id, b"", end_stream=True)
        self.protocol._transmit_soon()
        self.protocol._forget_if_over(self)

    def close(self) -> None:
        """Finish the stream, if this end may write to it."""
        self.write_eof()

    def abort(self) -> None:
        """Reset the stream with code 0, and make the peer stop; unread data is discarded."""
        quic = self.protocol._quic
        if self.can_write_eof():
            self.reset(0)
        reader, self.reader = self.reader, None
        if reader is None or not quic._stream_can_receive(self.stream_id):
            return
        reader.feed_eof()
        quic.stop_stream(self.stream_id, 0)
        # It is no longer paused; the rest of its data is dropped.
        quic.resume_stream(self.stream_id)
        self.protocol._forget_soon(self)

    def reset(self, error_code: int) -> None:
        """Abort sending with a code for the peer."""
        if not self._closed.done():
            self._closed.set_result(None)
        self.protocol._quic.reset_stream(self.stream_id, error_code)
        self.protocol._transmit_soon()
        self.writable()
        self.protocol._forget_if_over(self)

    def is_closing(self) -> bool:
        """Return whether nothing more can be written."""
        return self._closed.done()

    # asyncio's StreamWriter asks these two of its protocol.

    async def _drain_helper(self) -> None:
        if self._error is not None:
            raise self._error
        if self._drained is None:
            if not self.protocol._quic.want_writable(self.stream_id):
                return
            self._drained = self.protocol._loop.create_future()
        await asyncio.shield(self._drained)

    def _get_close_waiter(self, stream: object) -> asyncio.Future[None]:  # noqa: ARG002
        # Cancelling a waiter does not finish the stream.
        return asyncio.shield(self._closed)

    # --- called by the reader ---

    def pause_reading(self) -> None:
        """Pause the stream's events."""
        self.protocol._quic.pause_stream(self.stream_id)

    def resume_reading(self) -> None:
        """Resume the stream's events."""
        self.protocol._quic.resume_stream(self.stream_id)
        self.protocol._process_soon()

    # --- called by the connection ---

    def data_received(self, data: bytes, *, is_end: bool) -> bool:
        """Feed the reader; return whether this was the last."""
        if self.reader is None:
            return True
        self.reader.feed_data(data)
        if is_end:
            self.reader.feed_eof()
            self.reader = None
        return is_end

    def reading_failed(self, error: Exception) -> None:
        """Make reads fail."""
        if self.reader is not None:
            self.reader.set_exception(error)
            self.reader = None

    def writable(self) -> None:
        """Wake the callers of drain()."""
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    def writing_failed(self, error: Exception) -> None:
        """Make `drain` fail: the peer stopped the stream, or the connection has ended."""
        if self._error is None:
            self._error = error
        if not self._closed.done():
            self._closed.set_result(None)
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_exception(error)
            drained.add_done_callback(_retrieve)

    def is_over(self) -> bool:
        """Return whether nothing can be read or written any more."""
        reads = self.reader is not None and self.protocol._quic._stream_can_receive(self.stream_id)
        return not reads and self._closed.done()

    def _cannot_write(self) -> bool:
        return stream_is_unidirectional(self.stream_id) and not self.can_write_eof()


def _retrieve(future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.exception()
