"""Unreferenced TLS transports: kept while the connection below reads, collected once it is paused.

asyncio's selector holds what is below for as long as it reads; ciphertext is read ahead of a paused
protocol until the limit of what waits for it.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.collected import is_collected, warnings_until_collected
from tests.support.tcp import socket_pair
from tests.support.tls import TlsPeer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.support.tls import Certificates

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

pytestmark = [
    pytest.mark.usefixtures("tls_engine"),
    pytest.mark.one_thread("collection, warnings and descriptors are the process's"),
]


class Plain(asyncio.Protocol):
    """Holds its transport, as most do: a cycle."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport


async def paused(certificates: Certificates) -> tuple[Any, TlsPeer, int]:
    """Return a transport without other references, its peer, and its descriptor's number."""
    ours, theirs = socket_pair()
    peer = TlsPeer(theirs, certificates.server(), server_side=True)
    loop = asyncio.get_running_loop()
    (transport, _), _ = await asyncio.gather(
        loop.create_connection(
            Plain, sock=ours, ssl=certificates.client(), server_hostname="localhost"
        ),
        peer.handshake(),
    )
    transport.pause_reading()
    return transport, peer, ours.fileno()


def test_paused_transport_is_kept_while_little_is_unread(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        transport, peer, number = await paused(certificates)
        await peer.send_tls(b"little")
        seen = weakref.ref(transport)
        del transport
        for _ in range(3):
            await asyncio.sleep(0.005)
            assert not is_collected(seen)
        kept: Any = seen()
        kept.abort()
        await support.wait_until(lambda: number not in support.open_descriptors(), "the end")
        peer.close()

    run(main())


def test_paused_transport_with_much_unread_is_collected(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        transport, peer, number = await paused(certificates)
        # More than the kernel and what is read ahead take: it ends by the reset of the collected one.
        sending = asyncio.ensure_future(peer.send_tls(bytes(32 << 20)))
        seen = weakref.ref(transport)
        del transport
        texts = await warnings_until_collected(seen)
        assert any("unclosed transport" in text for text in texts)
        with pytest.raises(OSError):
            await support.within(sending)
        assert number not in support.open_descriptors()
        peer.close()

    run(main())
