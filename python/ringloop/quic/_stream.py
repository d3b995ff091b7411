"""A stream: a reader and a writer in one object, with the methods of asyncio's two.

Owns: data received but not yet consumed by `readuntil` and `readexactly`. Called by:
programs. Never does: make a future if data or buffer space is available; a read or a write is then
one call into native code.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from ringloop._native import quic as _quic
from ringloop.quic._pair import StreamReader, StreamWriter
from ringloop.quic.errors import ConnectionClosed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from ringloop.quic._connection import Connection

__all__ = ["Stream"]

_READ_BYTES = 1 << 20
# asyncio's default: how long a line may be.
_LIMIT = 1 << 16


class Stream(_quic.Stream):
    """A stream of a connection.

    It has the methods of `asyncio.StreamReader` and `asyncio.StreamWriter`, so it can stand for
    both; `pair()` returns two objects that are instances of those classes. In addition: `reset`,
    `stop`, `stopped`, `acked`, `priority`. Every wait can be cancelled, and loses no bytes.

    Limits: unread data counts against `max_stream_data`, unacknowledged data against
    `send_window`, beyond which `drain()` waits. Without draining, data is queued.
    """

    if TYPE_CHECKING:

        @property
        def connection(self) -> Connection: ...

    _left: bytearray | None = None

    # Reading.

    async def read(self, n: int = -1) -> bytes:
        """Read available data, at most `n` bytes; b"" is the end.

        Without `n`: everything up to the end.
        """
        if n < 0:
            return await self.read_to_end()
        if self._left or n == 0:
            return self._take_left(n)
        while not isinstance(data := self._read(n), bytes):
            await data
        return data

    async def read_to_end(self, limit: int | None = None) -> bytes:
        """Read everything up to the end.

        `LimitOverrunError`: there are more than `limit` bytes; they can still be read.
        """
        if self._left:
            return await self._read_rest([self._take_left(len(self._left))], limit)
        while not isinstance(data := self._read(_READ_BYTES), bytes):
            await data
        # A short stream arrives whole.
        if self.is_readable or (limit is not None and len(data) > limit):
            return await self._read_rest([data], limit)
        return data

    async def _read_rest(self, pieces: list[bytes], limit: int | None) -> bytes:
        count = sum(map(len, pieces))
        while limit is None or count <= limit:
            data = self._take(_READ_BYTES)
            if data is None:
                await self._wait_with(pieces)
                continue
            if not data:
                return b"".join(pieces)
            pieces.append(data)
            count += len(data)
        self._left = bytearray().join(pieces)
        raise asyncio.LimitOverrunError(f"the stream is longer than {limit} bytes", count)

    async def _wait_with(self, pieces: list[bytes]) -> None:
        """Wait for more; if cancelled, the data taken so far can be read again."""
        try:
            await self._read_waiter()
        except BaseException:
            self._left = bytearray().join(pieces)
            raise

    async def readexactly(self, n: int) -> bytes:
        """Read exactly `n` bytes; `IncompleteReadError` if the stream ends before."""
        if n < 0:
            raise ValueError("readexactly size can not be less than zero")
        left = self._left
        if not left:
            while not isinstance(data := self._read(n), bytes):
                await data
            if len(data) == n:
                return data
            left = self._left = bytearray(data)
            if not data:
                raise asyncio.IncompleteReadError(b"", n)
        while len(left) < n:
            more = self._read(n - len(left))
            if not isinstance(more, bytes):
                await more
            elif more:
                left += more
            else:
                raise asyncio.IncompleteReadError(self._take_left(len(left)), n)
        return self._take_left(n)

    async def readuntil(self, separator: bytes | tuple[bytes, ...] = b"\n") -> bytes:
        """Read up to and including a separator; errors are those of asyncio's reader.

        Of several separators the one that ends first counts.
        """
        separators = separator if isinstance(separator, tuple) else (separator,)
        if not separators:
            raise ValueError("Separator should contain at least one element")
        if not all(separators):
            raise ValueError("Separator should be at least one-byte string")
        longest = max(map(len, separators))
        left = self._left
        if left is None:
            left = self._left = bytearray()
        searched = 0
        while (found := _first_end(left, separators, searched)) is None:
            searched = max(0, len(left) + 1 - longest)
            if searched > _LIMIT:
                raise asyncio.LimitOverrunError(
                    "Separator is not found, and chunk exceed the limit", searched
                )
            data = self._read(_LIMIT)
            if not isinstance(data, bytes):
                await data
            elif data:
                left += data
            else:
                raise asyncio.IncompleteReadError(self._take_left(len(left)), None)
        end, start = found
        if start > _LIMIT:
            raise asyncio.LimitOverrunError(
                "Separator is found, but chunk is longer than limit", start
            )
        return self._take_left(end)

    async def readline(self) -> bytes:
        """Read a line, or the rest at the end."""
        try:
            return await self.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            return error.partial
        except asyncio.LimitOverrunError as error:
            self._take_left(error.consumed)
            # Discard its end together with a line that is too long.
            if self._left and self._left.startswith(b"\n"):
                self._take_left(1)
            raise ValueError(error.args[0]) from error

    def _take_left(self, n: int) -> bytes:
        left = self._left
        if not left:
            return b""
        data = bytes(left[:n])
        del left[:n]
        return data

    def at_eof(self) -> bool:
        """Whether the end was read."""
        return not self.is_readable and not self._left

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> bytes:
        line = await self.readline()
        if not line:
            raise StopAsyncIteration
        return line

    async def chunks(self, n: int = 1 << 16) -> AsyncIterator[bytes]:
        """Yield the data, in pieces of at most `n` bytes, up to the end."""
        while data := await self.read(n):
            yield data
            del data

    # Writing.

    def writelines(self, data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Write several pieces."""
        self.write(b"".join(data))

    async def _drain(self) -> None:
        """Continue with `drain`, if there is something to wait for or to raise."""
        while (waiter := self._drain_waiter()) is not None:
            await waiter

    async def _send(self, data: bytes | bytearray | memoryview) -> None:
        """Raise the error of a refused `send` when it is awaited."""
        self.write(data)
        await self._drain()

    def can_write_eof(self) -> bool:
        """Return True: streams have an end."""
        return True

    def write_eof(self) -> None:
        """Declare that nothing more will be written: `finish`."""
        self.finish()

    def is_closing(self) -> bool:
        """Whether nothing more can be written."""
        return not self.is_writable or self.connection.is_closed

    async def wait_closed(self) -> None:
        """Wait until the peer has everything written, or the stream or connection has ended."""
        try:
            await self.stopped()
        except ConnectionClosed:
            return

    async def stopped(self) -> int | None:
        """Wait for the outcome of the sending side.

        Returns the code with which the peer stopped the stream, or this end reset it; None: the peer
        has all of a finished stream.
        """
        while True:
            is_over, code = self._sent()
            if is_over:
                return code
            await self._sent_waiter()

    async def acked(self) -> bool:
        """Wait until the peer has acknowledged all of a finished stream.

        Returns False if it stopped the stream, or this end has reset it.

        `ConnectionClosed`: the connection ended before.
        """
        return await self.stopped() is None

    def abort(self) -> None:
        """Abort both directions, with code 0."""
        self.reset(0)
        self.stop(0)

    # Other methods of asyncio's writers.

    @property
    def transport(self) -> Stream:
        """The stream itself, which has a transport's methods."""
        return self

    def get_write_buffer_size(self) -> int:
        """Bytes waiting for space in the send window."""
        return self.queued_bytes

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """`stream_id`, `connection`, and the connection's information."""
        if name == "stream_id":
            return self.id
        if name == "connection":
            return self.connection
        return self.connection.get_extra_info(name, default)

    def pair(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return the stream as instances of asyncio's own classes, for code that checks types."""
        return StreamReader(self), StreamWriter(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __repr__(self) -> str:
        kind = "bidirectional" if self.is_bidirectional else "unidirectional"
        return f"<Stream {self.id} {kind} of {self.connection!r}>"


def _first_end(
    data: bytearray, separators: tuple[bytes, ...], start: int
) -> tuple[int, int] | None:
    """Return where the first separator ends, and where it begins."""
    if len(separators) == 1:
        at = data.find(separators[0], start)
        return None if at < 0 else (at + len(separators[0]), at)
    places = ((data.find(one, start), len(one)) for one in separators)
    return min(((at + length, at) for at, length in places if at >= 0), default=None)
