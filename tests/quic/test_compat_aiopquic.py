"""Applications written for aiopquic: stream numbers, full queues, server connections made by hand."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

import pytest

from ringloop.quic.compat.aiopquic import events
from ringloop.quic.compat.aiopquic.asyncio import (
    QuicConnectionProtocol,
    QuicServer,
    connect,
    serve,
)
from ringloop.quic.compat.aiopquic.configuration import QuicConfiguration
from ringloop.quic.compat.aiopquic.connection import QuicConnection
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.support.tls import Certificates

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

PIECE = bytes(range(256)) * 256


class Noting(QuicConnectionProtocol):
    """Records its events."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.received = bytearray()
        self.events: list[events.QuicEvent] = []
        self.ended = asyncio.Event()
        self.has_datagram = asyncio.Event()

    def quic_event_received(self, event: events.QuicEvent) -> None:
        self.events.append(event)
        if isinstance(event, events.StreamDataReceived):
            self.received += event.data
            if event.end_stream:
                self.ended.set()
        elif isinstance(event, events.DatagramFrameReceived):
            self.has_datagram.set()


def server_configuration(certificates: Certificates, **settings: Any) -> QuicConfiguration:
    configuration = QuicConfiguration(is_client=False, alpn_protocols=["hq-interop"], **settings)
    certificate, key = certificates.issue()
    configuration.load_cert_chain(str(certificate), str(key))
    return configuration


def client_configuration(**settings: Any) -> QuicConfiguration:
    settings.setdefault("verify_mode", ssl.CERT_NONE)
    return QuicConfiguration(is_client=True, alpn_protocols=["hq-interop"], **settings)


def by_hand(certificates: Certificates) -> tuple[QuicConnection, Noting, int]:
    """A server's connection, created before its client."""
    connection = QuicConnection(configuration=server_configuration(certificates))
    connection._start_transport()
    protocol = Noting(connection)
    protocol._start(asyncio.get_running_loop())
    assert connection._transport is not None
    return connection, protocol, connection._transport.sockname[1]


@pytest.mark.parametrize("is_client", [True, False])
def test_stream_numbers_are_reserved_on_request(is_client: bool) -> None:
    first = 0 if is_client else 1
    connection = QuicConnection(configuration=QuicConfiguration(is_client=is_client))
    assert [connection.get_next_available_stream_id() for _ in range(3)] == [
        first,
        first + 4,
        first + 8,
    ]
    uni = [connection.get_next_available_stream_id(is_unidirectional=True) for _ in range(2)]
    assert uni == [first + 2, first + 6]


