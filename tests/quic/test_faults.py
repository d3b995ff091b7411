"""Strangers, greedy and slow peers, failing networks: servers of the native API on every loop."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic
from ringloop.quic import _driver
from tests.quic.support import client_config, dialled, echo, relayed, served
from tests.quic.test_limits import NAMES, first_flight
from tests.support import until_memory_stays, wait_until, while_scheduled, within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]


@pytest.fixture
def stranger() -> Iterator[socket.socket]:
    """A socket that belongs to no client."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock


def heard(sock: socket.socket) -> list[bytes]:
    datagrams = []
    while True:
        try:
            datagrams.append(sock.recv(65_535))
        except BlockingIOError:
            return datagrams


def test_silent_stranger_is_limited_to_three_times_its_bytes(
    run: Run, certificates: Certificates, stranger: socket.socket
) -> None:
    async def main() -> None:
        certificate, key = certificates.issue("long", NAMES)
        patience = {"idle_timeout": 0.5, "initial_rtt": 0.02}
        flight = first_flight(certificates)
        async with served(
            certificates, certificate=certificate, private_key=key, **patience
        ) as server:
            for datagram in flight:
                stranger.sendto(datagram, server.address)
            await wait_until(lambda: server._native.connection_count)
            answered: list[bytes] = []

            def is_over() -> bool:
                answered.extend(heard(stranger))
                return server._native.connection_count == 0

            await wait_until(is_over)
            answered += heard(stranger)
        came, went = sum(map(len, flight)), sum(map(len, answered))
        assert 2 * came < went <= 3 * came

    run(while_scheduled(main, 0.2))


def test_lingering_ends_if_a_client_vanished_during_its_handshake(
    run: Run, certificates: Certificates, stranger: socket.socket
) -> None:
    async def main() -> None:
        async def handle(connection: quic.Connection) -> None:
            await connection.wait_closed()

        async with served(certificates, handler=handle, initial_rtt=0.02) as server:
            for datagram in first_flight(certificates):
                stranger.sendto(datagram, server.address)
            await wait_until(lambda: server._native.connection_count)
            assert not server.connections
            server.close()
            await within(server.wait_closed(linger=True))
            assert server._native.connection_count == 0

    run(main())


def test_clients_are_served_while_strangers_flood(
    run: Run, certificates: Certificates, stranger: socket.socket
) -> None:
    async def main() -> None:
        (datagram, *_) = first_flight(certificates)
        async with served(certificates, stream_handler=echo, retry="always") as server:
            answers = clients = 0

            def heard_of() -> int:
                nonlocal answers
                came = heard(stranger)
                assert all(len(answer) < 200 for answer in came)
                answers += len(came)
                return len(came)

            async def flood() -> None:
                # Leave room in its queue: what is lost is sent again after a second.
                while answers < 100 or clients < 2:
                    for _ in range(8):
                        stranger.sendto(datagram, server.address)
                    await wait_until(heard_of)
                    assert server._native.connection_count <= clients

            task = asyncio.ensure_future(flood())
            while not task.done():
                clients += 1
                async with dialled(certificates, server.address) as connection:
                    stream = await connection.open_stream()
                    stream.write(b"served")
                    stream.finish()
                    assert await within(stream.read_to_end()) == b"served"
            await task
            assert clients > 1

    run(main())


