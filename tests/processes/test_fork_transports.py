"""Transports in a child of fork(2): closing one ends the child's copy; the parent's goes on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import traceback
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support import pipes
from tests.support.tcp import Peer, Recorder, connected
from tests.support.tls import connected_tls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from tests.support.tls import Certificates

    Run = Callable[[Coroutine[Any, Any, Any]], Any]
    # Has the peer send a byte to the transport, and the transport one to the peer.
    Exchange = Callable[[], Coroutine[Any, Any, None]]

KINDS = ("stream", "unix", "tls", "datagram", "read pipe", "write pipe")
GRACE_SECONDS = int(2 * support.PATIENCE_SECONDS)


@pytest.fixture(autouse=True)
def forks_are_meant(loop_name: str) -> None:
    if loop_name == support.ORACLE:
        pytest.skip(
            "asyncio's child unregisters the parent's descriptors from the epoll they share"
        )


class Datagrams(Recorder, asyncio.DatagramProtocol):
    """Records datagrams as a stream's data."""

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.data += data


async def _pipe(kind: str, stack: contextlib.AsyncExitStack) -> tuple[Any, Any, Any, Any]:
    loop = asyncio.get_running_loop()
    protocol = pipes.Recorder()
    read_end, write_end = os.pipe()
    reader, writer = os.fdopen(read_end, "rb", 0), os.fdopen(write_end, "wb", 0)
    if kind == "read pipe":
        stack.enter_context(writer)
        transport, _ = await pipes.reading(loop, reader, protocol)

        async def send(data: bytes) -> None:
            writer.write(data)

        return transport, protocol, send, None
    stack.enter_context(reader)
    transport, _ = await pipes.writing(loop, writer, protocol)

    async def receive(count: int) -> bytes:
        return reader.read(count)

    return transport, protocol, None, receive


async def _local(kind: str, stack: contextlib.AsyncExitStack) -> tuple[Any, Any, Any, Any]:
    """Connect a Unix socket; one for datagrams, without a name, only receives."""
    loop = asyncio.get_running_loop()
    flavour = socket.SOCK_DGRAM if kind == "datagram" else socket.SOCK_STREAM
    ours, theirs = socket.socketpair(socket.AF_UNIX, flavour)
    peer = Peer(stack.enter_context(theirs))
    protocol = Datagrams() if kind == "datagram" else Recorder()
    if kind == "datagram":
        transport: Any
        transport, _ = await loop.create_datagram_endpoint(lambda: protocol, sock=ours)
        return transport, protocol, peer.send, None
    transport, _ = await loop.create_unix_connection(lambda: protocol, sock=ours)
    return transport, protocol, peer.send, peer.receive


@contextlib.asynccontextmanager
async def opened(kind: str, certificates: Certificates) -> AsyncIterator[tuple[Any, Any, Exchange]]:
    """Open a transport; yield it with its protocol and what exchanges bytes with its peer."""
    async with contextlib.AsyncExitStack() as stack:
        protocol: Any = Recorder()
        if kind == "tls":
            transport, tls = await stack.enter_async_context(connected_tls(protocol, certificates))
            send, receive = tls.send_tls, tls.receive_tls
        elif kind == "stream":
            transport, peer = await stack.enter_async_context(connected(protocol))
            send, receive = peer.send, peer.receive
        else:
            connect = _pipe if kind.endswith("pipe") else _local
            transport, protocol, send, receive = await connect(kind, stack)
            stack.callback(transport.close)

        async def exchange() -> None:
            if send is not None:
                before = len(protocol.data)
                await send(b"x")
                await support.wait_until(lambda: len(protocol.data) == before + 1, "a byte")
            if receive is not None:
                transport.write(b"y")
                await asyncio.sleep(0)
                assert await receive(1) == b"y"

        yield transport, protocol, exchange


def _is_lost(protocol: Any) -> bool:
    return pipes.LOST in protocol.calls if hasattr(protocol, "calls") else bool(protocol.is_lost)


@pytest.mark.parametrize("method", ["close", "abort"])
@pytest.mark.parametrize("kind", KINDS)
def test_transport_that_the_child_closes_goes_on_in_the_parent(
    run: Run, certificates: Certificates, kind: str, method: str
) -> None:
    async def main() -> None:
        async with opened(kind, certificates) as (transport, protocol, exchange):
            if not hasattr(transport, method):
                pytest.skip("it has no such method")
            await exchange()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if child == 0:
                signal.alarm(GRACE_SECONDS)
                code = 1
                try:
                    getattr(transport, method)()
                    assert transport.is_closing()
                    if sys.version_info < (3, 14):
                        # Later ones have no running loop for the child's tasks.
                        for _ in range(5):
                            await asyncio.sleep(0)
                        assert _is_lost(protocol)
                    code = 0
                except BaseException:
                    traceback.print_exc()
                    sys.stderr.flush()
                finally:
                    os._exit(code)
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
            assert os.waitstatus_to_exitcode(status) == 0
            for _ in range(3):
                await exchange()
            assert not _is_lost(protocol)

    run(main())
