"""The context variables that `connection_lost` sees.

Found by uvloop's tests: when the peer closed a connection, or the kernel accepted its last bytes,
`connection_lost` ran in the context that started the loop instead of the connection's.
"""

from __future__ import annotations

import asyncio
import contextvars
import socket
import sys
from typing import TYPE_CHECKING, Any

from tests.support import within

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

PLACE: contextvars.ContextVar[str] = contextvars.ContextVar("PLACE", default="outside")


class Recorder(asyncio.Protocol):
    def __init__(self) -> None:
        self.seen: list[str] = []
        self.lost = asyncio.get_running_loop().create_future()
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.seen.append(PLACE.get())
        if data == b"fail":
            raise ZeroDivisionError

    def eof_received(self) -> None:
        self.seen.append(PLACE.get())

    def connection_lost(self, error: BaseException | None) -> None:
        self.seen.append(PLACE.get())
        self.lost.set_result(None)


async def connect(near: socket.socket) -> Recorder:
    """Connect in a task of its own, whose context the connection keeps."""
    loop = asyncio.get_running_loop()

    async def make() -> Recorder:
        PLACE.set("inside")
        _, protocol = await loop.create_connection(Recorder, sock=near)
        return protocol

    return await asyncio.create_task(make())


def test_end_by_the_peer(run: Run) -> None:
    async def main() -> None:
        near, far = socket.socketpair()
        with far:
            protocol = await connect(near)
            far.send(b"data")
            far.shutdown(socket.SHUT_WR)
            await within(protocol.lost)
        assert protocol.seen == ["inside"] * 3

    run(main())


def test_end_by_an_exception_of_the_protocol(run: Run, loop: asyncio.AbstractEventLoop) -> None:
    async def main() -> None:
        loop.set_exception_handler(lambda loop, context: None)
        near, far = socket.socketpair()
        with far:
            protocol = await connect(near)
            far.send(b"fail")
            await within(protocol.lost)
        assert protocol.seen == ["inside"] * 2

    run(main())


def test_end_by_the_last_byte_taken(run: Run) -> None:
    async def main() -> None:
        near, far = socket.socketpair()
        loop = asyncio.get_running_loop()
        with far:
            far.setblocking(False)
            protocol = await connect(near)

            async def fill_and_close() -> None:
                PLACE.set("inside")
                protocol.transport.write(bytes(4 << 20))
                protocol.transport.close()

            await asyncio.create_task(fill_and_close())
            while await loop.sock_recv(far, 1 << 20):
                pass
            await within(protocol.lost)
        assert protocol.seen == ["inside"]

    run(main())


def test_end_by_the_user(run: Run) -> None:
    async def main() -> None:
        for end in ("close", "abort"):
            near, far = socket.socketpair()
            with far:
                protocol = await connect(near)
                getattr(protocol.transport, end)()
                await within(protocol.lost)
            # A copy of the caller's; since 3.15 a connection has one context of its own.
            assert protocol.seen == ["inside" if sys.version_info >= (3, 15) else "outside"]

    run(main())