def test_peer_that_never_reads_is_bounded_by_the_windows(
    run: Run, certificates: Certificates
) -> None:
    written: dict[int, int] = {}

    async def pour(stream: quic.Stream) -> None:
        """Answer without end, as far as the peer reads."""
        while True:
            await stream.send(bytes(10_000))
            written[stream.id] = written.get(stream.id, 0) + 10_000

    async def main() -> None:
        client = {"max_stream_data": 50_000, "max_data": 400_000, "max_data_grown": 400_000}
        bounds = {"send_window": 200_000, "send_window_min": 200_000}
        async with (
            served(certificates, stream_handler=pour, **bounds) as server,
            dialled(certificates, server.address, **client) as connection,
        ):
            for _ in range(40):
                stream = await connection.open_stream()
                stream.write(b"go on")
                streams.append(stream)
            await wait_until(lambda: len(server._tasks) == 40)
            before = -1
            # Until two round trips bring no more.
            while before != sum(written.values()):
                before = sum(written.values())
                await within(connection.ping())
                await within(connection.ping())
            # In flight or here, unacknowledged, and one write of each handler.
            assert sum(written.values()) <= 400_000 + 200_000 + 40 * 10_000
            # Another client is not affected.
            async with dialled(certificates, server.address) as other:
                stream = await other.open_stream()
                stream.write(b"go on")
                assert len(await within(stream.readexactly(100_000))) == 100_000

    streams: list[quic.Stream] = []
    run(main())


def test_slow_reader_blocks_only_its_own_stream(run: Run, certificates: Certificates) -> None:
    data = bytes(range(250)) * 2000

    async def send_all(stream: quic.Stream) -> None:
        await stream.readexactly(2)
        await stream.send(data)

    async def main() -> None:
        windows = {"max_stream_data": 20_000, "max_data": 100_000}
        async with (
            served(certificates, stream_handler=send_all) as server,
            dialled(certificates, server.address, **windows) as connection,
        ):
            slow = await connection.open_stream()
            slow.write(b"go")
            taken = bytearray(await within(slow.readexactly(10)))
            for _ in range(3):
                quick = await connection.open_stream()
                quick.write(b"go")
                assert await within(quick.read_to_end()) == data
                taken += await within(slow.readexactly(10))
            while piece := await within(slow.read(777)):
                taken += piece
            assert taken == data

    run(main())


def test_streams_of_a_vanished_client_are_freed(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        ended: list[BaseException] = []

        async def wait(stream: quic.Stream) -> None:
            try:
                await stream.read_to_end()
            except ConnectionError as error:
                ended.append(error)
                raise

        async with served(certificates, stream_handler=wait, idle_timeout=0.4) as server:
            async with relayed(server.address) as relay:
                config = client_config(certificates)
                connection = await quic.open_connection(
                    *relay.address, server_name="localhost", configuration=config
                )
                try:
                    streams = [await connection.open_stream() for _ in range(20)]
                    for stream in streams:
                        stream.write(b"x")
                    await wait_until(lambda: len(server._tasks) == 20)
                    relay.faults.blackhole = True
                    await wait_until(lambda: not server._tasks)
                    assert len(ended) == 20
                    assert all(isinstance(error, quic.IdleTimeout) for error in ended)
                    await wait_until(lambda: not server.connections)
                finally:
                    connection.close()
                    await within(connection.endpoint._after_close(connection))

    run(while_scheduled(main, 0.15))


@pytest.mark.loop_errors
def test_handler_that_raises_closes_only_its_connection(
    run: Run, certificates: Certificates, loop: asyncio.AbstractEventLoop, loop_log: Any
) -> None:
    reported: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: reported.append(context))

    async def handler(connection: quic.Connection) -> None:
        stream = await connection.accept_stream()
        if await stream.read(1) == b"!":
            raise ZeroDivisionError
        await connection.wait_closed()

    async def main() -> None:
        async with (
            served(certificates, handler=handler) as server,
            dialled(certificates, server.address) as other,
        ):
            (await other.open_stream()).write(b".")
            async with dialled(certificates, server.address) as connection:
                stream = await connection.open_stream()
                stream.write(b"!")
                with pytest.raises(quic.ConnectionClosedByPeer) as closed:
                    await within(stream.read(1))
                assert closed.value.code == 1
            await within(other.ping())

    run(main())
    assert [type(context["exception"]) for context in reported] == [ZeroDivisionError]


