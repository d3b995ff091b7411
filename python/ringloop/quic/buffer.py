"""A cursor over bytes: numbers in network order and QUIC's variable-length integers (RFC 9000 §16).

Owns: the buffer of the parsers and writers outside the native core (packet headers, HTTP/3 frames).
Called by: `packet`, programs. Never does: grow; the capacity is fixed.

Source: `aioquic.buffer`, whose names, errors and positions these are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing_extensions import Buffer as BytesLike

__all__ = [
    "UINT_VAR_MAX",
    "UINT_VAR_MAX_SIZE",
    "Buffer",
    "BufferReadError",
    "BufferWriteError",
    "encode_uint_var",
    "size_uint_var",
]

UINT_VAR_MAX: Final = (1 << 62) - 1
"""The largest variable-length integer."""
UINT_VAR_MAX_SIZE: Final = 8
"""Bytes that the longest one takes."""


class BufferReadError(ValueError):
    """A read goes beyond the end of the buffer."""


class BufferWriteError(ValueError):
    """A write goes beyond the end of the buffer."""


def size_uint_var(value: int) -> int:
    """Return how many bytes a number takes: 1, 2, 4 or 8; `ValueError` if it is too large."""
    if value < 0:
        raise ValueError("A variable-length integer cannot be negative")
    # Two bits of the first byte encode the size.
    for size in (1, 2, 4, 8):
        if value < 1 << (8 * size - 2):
            return size
    raise ValueError("Integer is too big for a variable-length integer")


def encode_uint_var(value: int) -> bytes:
    """Encode a number in the fewest bytes."""
    size = size_uint_var(value)
    # The two top bits hold the size's logarithm.
    return (value | (size.bit_length() - 1) << (8 * size - 2)).to_bytes(size, "big")


class Buffer:
    """Bytes and a position in them.

    `capacity` bytes to write to, or the bytes of `data` to read (and overwrite).
    """

    __slots__ = ("_bytes", "_position")

    def __init__(self, capacity: int | None = 0, data: BytesLike | None = None) -> None:
        self._bytes = bytearray(capacity or 0) if data is None else bytearray(data)
        self._position = 0

    @property
    def capacity(self) -> int:
        """The total number of bytes."""
        return len(self._bytes)

    @property
    def data(self) -> bytes:
        """The bytes before the position: those written so far."""
        return bytes(self._bytes[: self._position])

    def data_slice(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` to `end`, regardless of the position."""
        if not 0 <= start <= end <= len(self._bytes):
            raise BufferReadError("Read out of bounds")
        return bytes(self._bytes[start:end])

    def eof(self) -> bool:
        """Return whether the position is at the end."""
        return self._position == len(self._bytes)

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, pos: int) -> None:
        """Set the position."""
        if not 0 <= pos <= len(self._bytes):
            raise BufferReadError("Seek out of bounds")
        self._position = pos

    def pull_bytes(self, length: int) -> bytes:
        """Read that number of bytes."""
        start = self._position
        end = start + length
        if length < 0 or end > len(self._bytes):
            raise BufferReadError("Read out of bounds")
        self._position = end
        return bytes(self._bytes[start:end])

    def pull_uint8(self) -> int:
        """Read a byte."""
        return self._pull(1)

    def pull_uint16(self) -> int:
        """Read a 2-byte number."""
        return self._pull(2)

    def pull_uint32(self) -> int:
        """Read a 4-byte number."""
        return self._pull(4)

    def pull_uint64(self) -> int:
        """Read an 8-byte number."""
        return self._pull(8)

    def pull_uint_var(self) -> int:
        """Read a variable-length number."""
        if self._position == len(self._bytes):
            raise BufferReadError("Read out of bounds")
        size: int = 1 << (self._bytes[self._position] >> 6)
        return self._pull(size) & ((1 << (8 * size - 2)) - 1)

    def push_bytes(self, value: BytesLike) -> None:
        """Write bytes."""
        end = self._position + len(memoryview(value))
        if end > len(self._bytes):
            raise BufferWriteError("Write out of bounds")
        self._bytes[self._position : end] = memoryview(value)
        self._position = end

    def push_uint8(self, value: int) -> None:
        """Write a byte."""
        self.push_bytes((value & 0xFF).to_bytes(1, "big"))

    def push_uint16(self, value: int) -> None:
        """Write a number in two bytes."""
        self.push_bytes((value & 0xFFFF).to_bytes(2, "big"))

    def push_uint32(self, v: int) -> None:
        """Write a number in four bytes."""
        self.push_bytes((v & 0xFFFF_FFFF).to_bytes(4, "big"))

    def push_uint64(self, v: int) -> None:
        """Write a number in eight bytes."""
        self.push_bytes((v & 0xFFFF_FFFF_FFFF_FFFF).to_bytes(8, "big"))

    def push_uint_var(self, value: int) -> None:
        """Write a variable-length number, in the fewest bytes."""
        self.push_bytes(encode_uint_var(value))

    def _pull(self, size: int) -> int:
        end = self._position + size
        if end > len(self._bytes):
            raise BufferReadError("Read out of bounds")
        value = int.from_bytes(self._bytes[self._position : end], "big")
        self._position = end
        return value
