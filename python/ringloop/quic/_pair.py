"""A stream as instances of `asyncio.StreamReader` and `asyncio.StreamWriter`.

For code that checks types. The stream does all the work.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ringloop.quic._stream import Stream

__all__ = ["StreamReader", "StreamWriter"]


class StreamReader(asyncio.StreamReader):
    """The reading half."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._exception = None

    def at_eof(self) -> bool:
        return self.stream.at_eof()

    async def read(self, n: int = -1) -> bytes:
        return await self.stream.read(n)

    async def readexactly(self, n: int) -> bytes:
        return await self.stream.readexactly(n)

    async def readuntil(self, separator: Any = b"\n") -> bytes:
        return await self.stream.readuntil(separator)

    async def readline(self) -> bytes:
        return await self.stream.readline()

    def __repr__(self) -> str:
        return f"<StreamReader of {self.stream!r}>"


class StreamWriter(asyncio.StreamWriter):
    """The writing half."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    @property
    def transport(self) -> Any:
        return self.stream

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.stream.write(data)

    def writelines(self, data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.stream.writelines(data)

    async def drain(self) -> None:
        await self.stream.drain()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.stream.finish()

    def close(self) -> None:
        self.stream.close()

    def is_closing(self) -> bool:
        return self.stream.is_closing()

    async def wait_closed(self) -> None:
        await self.stream.wait_closed()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.stream.get_extra_info(name, default)

    def __del__(self, *_: Any) -> None:
        """Do nothing: the stream finishes itself."""

    def __repr__(self) -> str:
        return f"<StreamWriter of {self.stream!r}>"
