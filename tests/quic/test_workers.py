"""Several servers at one address, and their shared state, on every loop."""

from __future__ import annotations

import socket
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic
from tests.quic.support import Pair, client_config, dialled, echo, relayed, served
from tests.support import wait_until, within

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]

CLIENTS_MAX = 200


async def asked(connection: quic.Connection) -> None:
    stream = await connection.open_stream()
    stream.write(b"asked")
    stream.finish()
    assert await within(stream.read_to_end()) == b"asked"


def test_clients_that_move_stay_with_their_worker(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            servers = [
                await stack.enter_async_context(
                    served(certificates, stream_handler=echo, worker=worker)
                )
                for worker in quic.bind_workers("127.0.0.1", count=3)
            ]
            address = servers[0].address
            assert all(server.address == address for server in servers)
            connections: list[quic.Connection] = []
            # A client's first id selects the worker, at random.
            while len(connections) < 12 or not all(server.connections for server in servers):
                assert len(connections) < CLIENTS_MAX
                connections.append(await stack.enter_async_context(dialled(certificates, address)))

            def counts() -> list[int]:
                return [len(server.connections) for server in servers]

            await wait_until(lambda: sum(counts()) == len(connections))
            before = counts()
            for _ in range(3):
                for connection in connections:
                    await within(connection.rebind("127.0.0.1"))
                    await asked(connection)
            assert counts() == before

    run(main())


def test_worker_keeps_a_client_behind_a_restarted_nat(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            servers = [
                await stack.enter_async_context(
                    served(certificates, stream_handler=echo, worker=worker, retry="always")
                )
                for worker in quic.bind_workers("127.0.0.1", count=2)
            ]
            relay = await stack.enter_async_context(relayed(servers[0].address))
            connection = await stack.enter_async_context(dialled(certificates, relay.address))
            # Addresses must not change until the server has the end of the handshake (RFC 9000 §9).
            await asked(connection)
            for _ in range(5):
                relay.rebind()
                await asked(connection)

    run(main())


@pytest.mark.parametrize("count", [0, 257])
def test_number_of_workers_is_between_1_and_256(count: int) -> None:
    with pytest.raises(ValueError, match="1 to 256"):
        quic.bind_workers("127.0.0.1", count=count)


def test_sessions_in_a_directory_are_resumed_by_another_server_once(
    run: Run, certificates: Certificates, tmp_path: Path
) -> None:
    async def main() -> None:
        folder = tmp_path / "sessions"
        config = client_config(certificates)
        keywords = {"stream_handler": echo, "early_data": True, "sessions": folder}
        async with served(certificates, **keywords) as first:
            async with dialled(certificates, first.address, configuration=config) as connection:
                await asked(connection)
            assert list(folder.iterdir())
            port = first.address[1]
        # Like another process: only the directory is shared.
        async with served(certificates, port=port, **keywords) as second:
            async with dialled(
                certificates, second.address, configuration=config, early_data=True
            ) as connection:
                assert connection.is_handshaking
                await asked(connection)
                await within(connection.wait_connected())
                assert connection.early_data_accepted
        for path in folder.iterdir():
            path.unlink()
        # Without its session it is a new client.
        async with served(certificates, port=port, **keywords) as third:
            async with dialled(certificates, third.address, configuration=config) as connection:
                await asked(connection)
                agreed = connection.handshake()
                assert agreed
                assert not agreed.is_resumed

    run(main())


def test_tokens_in_a_directory_spare_the_next_client_a_retry(
    certificates: Certificates, tmp_path: Path
) -> None:
    folder, secret = tmp_path / "tokens", bytes(range(64))

    def connected() -> list[bool]:
        """Connect to a new server; tell which of its datagrams are Retry packets (RFC 9000 §17.2.5)."""
        pair, retries = Pair.make(certificates, {"token_secret": secret}, retry="always"), []

        def network(datagram: bytes, from_client: bool) -> list[bytes]:
            if not from_client:
                retries.append(datagram[0] & 0xF0 == 0xF0)
            return [datagram]

        pair.network = network
        # Version 1, whose Retry is recognized by its first byte.
        connection = pair.connect(client_config(certificates, token_store=folder))
        pair.run_until(lambda: connection.is_confirmed)
        pair.exchange()
        return retries

    assert True in connected()
    assert list(folder.glob("token-*"))
    # The directory identifies the client, the secret the server.
    assert True not in connected()
    for path in folder.iterdir():
        path.unlink()
    assert True in connected()


def test_preferred_address_is_reported(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        preferred = ("127.0.0.2", 4433)
        async with served(certificates, preferred_address=preferred) as server:
            async with dialled(certificates, server.address) as connection:
                parameters = connection.peer_transport_parameters()
                assert parameters is not None
                assert socket.inet_aton("127.0.0.2") + (4433).to_bytes(2, "big") in parameters
                # It stays at its address: see docs/quic.md.
                await within(connection.ping())
                assert connection.remote_address == server.address

    run(main())
