"""Sockets without a name: None is the source of their datagrams, and no destination."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from tests.support import wait_until
from tests.support.datagrams import endpoint

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support import LoopLog
    from tests.support.datagrams import Run


def paired(folder: Path, kind: str) -> tuple[socket.socket, socket.socket]:
    """Make two sockets, the second of which sends to the first."""
    if kind == "bound":
        first, second = (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2))
        first.bind(str(folder / "first"))
        first.setblocking(False)
        second.connect(str(folder / "first"))
        return first, second
    first, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    if kind == "first named":
        first.bind(str(folder / "first"))
    first.setblocking(False)
    return first, second


@pytest.mark.parametrize("received", [False, True])
@pytest.mark.parametrize("kind", ["pair", "first named", "bound"])
def test_none_is_no_destination_before_and_after_a_datagram(
    run: Run, tmp_path: Path, loop_log: LoopLog, kind: str, received: bool
) -> None:
    async def main() -> None:
        first, second = paired(tmp_path, kind)
        with second:
            second.setblocking(False)
            async with endpoint(sock=first) as receiver:
                if received:
                    second.send(b"one")
                    await wait_until(lambda: receiver.received)
                    assert receiver.received == [(b"one", None)]
                receiver.transport.sendto(b"two", None)
                assert receiver.transport.is_closing()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                with pytest.raises(BlockingIOError):
                    second.recv(10)
        assert isinstance(receiver.lost.result(), TypeError)
        assert receiver.errors == []

    run(main())
    assert any("Fatal write error" in text for text in loop_log.take())


def test_source_with_a_name_is_a_destination(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        first, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with second:
            second.bind(str(tmp_path / "second"))
            second.setblocking(False)
            async with endpoint(sock=first) as receiver:
                second.send(b"one")
                await wait_until(lambda: receiver.received)
                receiver.transport.sendto(b"two", receiver.received[0][1])
                assert second.recv(10) == b"two"

    run(main())
