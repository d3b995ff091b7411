"""Shared by the tests of pipe transports: a recording protocol, and connecting it."""

from __future__ import annotations

import asyncio
from typing import Any


class Recorder(asyncio.Protocol):
    """Records its callbacks, in order."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.data = bytearray()
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.calls.append("made")
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert type(data) is bytes
        self.data += data

    def eof_received(self) -> None:
        self.calls.append("eof")

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, exc: BaseException | None) -> None:
        self.calls.append(("lost", type(exc)))


async def reading(
    loop: asyncio.AbstractEventLoop, pipe: Any, protocol: Any = None
) -> tuple[Any, Any]:
    return await loop.connect_read_pipe(lambda: protocol or Recorder(), pipe)


async def writing(
    loop: asyncio.AbstractEventLoop, pipe: Any, protocol: Any = None
) -> tuple[Any, Any]:
    return await loop.connect_write_pipe(lambda: protocol or Recorder(), pipe)


LOST = ("lost", type(None))
