"""What a program may replace in the making of a connection takes part in it.

To an address without options, ours connects in fewer steps than asyncio (`ringloop._connect`), and only
where every step is the original one.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from asyncio import base_events
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import Recorder, closed, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]


async def connected(address: tuple[str, int]) -> socket.socket:
    """Connect and close; return the socket that `_sock` was."""
    loop = asyncio.get_running_loop()
    transport, _ = await support.within(loop.create_connection(Recorder, *address))
    sock: socket.socket = transport._sock  # type: ignore[attr-defined]
    transport.close()
    await closed(transport)
    return sock


@pytest.mark.parametrize("name", ["_ensure_resolved", "_connect_sock", "sock_connect"])
def test_part_of_the_loop(run: Run, loop: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    called = []
    original = getattr(loop, name)

    def replaced(*args: Any, **kwargs: Any) -> Any:
        called.append(name)
        return original(*args, **kwargs)

    async def main() -> None:
        async with serving(Recorder) as (_, address):
            monkeypatch.setattr(loop, name, replaced)
            await connected(address)

    run(main())
    assert called


def test_part_of_a_subclass(loop: Any) -> None:
    called = []

    class Sub(type(loop)):  # type: ignore[misc]
        async def sock_connect(self, sock: socket.socket, address: Any) -> None:
            called.append(address)
            await super().sock_connect(sock, address)

    async def main() -> tuple[str, int]:
        async with serving(Recorder) as (_, address):
            await connected(address)
        return address

    sub = Sub()
    try:
        address = sub.run_until_complete(main())
    finally:
        support.close_loop(sub)
    assert called == [address]


def test_step_of_asyncio(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    original = base_events.BaseEventLoop.create_connection

    async def replaced(self: Any, *args: Any, **kwargs: Any) -> Any:
        called.append(args[1:])
        return await original(self, *args, **kwargs)

    async def main() -> tuple[str, int]:
        async with serving(Recorder) as (_, address):
            await connected(address)
        return address

    monkeypatch.setattr(base_events.BaseEventLoop, "create_connection", replaced)
    address = run(main())
    assert called == [address]


class Guarded(socket.socket):
    """A socket of a program that replaces `socket.socket`."""


def test_class_of_sockets(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> socket.socket:
        async with serving(Recorder) as (_, address):
            monkeypatch.setattr(socket, "socket", Guarded)
            return await connected(address)

    assert type(run(main())) is Guarded


def test_method_of_sockets(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    called = []

    def connect(self: socket.socket, address: Any) -> None:
        called.append(address)
        super(socket.socket, self).connect(address)

    async def main() -> tuple[str, int]:
        async with serving(Recorder) as (_, address):
            monkeypatch.setattr(socket.socket, "connect", connect, raising=False)
            await connected(address)
        return address

    address = run(main())
    assert called == [address]


@pytest.mark.parametrize("port", [-1, 65536])
def test_port_out_of_range(run: Run, port: int) -> None:
    async def main() -> None:
        with pytest.raises(OverflowError, match=r"^connect\(\): port must be 0-65535"):
            await asyncio.get_running_loop().create_connection(Recorder, "127.0.0.1", port)

    run(main())


def test_ipv6(run: Run) -> None:
    async def main() -> None:
        try:
            serving_ = await asyncio.get_running_loop().create_server(Recorder, "::1", 0)
        except OSError as error:
            assert error.errno in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
            pytest.skip("this machine has no ::1")
        async with serving_:
            address = serving_.sockets[0].getsockname()
            loop = asyncio.get_running_loop()
            transport, _ = await loop.create_connection(Recorder, *address[:2])
            assert transport.get_extra_info("peername") == address
            assert transport.get_extra_info("sockname")[0] == "::1"
            transport.close()
            await closed(transport)

    run(main())


def test_socket_of_a_connection_is_as_asyncio_makes_it(run: Run) -> None:
    async def main() -> None:
        async with serving(Recorder) as (_, address):
            loop = asyncio.get_running_loop()
            transport, _ = await loop.create_connection(Recorder, *address)
            shown = transport.get_extra_info("socket")
            assert (shown.family, shown.type) == (socket.AF_INET, socket.SOCK_STREAM)
            assert shown.proto == socket.IPPROTO_TCP
            assert shown.gettimeout() == 0
            assert shown.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert not transport._sock.get_inheritable()  # type: ignore[attr-defined]
            transport.close()
            await closed(transport)

    run(main())


def test_accepted_socket_is_as_asyncio_makes_it(run: Run) -> None:
    async def main() -> None:
        accepted: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        class Server(Recorder):
            def connection_made(self, transport: Any) -> None:
                super().connection_made(transport)
                accepted.set_result(transport)

        async with serving(Server) as (_, address):
            with socket.create_connection(address) as client:
                transport = await support.within(accepted)
                assert transport.get_extra_info("peername") == client.getsockname()
                assert transport.get_extra_info("sockname") == address
                shown = transport.get_extra_info("socket")
                assert (shown.family, shown.type) == (socket.AF_INET, socket.SOCK_STREAM)
                assert shown.gettimeout() == 0
                assert shown.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                transport.close()
                await closed(transport)

    run(main())