def test_server_connection_made_by_hand(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        connection, protocol, port = by_hand(certificates)
        async with connect("127.0.0.1", port, configuration=client_configuration()) as client:
            quic: Any = client._quic
            # Streams are opened by number, in any order of the first writes.
            one, other = (quic.get_next_available_stream_id() for _ in range(2))
            quic.send_stream_data(other, b"other")
            quic.send_stream_data(one, b"one", end_stream=True)
            quic.send_datagram_frame(b"datagram")
            await within(protocol.ended.wait())
            await within(protocol.has_datagram.wait())
            connection.send_stream_data(connection.get_next_available_stream_id(), b"back")
            assert not connection.closed
        await within(protocol.wait_closed())
        assert connection.closed
        assert connection.bytes_received > 0
        assert sorted(
            bytes(it.data) for it in protocol.events if isinstance(it, events.StreamDataReceived)
        ) == [b"one", b"other"]
        # Both have ended: nothing happens.
        connection.send_stream_data(1, b"late")
        await within(connection.send_stream_data_drained(1, b"late"))
        connection.stop()
        assert connection._transport is not None
        await within(connection._transport.aclose())

    run(main())


def test_client_connection_made_by_hand(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        made: asyncio.Future[Noting] = asyncio.get_running_loop().create_future()

        def protocol_of(quic: QuicConnection, stream_handler: Any = None) -> Noting:
            assert isinstance(quic, QuicConnection)
            made.set_result(Noting(quic, stream_handler=stream_handler))
            return made.result()

        server = await serve(
            "127.0.0.1",
            0,
            configuration=server_configuration(certificates),
            create_protocol=protocol_of,
        )
        assert isinstance(server, QuicServer)
        quic = QuicConnection(configuration=client_configuration(server_name="localhost"))
        quic._start_transport()
        async with Noting(quic) as client:
            client._start()
            client.connect(server.sockname)
            await within(client.wait_connected())
            quic.send_stream_data(quic.get_next_available_stream_id(), b"x", end_stream=True)
            await within((await within(made)).ended.wait())
        assert quic.closed
        assert quic._transport is not None
        await within(quic._transport.aclose())
        await within(server.aclose())

    run(main())


def test_full_queue_is_reported_and_awaited(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        connection, protocol, port = by_hand(certificates)
        configuration = client_configuration(stream_ring_cap=1 << 20, send_window=1 << 20)
        async with connect("127.0.0.1", port, configuration=configuration) as client:
            quic: Any = client._quic
            stream_id = quic.get_next_available_stream_id()
            count = 0
            with pytest.raises(ValueError, match="stream_ring_cap"):
                quic.send_stream_data(stream_id, bytes((1 << 20) + 1))
            with pytest.raises(BufferError, match="stream_ring_cap"):
                for _ in range(1000):
                    quic.send_stream_data(stream_id, PIECE)
                    count += 1
            # All or nothing was accepted, and the event tells when there is room.
            assert 0 < quic.tx_data_ring_used(stream_id) <= 1 << 20
            await within(quic.get_tx_data_drain_event(stream_id).wait())
            for _ in range(50):
                await within(quic.send_stream_data_drained(stream_id, PIECE))
            await within(quic.send_stream_data_drained(stream_id, b"", end_stream=True))
            await within(protocol.ended.wait())
            assert protocol.received == PIECE * (count + 50)
        connection.stop()
        assert connection._transport is not None
        await within(connection._transport.aclose())

    run(main())


def test_end_of_the_connection_wakes_waiters_for_room(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        server = await serve("127.0.0.1", 0, configuration=server_configuration(certificates))
        configuration = client_configuration(stream_ring_cap=1 << 16, send_window=1 << 16)
        async with connect(*server.sockname, configuration=configuration) as client:
            quic: Any = client._quic
            stream_id = quic.get_next_available_stream_id()

            async def push() -> None:
                while not quic.closed:
                    await quic.send_stream_data_drained(stream_id, PIECE)

            pushing = asyncio.ensure_future(push())
            await asyncio.sleep(0)
            client.close()
            await within(pushing)
        await within(server.aclose())

    run(main())


def test_clients_verify_as_configured(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        server = await serve("127.0.0.1", 0, configuration=server_configuration(certificates))
        port = server.sockname[1]
        trusting = client_configuration(verify_mode=None)
        trusting.load_verify_locations(cafile=str(certificates.authority))
        for configuration in (client_configuration(), trusting):
            configuration.server_name = "localhost"
            async with connect("127.0.0.1", port, configuration=configuration):
                pass
        # A CA does not make another name valid, and by default one of the system's is asked for.
        other = client_configuration(server_name="other.example", verify_mode=None)
        other.load_verify_locations(cafile=str(certificates.authority))
        usual = client_configuration(server_name="localhost", verify_mode=None)
        for configuration in (other, usual):
            with pytest.raises(ConnectionError):
                async with connect("127.0.0.1", port, configuration=configuration):
                    pytest.fail("it was trusted")
        await within(server.aclose())

    run(main())


def test_defaults_are_those_of_aiopquic(tmp_path: Any) -> None:
    configuration = QuicConfiguration(qlog_dir=str(tmp_path))
    assert configuration.idle_timeout == 30.0
    assert configuration.max_datagram_frame_size == 65535
    assert configuration.stream_ring_cap == 4 << 20
    assert configuration.max_connections == 256
    assert configuration.quic_logger is not None
