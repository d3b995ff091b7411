"""A peer answers, and closes with data unread: the answer of a server that refuses an upload.

A client whose upload waits for room learns of the reset by its send. If that came before the answer was
read, the answer was lost with the connection. On the ring the send may take the kernel's report of the
reset; a receive behind it sees EOF, and a reset looked like a complete answer.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import MORE_THAN_THE_KERNEL_TAKES, Recorder, socket_pair

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

BULK = b"b" * (1 << 20)


class Upload(Recorder):
    """Writes at once more than the kernel takes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.write(b"u" * MORE_THAN_THE_KERNEL_TAKES)


class Late(Recorder):
    """Reads first."""


@pytest.mark.parametrize("family", ["tcp", "unix"])
@pytest.mark.parametrize("kind", [Upload, Late])
@pytest.mark.parametrize("bulk", [False, True])
@pytest.mark.parametrize("answer", [b"", b"refused"])
def test_answer_of_a_peer_that_resets_is_delivered(
    run: Run, family: str, kind: type[Recorder], bulk: bool, answer: bytes
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        left, right = socket_pair() if family == "tcp" else socket.socketpair()
        right.setblocking(False)
        protocol = kind()
        transport, _ = await loop.create_connection(lambda: protocol, sock=left)
        with right:
            if bulk:
                await support.within(loop.sock_sendall(right, BULK))
                await support.wait_until(lambda: len(protocol.data) == len(BULK), "the bulk")
            if kind is Late:
                transport.write(b"u" * MORE_THAN_THE_KERNEL_TAKES)
            if answer:
                right.send(answer)
        await protocol.until_lost()
        assert protocol.data == (BULK if bulk else b"") + answer
        assert "eof_received" not in protocol.events
        assert isinstance(protocol.reason, ConnectionError)

    run(main())
