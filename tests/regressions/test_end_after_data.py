"""The end of a stream is reported one iteration after its last bytes, as in asyncio.

Found by telnetlib3's tests: `data_received` hands bytes to a task that it creates, and `eof_received`
drops those that the task has not taken. If both came in one turn, the answer of a peer that closed was
lost.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.tcp import Recorder, socket_pair

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]


class Later(Recorder):
    """Notes when a callback that `data_received` scheduled runs."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        asyncio.get_running_loop().call_soon(self.events.append, "later")


# The first receive of a connection takes up to 16 KiB: a full one is followed by another at once.
@pytest.mark.parametrize("length", [5, 16 * 1024])
@pytest.mark.parametrize("family", ["tcp", "unix"])
@pytest.mark.parametrize("paused", [False, True])
def test_callbacks_of_the_last_bytes_run_before_eof(
    run: Run, family: str, paused: bool, length: int
) -> None:
    async def main() -> None:
        left, right = socket_pair() if family == "tcp" else socket.socketpair()
        protocol = Later()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(lambda: protocol, sock=left)
        for _ in range(3):
            await asyncio.sleep(0)
        with right:
            right.sendall(b"x" * length)
        if paused:
            transport.pause_reading()
            await asyncio.sleep(0)
            transport.resume_reading()
        await protocol.until_lost()
        assert len(protocol.data) == length
        end = protocol.events.index("eof_received")
        assert "later" not in protocol.events[end:]

    run(main())
