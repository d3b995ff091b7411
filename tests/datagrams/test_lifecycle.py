"""Start and end of datagram endpoints, and their attributes."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import sys
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import wait_until
from tests.support.datagrams import BURST, Echo, Recorder, endpoint, name_of, unix_pair

if TYPE_CHECKING:
    from tests.support.datagrams import Run


def test_close_sends_queued_datagrams_and_abort_does_not(run: Run) -> None:
    async def main() -> None:
        for ending in ("close", "abort"):
            left, right = unix_pair()
            right.setblocking(False)
            async with endpoint(sock=left) as sender:
                with right:
                    count = 0
                    while sender.transport.get_write_buffer_size() == 0:
                        assert count < BURST
                        sender.transport.sendto(b"%d" % count)
                        count += 1
                    last = count
                    sender.transport.sendto(b"%d" % last)
                    getattr(sender.transport, ending)()
                    assert sender.transport.is_closing()
                    arrived: list[int] = []

                    def drained() -> bool:
                        with contextlib.suppress(BlockingIOError):
                            while True:
                                arrived.append(int(right.recv(100)))  # noqa: B023
                        return bool(sender.lost.done())

                    await wait_until(drained)
                    assert sender.lost.result() is None
                    drained()
                    sent = last + 1 if ending == "close" else last - 1
                    assert arrived == list(range(sent))

    run(main())


def test_the_port_is_free_once_the_endpoint_is_closed(run: Run) -> None:
    async def main() -> None:
        async with endpoint() as first:
            name = name_of(first)
        async with endpoint(local_addr=name) as second:
            assert name_of(second) == name

    run(main())


def test_transport_matches_asyncios(run: Run) -> None:
    async def main() -> None:
        async with endpoint() as protocol:
            transport = protocol.transport
            assert isinstance(transport, asyncio.Transport)
            if sys.version_info >= (3, 12):
                assert isinstance(transport, asyncio.DatagramTransport)
            sock = transport.get_extra_info("socket")
            assert type(sock) is asyncio.trsock.TransportSocket
            assert sock.getsockname() == name_of(protocol)
            assert transport.get_protocol() is protocol
            shown = f"fd={sock.fileno()} read=polling write=<idle, bufsize=0>"
            await wait_until(lambda: shown in repr(transport))
            with pytest.raises(RuntimeError, match="is used by transport"):
                asyncio.get_running_loop().add_reader(sock.fileno(), print)
            other = Recorder()
            transport.set_protocol(other)
            assert transport.get_protocol() is other
            transport.sendto(b"to myself", sock.getsockname())
            await wait_until(lambda: other.received)
            transport.set_protocol(protocol)
            transport.close()
            assert " closing " in repr(transport)

    run(main())


def test_callbacks_run_in_the_context_of_the_endpoint(run: Run) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")
    seen: list[str] = []

    class Looks(Recorder):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            seen.append(variable.get())

        def datagram_received(self, data: bytes, addr: Any) -> None:
            super().datagram_received(data, addr)
            seen.append(variable.get())

    async def main() -> None:
        variable.set("endpoint")
        async with endpoint(Looks) as receiver:
            variable.set("later")
            receiver.transport.sendto(b"x", name_of(receiver))
            await wait_until(lambda: receiver.received)
        assert seen == ["endpoint", "endpoint"]

    run(main())


def test_unclosed_endpoint_warns(loop_factory: Any) -> None:
    loop = loop_factory()

    async def main() -> None:
        await loop.create_datagram_endpoint(asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0))

    loop.run_until_complete(main())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loop.close()
        gc.collect()
    assert any("unclosed transport" in str(warning.message) for warning in caught)


def test_a_thousand_endpoints_come_and_go(run: Run) -> None:
    async def main() -> None:
        async with endpoint(Echo) as server:
            for _ in range(10):
                async with contextlib.AsyncExitStack() as stack:
                    clients = [
                        await stack.enter_async_context(endpoint(remote_addr=name_of(server)))
                        for _ in range(100)
                    ]
                    for client in clients:
                        client.transport.sendto(b"ping")
                    await wait_until(lambda: all(client.received for client in clients))  # noqa: B023
            assert len(server.received) == 1000

    run(main())
