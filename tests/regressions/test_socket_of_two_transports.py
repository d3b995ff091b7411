"""A socket with a transport was given a second one, and two readers shared its bytes.

asyncio refuses it since 3.12, for plain and for TLS connections and for datagram endpoints.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import Recorder, connected

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 12), reason="asyncio of 3.11 makes the second transport"
)


@pytest.mark.skipif(
    sys.version_info >= (3, 15),
    reason="asyncio closes the socket of a connection that fails, here the first transport's",
)
@pytest.mark.parametrize("tls", [False, True])
def test_connected_socket_gets_one_transport(run: Run, tls: bool) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        first = Recorder()
        arguments: dict[str, Any] = {}
        if tls:
            arguments = {"ssl": ssl.create_default_context(), "server_hostname": "localhost"}
        async with connected(first) as (transport, peer):
            sock = transport.get_extra_info("socket")._sock
            with pytest.raises(RuntimeError, match="is used by transport"):
                await loop.create_connection(asyncio.Protocol, sock=sock, **arguments)
            await peer.send(b"for the first")
            transport.write(b"from the first")
            assert await peer.receive(14) == b"from the first"

    run(main())


def test_datagram_socket_gets_one_transport(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.setblocking(False)
        sock.bind(("127.0.0.1", 0))
        transport, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, sock=sock)
        with pytest.raises(RuntimeError, match="is used by transport"):
            await loop.create_datagram_endpoint(asyncio.DatagramProtocol, sock=sock)
        transport.close()
        await support.wait_until(lambda: sock.fileno() == -1, "the socket to be closed")

    run(main())
