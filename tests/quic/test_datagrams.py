"""Datagrams of the native API, on every loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic
from tests.quic.support import both, dialled, relayed, served
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]


def test_datagrams(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            size = client.max_datagram_size
            assert size is not None
            assert await client.send_datagram(bytes(size))
            assert len(await within(server.receive_datagram())) == size
            with pytest.raises(quic.DatagramError, match="longer than the path"):
                await client.send_datagram(bytes(size + 2000))
            assert await client.send_datagrams([b"1", b"2", b"3"]) == 3
            taken: list[bytes] = []
            while len(taken) < 3:
                taken += await within(server.receive_datagrams())
            assert taken == [b"1", b"2", b"3"]

    run(main())


def test_datagram_policies(run: Run, certificates: Certificates) -> None:
    new, kept, waited = (bytes([number]) * 1000 for number in (1, 2, 3))

    async def main() -> None:
        async with both(certificates, datagram_send_buffer=3000) as (client, server):
            await within(client.ping())
            while client.send_datagram_nowait(bytes(1000)):
                pass
            assert not await client.send_datagram(new, "drop_new")
            assert await client.send_datagram(kept, "drop_oldest")
            taken = await within(_until(server, kept))
            assert new not in taken
            while client.send_datagram_nowait(bytes(1000)):
                pass
            assert await within(client.send_datagram(waited))
            await within(_until(server, waited))

    run(main())


def test_datagrams_beyond_the_queue_limit(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        # Of different lengths, and not all of them bytes.
        datagrams = [bytes([number]) * (40 * number) for number in range(1, 25)]
        given: list[bytes | bytearray] = [bytearray(datagrams[0]), *datagrams[1:]]
        async with both(certificates, datagram_send_buffer=3000) as (client, server):
            await within(client.ping())
            count = await client.send_datagrams(given, "drop_new")
            assert 0 < count < len(datagrams)
            taken: list[bytes] = []
            while len(taken) < count:
                taken += await within(server.receive_datagrams())
            assert taken == datagrams[:count]
            assert await within(client.send_datagrams(given)) == len(datagrams)
            assert await within(client.send_datagrams(given, "drop_oldest")) == len(datagrams)
            await within(_until(server, datagrams[-1]))
            with pytest.raises(TypeError):
                await client.send_datagrams([b"1", "2"])  # type: ignore[list-item]

    run(main())


async def _until(connection: quic.Connection, last: bytes) -> list[bytes]:
    taken: list[bytes] = []
    while last not in taken:
        taken += await connection.receive_datagrams()
    return taken


def test_datagram_expires_in_a_blackhole(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with served(certificates) as server, relayed(server.address) as relay:
            async with dialled(
                certificates, relay.address, datagram_send_buffer=3000
            ) as connection:
                relay.faults.blackhole = True
                sent = True
                for _ in range(200):
                    sent = await connection.send_datagram(bytes(1000), expires=0.05)
                    if not sent:
                        break
                assert not sent

    run(main())


def test_peer_without_datagram_support(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates, {"datagram_receive_buffer": None}) as (client, _):
            assert client.max_datagram_size is None
            with pytest.raises(quic.DatagramError, match="accepts no datagrams"):
                await client.send_datagram(b"x")

    run(main())


@pytest.mark.parametrize("policy", ["drop-oldest", "WAIT", None, True])
def test_policies_that_there_are_not(policy: Any, run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, _):
            with pytest.raises(ValueError, match=r"policy is .*'drop_oldest'"):
                await client.send_datagram(b"x", policy)
            with pytest.raises(ValueError, match=r"policy is .*'drop_oldest'"):
                await client.send_datagrams([b"x"], policy)

    run(main())