@pytest.mark.one_thread("it looks at the memory of the process")
def test_ended_connections_leak_no_memory(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        config = client_config(certificates)
        async with served(certificates, stream_handler=echo) as server:
            async with quic.Endpoint(_driver.bind("127.0.0.1")) as client:

                async def one(number: int) -> None:
                    connection = await quic.open_connection(
                        *server.address[:2],
                        server_name="localhost",
                        endpoint=client,
                        configuration=config,
                    )
                    stream = await connection.open_stream()
                    stream.write(bytes(1000))
                    if number % 3:
                        stream.finish()
                        assert len(await stream.read_to_end()) == 1000
                    # Otherwise it is closed with an active stream.
                    connection.close(number, "enough")

                async def churn(count: int) -> None:
                    for number in range(0, count, 20):
                        await within(asyncio.gather(*map(one, range(number, number + 20))))
                    await wait_until(lambda: not server.connections and not client.connections)

                await churn(300)
                # A connection takes some 30 KiB: 12 MiB, if they were kept.
                for _ in until_memory_stays(4 << 20):
                    await churn(400)
                assert not server._tasks

    run(main())


# --- networks -------------------------------------------------------------------------------------


def test_reduced_path_mtu_is_noticed(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        data = bytes(range(256)) * 2000
        async with served(certificates, stream_handler=echo) as server:
            async with relayed(server.address) as relay:
                async with dialled(certificates, relay.address, initial_rtt=0.05) as connection:
                    stream = await connection.open_stream()
                    stream.write(data)
                    assert await within(stream.readexactly(len(data))) == data
                    await wait_until(lambda: connection.stats().mtu_bytes > 1300)
                    relay.faults.longest = 1250
                    stream.write(data)
                    stream.finish()
                    assert await within(stream.read_to_end()) == data
                    assert connection.stats().mtu_bytes <= 1250
                    assert connection.stats().black_hole_count > 0

    run(main())


def test_temporary_blackhole_loses_nothing(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        data = bytes(range(256)) * 2000
        async with served(certificates, stream_handler=echo) as server:
            async with relayed(server.address) as relay:
                async with dialled(certificates, relay.address, initial_rtt=0.05) as connection:
                    stream = await connection.open_stream()
                    stream.write(data)
                    stream.finish()
                    first = await within(stream.readexactly(1000))
                    relay.faults.blackhole = True
                    dropped = relay.dropped
                    await wait_until(lambda: relay.dropped > dropped + 2)
                    relay.faults.blackhole = False
                    assert first + await within(stream.read_to_end()) == data

    run(main())


# linux/socket.h; a socket without checksums sends no GSO batches (udp(7), UDP_SEGMENT).
SO_NO_CHECK = 11


def test_kernel_that_refuses_gso_is_sent_single_datagrams(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        sock = _driver.bind("127.0.0.1")
        sock.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
        data = bytes(range(256)) * 1000

        async def answer(stream: quic.Stream) -> None:
            await stream.send(data)

        async with served(certificates, stream_handler=answer, sock=sock) as server:
            async with dialled(certificates, server.address) as connection:
                for _ in range(3):
                    stream = await connection.open_stream()
                    stream.write(b"x")
                    assert await within(stream.read_to_end()) == data
                stats = connection.stats()
                assert stats.udp_received > 3 * len(data) / 1500
            # The first GSO batch was refused; the following ones are not tried.
            (peer,) = server.connections
            stats = peer.stats()
            assert stats.messages_sent > stats.udp_sent * 0.8

    run(main())


def test_transfer_over_both_families_of_one_socket(run: Run, certificates: Certificates) -> None:
    if not Path("/proc/net/if_inet6").exists():
        pytest.skip("no IPv6 here")

    async def main() -> None:
        async with served(certificates, stream_handler=echo) as _:
            pass
        sock = _driver.bind(None)
        async with served(certificates, stream_handler=echo, sock=sock) as server:
            for host in ("127.0.0.1", "::1"):
                address = (host, server.address[1])
                async with dialled(certificates, address) as connection:
                    stream = await connection.open_stream()
                    stream.write(b"x")
                    stream.finish()
                    assert await within(stream.read_to_end()) == b"x"

    run(main())
