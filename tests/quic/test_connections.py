"""Connections of the native API, on every loop: many at once, and how they end."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic
from ringloop._native import quic as native
from ringloop.quic import _driver
from ringloop.quic.asyncio import serve
from ringloop.quic.configuration import QuicConfiguration
from tests.quic.support import SERVER, both, client_config, dialled, echo, relayed, served
from tests.support import wait_until, while_scheduled, within

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]


def test_extra_info_of_a_forgotten_connection(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with served(
            certificates, handler=lambda connection: connection.wait_closed()
        ) as server:
            async with dialled(certificates, server.address) as client:
                await wait_until(lambda: server.connections)
                (peer,) = server.connections
                address = peer.remote_address
            await within(peer.wait_closed(linger=True))
            assert peer.get_extra_info("peername") == address
            assert peer.get_extra_info("cipher", "unknown") == "unknown"
            assert client.get_extra_info("peername") == server.address
            assert client.get_extra_info("sockname", "closed") == "closed"

    run(main())


def test_clients_closed_before_accept_are_skipped(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with served(certificates) as server:
            for _client in range(3):
                async with dialled(certificates, server.address) as client:
                    await within(client.ping())
            await wait_until(lambda: not server.connections, "the end of them all")
            assert not server._waiting
            async with dialled(certificates, server.address) as client:
                await within(client.ping())
                connection = await within(server.accept())
                assert not connection.is_closed
                assert not server._waiting

    run(main())


def test_closing_a_server_closes_many_clients(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        endpoint = quic.Endpoint(_driver.bind("127.0.0.1"))
        config = client_config(certificates, idle_timeout=600.0)
        async with endpoint, served(certificates) as server:
            clients = await within(
                asyncio.gather(
                    *[
                        quic.open_connection(
                            *server.address[:2],
                            server_name="localhost",
                            configuration=config,
                            endpoint=endpoint,
                        )
                        for _ in range(100)
                    ]
                )
            )
            for client in clients:
                await within(client.ping())
            server.close(5)
            await within(server.wait_closed())
            for client in clients:
                await within(client.wait_closed())
            assert {getattr(client.error, "code", None) for client in clients} == {5}

    run(main())


def test_close_passes_code_and_reason_to_waiters(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            stream = await client.open_stream()
            stream.write(b"x")
            waits = [
                stream.read(1),
                client.accept_stream(),
                client.receive_datagram(),
                stream.stopped(),
            ]
            tasks = [asyncio.ensure_future(wait) for wait in waits]
            _accepted = await within(server.accept_stream())
            server.close(7, "enough")
            for result in await within(asyncio.gather(*tasks, return_exceptions=True)):
                assert isinstance(result, quic.ConnectionClosedByPeer), result
                assert (result.code, result.reason) == (7, "enough")
            await within(client.wait_closed())
            with pytest.raises(quic.ConnectionClosedByPeer):
                await client.open_stream()
            with pytest.raises(quic.ConnectionClosed, match="closed here"):
                await server.open_stream()
            assert "closed" in repr(client)

    run(main())


def test_idle_timeout_ends_a_connection_without_keep_alive(
    run: Run, certificates: Certificates
) -> None:
    async def attempt() -> None:
        async with served(certificates) as server, relayed(server.address) as relay:
            async with (
                dialled(certificates, relay.address, idle_timeout=0.3) as quiet,
                dialled(certificates, relay.address, idle_timeout=0.3, keep_alive=0.05) as kept,
            ):
                await within(quiet.wait_closed())
                assert isinstance(quiet.error, quic.IdleTimeout)
                assert not kept.is_closed
                relay.faults.blackhole = True
                await within(kept.wait_closed())
                assert isinstance(kept.error, TimeoutError)

    # A process that is suspended for long is silent, too.
    run(while_scheduled(attempt, 0.1))


@pytest.mark.parametrize(
    ("server", "client", "effective"),
    [
        (40.0, 70.0, 40.0),
        (70.0, 40.0, 40.0),
        (None, 50.0, 50.0),
        (50.0, None, 50.0),
        (None, None, None),
    ],
)
def test_idle_timeout_is_the_smaller_of_both(
    run: Run,
    certificates: Certificates,
    server: float | None,
    client: float | None,
    effective: float | None,
) -> None:
    async def main() -> None:
        async with both(certificates, {"idle_timeout": server}, idle_timeout=client) as (
            ours,
            theirs,
        ):
            assert ours.idle_timeout == theirs.idle_timeout == effective
            await wait_until(lambda: ours.idle_for() > 0.03)
            before = asyncio.get_running_loop().time()
            await within(ours.ping())
            idle = ours.idle_for()
            assert 0 <= idle <= asyncio.get_running_loop().time() - before

    run(main())


def test_server_refuses_connections_past_its_limit(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with served(certificates, max_connections=2) as server:
            async with (
                dialled(certificates, server.address),
                dialled(certificates, server.address),
            ):
                with pytest.raises(quic.TransportError) as refused:
                    await within(dialled(certificates, server.address).__aenter__())
                assert refused.value.code == 2  # CONNECTION_REFUSED

    run(main())


def test_connections_come_and_go(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async def handler(connection: quic.Connection) -> None:
            stream = await connection.accept_stream()
            await echo(stream)
            stream.finish()
            await connection.wait_closed()

        async with served(certificates, handler=handler) as server:
            config = client_config(certificates)

            async def one() -> None:
                async with dialled(
                    certificates, server.address, configuration=config
                ) as connection:
                    stream = await connection.open_stream()
                    stream.write(b"hello")
                    stream.finish()
                    assert await stream.read_to_end() == b"hello"

            for _ in range(5):
                await within(asyncio.gather(*[one() for _ in range(10)]), 30)
            await wait_until(lambda: not server.connections)
            assert server._native.connection_count == 0

    run(main())


def test_several_connections_on_one_socket(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with served(certificates, stream_handler=echo) as server:
            async with quic.Endpoint(_driver.bind("127.0.0.1")) as shared:
                connections = [
                    await quic.open_connection(
                        *server.address[:2],
                        server_name="localhost",
                        endpoint=shared,
                        configuration=client_config(certificates),
                    )
                    for _ in range(3)
                ]
                for connection in connections:
                    async with await connection.open_stream() as stream:
                        stream.write(b"x")
                        stream.finish()
                        assert await within(stream.read_to_end()) == b"x"
                assert len(shared.connections) == 3

    run(main())


def test_lingering_ends_with_the_connections_own_socket(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        async with served(certificates) as server:
            async with dialled(certificates, server.address) as connection:
                lingering = asyncio.ensure_future(connection.wait_closed(linger=True))
                connection.close()
                # It waits for the peer to forget the connection; a slow thread may have missed
                # that.
                await wait_until(lambda: connection.endpoint._changed or lingering.done())
            await within(lingering)

    run(main())


def test_waiters_end_with_the_socket(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with served(certificates) as server:
            endpoint = quic.Endpoint(_driver.bind("127.0.0.1"))
            connections = [
                await quic.open_connection(
                    *server.address[:2],
                    server_name="localhost",
                    endpoint=endpoint,
                    configuration=client_config(certificates),
                )
                for _ in range(2)
            ]
            peers = [await within(server.accept()) for _ in connections]
            waiting = [asyncio.ensure_future(connections[0].wait_closed())]
            stream = await connections[1].open_stream()
            reading = asyncio.ensure_future(stream.read(1))
            await asyncio.sleep(0)
            # Without a close before.
            await within(endpoint.wait_closed())
            await within(waiting[0])
            with pytest.raises(quic.ConnectionClosed):
                await within(reading)
            assert all(connection.is_closed for connection in connections)
            # The peers are notified.
            for peer in peers:
                await within(peer.wait_closed())
                assert isinstance(peer.error, quic.ConnectionClosedByPeer)

    run(main())


def test_waiters_end_with_an_abruptly_closed_socket(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, _server):
            stream = await client.open_stream()
            stream.write(bytes(64 << 20))
            waiting = [
                asyncio.ensure_future(wait)
                for wait in (stream.read(1), stream.drain(), client.receive_datagram())
            ]
            ending = asyncio.ensure_future(client.wait_closed())
            await within(client.ping())
            assert not any(task.done() for task in (*waiting, ending))
            client.endpoint._driver.close()
            for task in waiting:
                with pytest.raises(quic.ConnectionClosed):
                    await within(task)
            await within(ending)

    run(main())


def test_lost_close_is_repeated_while_lingering(run: Run, certificates: Certificates) -> None:
    async def attempt() -> None:
        async with served(certificates) as server, relayed(server.address) as relay:
            async with dialled(certificates, relay.address, idle_timeout=5) as connection:
                peer = await within(server.accept())
                relay.faults.blackhole = True
                connection.close(3, "bye")
                await wait_until(lambda: relay.dropped)
                relay.faults.blackhole = False
                waiting = asyncio.ensure_future(connection.wait_closed(linger=True))
                (await peer.open_stream()).write(b"are you there?")
                await within(peer.wait_closed())
                assert isinstance(peer.error, quic.ConnectionClosedByPeer)
                assert peer.error.code == 3
                await within(waiting)

    # It lingers for three probe timeouts, a few hundredths of a second here.
    run(while_scheduled(attempt, 0.02))


def first_packet(certificates: Certificates) -> bytes:
    """Return the first packet of a client."""
    client = native.Endpoint(events=True)
    client.connect(client_config(certificates), SERVER, "localhost", 0)
    return client.datagrams_to_send(0)[0][0]


@pytest.mark.parametrize("shape", ["native", "asyncio"])
def test_unread_clients_are_refused_at_close(
    run: Run, certificates: Certificates, shape: str
) -> None:
    """More of them than the server reads at once, all sent before it runs."""

    async def main() -> None:
        certificate, key = certificates.issue()
        if shape == "native":
            server: Any = await quic.serve(
                host="127.0.0.1", certificate=certificate, private_key=key, alpn=["test"]
            )
            address = server.address
        else:
            configuration = QuicConfiguration(is_client=False, alpn_protocols=["test"])
            configuration.load_cert_chain(certificate, key)
            server = await serve("127.0.0.1", 0, configuration=configuration)
            address = server.sockname
        with ExitStack() as stack:
            clients = []
            for _ in range(60):
                client = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                client.setblocking(False)
                client.sendto(first_packet(certificates), address[:2])
                clients.append(client)
            server.close()
            await within(server.wait_closed())
            heard = [len(client.recv(2000)) > 0 for client in clients]
            assert all(heard)

    run(main())
