"""`ringloop.quic.asyncio`: connect, serve and protocols in aioquic's style, on every loop."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from ringloop.quic import events
from ringloop.quic.asyncio import QuicConnectionProtocol, connect, serve
from ringloop.quic.configuration import QuicConfiguration
from ringloop.quic.connection import QuicConnection
from ringloop.quic.errors import StreamClosedError, StreamResetError, StreamStoppedError
from tests.quic.shape import both, echo, port_of, served
from tests.quic.test_shape_connection import client_side, server_side
from tests.support import wait_until, within

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.support.tls import Certificates

    Run = Callable[[Coroutine[Any, Any, None]], None]

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def test_bytes_go_there_and_back(certificates: Certificates, run: Run) -> None:
    async def main() -> None:
        async with both(certificates, stream_handler=echo) as protocol:
            reader, writer = await protocol.create_stream()
            assert writer.get_extra_info("stream_id") == 0
            sent = bytes(range(256)) * 8192
            sending = asyncio.ensure_future(write_all(writer, sent))
            assert await reader.read() == sent
            await sending
            await writer.wait_closed()

    run(main())


async def write_all(writer: asyncio.StreamWriter, data: bytes) -> None:
    for start in range(0, len(data), 10_000):
        writer.write(data[start : start + 10_000])
        await writer.drain()
    writer.write_eof()


def test_streams_past_the_peers_limit_all_arrive_and_are_freed(
    certificates: Certificates, run: Run
) -> None:
    async def main() -> None:
        configuration = server_side(certificates, max_streams_bidi=7)
        protocols: list[QuicConnectionProtocol] = []

        def made(connection: QuicConnection, **keywords: Any) -> QuicConnectionProtocol:
            protocols.append(QuicConnectionProtocol(connection, **keywords))
            return protocols[-1]

        async with both(
            certificates, configuration=configuration, stream_handler=echo, create_protocol=made
        ) as protocol:

            async def one(number: int) -> None:
                reader, writer = await protocol.create_stream()
                writer.write(b"%d" % number)
                writer.write_eof()
                assert await reader.read() == b"%d" % number

            await asyncio.gather(*[one(number) for number in range(60)])
            assert not protocol._QuicConnectionProtocol__streams
            await protocol.ping()
            assert not protocols[0]._QuicConnectionProtocol__streams

    run(main())


def test_drain_waits_and_a_full_reader_blocks_the_peer(
    certificates: Certificates, run: Run
) -> None:
    async def main() -> None:
        server_readers: list[asyncio.StreamReader] = []
        configuration = server_side(certificates, max_stream_data=1 << 18)

        def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            server_readers.append(reader)
            writers.append(writer)

        writers: list[asyncio.StreamWriter] = []
        async with both(
            certificates,
            client={"send_window": 1 << 18},
            configuration=configuration,
            stream_handler=keep,
        ) as protocol:
            _reader, writer = await protocol.create_stream()
            written = 0

            async def fill() -> None:
                nonlocal written
                while written < 8 << 20:
                    writer.write(bytes(1 << 14))
                    written += 1 << 14
                    await writer.drain()
                writer.write_eof()

            filling = asyncio.ensure_future(fill())
            # Its reader is full; what the stream's credit allows still arrives.
            kept: list[Any] = server_readers
            await wait_until(lambda: kept and kept[0]._paused, "a full reader")
            # Until two round trips bring no more.
            before = -1
            while before != written:
                before = written
                await protocol.ping()
                await protocol.ping()
            assert not filling.done()
            assert written < 1 << 20
            (reader,) = server_readers
            assert len(reader._buffer) < 1 << 19  # type: ignore[attr-defined]
            total = 0
            while data := await reader.read(1 << 16):
                total += len(data)
            await filling
            assert total == 8 << 20

    run(main())


def test_ping_answered_within_the_iteration_completes(certificates: Certificates, run: Run) -> None:
    async def main() -> None:
        async with served(certificates) as server:
            async with connect(
                "127.0.0.1", port_of(server), configuration=client_side(certificates)
            ) as protocol:
                for _ in range(3):
                    ping = asyncio.ensure_future(protocol.ping())
                    await asyncio.sleep(0)
                    # Longer than the peer may delay an acknowledgement.
                    end = time.monotonic() + 0.1
                    while time.monotonic() < end:
                        server._native.turn()
                    protocol._quic._endpoint.turn()
                    await within(ping)

    run(main())


def test_data_before_a_clean_close_reaches_a_slow_reader(
    certificates: Certificates, run: Run
) -> None:
    async def main() -> None:
        size = 10 << 20
        protocols: list[QuicConnectionProtocol] = []
        totals: list[int] = []

        def made(connection: QuicConnection, **keywords: Any) -> QuicConnectionProtocol:
            protocols.append(QuicConnectionProtocol(connection, **keywords))
            return protocols[-1]

        async def slow(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
            totals.append(0)
            at = len(totals) - 1
            totals[at] += len(await reader.read(1 << 16))
            await protocols[0].wait_closed()
            while data := await reader.read(1 << 16):
                totals[at] += len(data)
                await asyncio.sleep(0)
            ended.set()

        ended = asyncio.Event()
        async with served(
            certificates,
            configuration=server_side(certificates, max_stream_data=2 * size, max_data=2 * size),
            stream_handler=slow,
            create_protocol=made,
        ) as server:
            async with connect(
                "127.0.0.1", port_of(server), configuration=client_side(certificates)
            ) as protocol:
                _reader, writer = await protocol.create_stream()
                await write_all(writer, bytes(size))
                # The peer has all of it once the stream is gone.
                with pytest.raises(StreamClosedError):
                    while True:
                        protocol._quic._native.set_stream_priority(0, 0)
                        await asyncio.sleep(0.001)
            await within(ended.wait())
            for _ in range(10):
                await asyncio.sleep(0)
            assert totals == [size]

    run(main())


def test_no_stream_is_opened_on_a_closed_connection(certificates: Certificates, run: Run) -> None:
    async def main() -> None:
        async with both(certificates) as protocol:
            await protocol.aclose()
            with pytest.raises(ConnectionError):
                await protocol.create_stream()

    run(main())


def test_cancelled_wait_closed_of_a_writer_can_be_repeated(
    certificates: Certificates, run: Run
) -> None:
    async def main() -> None:
        async with both(certificates, stream_handler=echo) as protocol:
            reader, writer = await protocol.create_stream()
            writer.write(b"all of it")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(writer.wait_closed(), 0.001)
            assert not writer.is_closing()
            writer.close()
            await writer.wait_closed()
            assert await within(reader.read()) == b"all of it"

    run(main())


def test_transport_code_0_is_eof_for_readers(certificates: Certificates, run: Run) -> None:
    async def main() -> None:
        async with both(certificates, stream_handler=echo) as client:
            reader, _writer = await client.create_stream()
            client._end_streams(
                events.ConnectionTerminated(error_code=0, frame_type=0, reason_phrase="")
            )
            assert await within(reader.read()) == b""

    run(main())


def test_resets_and_stops_reach_readers_and_writers(certificates: Certificates, run: Run) -> None:
    async def main() -> None:
        arrived: asyncio.Queue[Streams] = asyncio.Queue()
        async with both(
            certificates, stream_handler=lambda reader, writer: arrived.put_nowait((reader, writer))
        ) as protocol:
            _reader, writer = await protocol.create_stream()
            writer.write(b"begun")
            there, back = await arrived.get()
            assert await there.readexactly(5) == b"begun"
            protocol._quic.reset_stream(0, 42)
            protocol.transmit()
            with pytest.raises(StreamResetError) as failure:
                await there.read()
            assert failure.value.code == 42
            writer.close()
            back.close()

            _reader, writer = await protocol.create_stream()
            writer.write(b"begun")
            there, back = await arrived.get()
            back.transport.protocol._quic.stop_stream(4, 43)  # type: ignore[attr-defined]
            with pytest.raises(StreamStoppedError) as stopped:
                while True:
                    await writer.drain()
                    await protocol.ping()
            assert stopped.value.code == 43
            assert writer.is_closing()
            back.close()

    run(main())


def test_waiters_end_with_the_connection(certificates: Certificates, run: Run) -> None:
    async def main() -> None:
        async with both(certificates) as protocol:
            reader, writer = await protocol.create_stream()
            writer.write(b"unanswered")
            protocol.close(error_code=9, reason_phrase="enough")
            with pytest.raises(ConnectionError, match="0x9: enough"):
                await reader.read()
            with pytest.raises(ConnectionError):
                await writer.drain()
            await protocol.wait_closed()
            with pytest.raises(ConnectionError):
                await protocol.ping()
            await protocol.aclose()

    run(main())


def test_drain_ends_with_the_connection_if_events_are_overridden(
    certificates: Certificates, run: Run
) -> None:
    class Deaf(QuicConnectionProtocol):
        def quic_event_received(self, event: events.QuicEvent) -> None:
            pass

    async def main() -> None:
        async with (
            served(certificates, create_protocol=Deaf) as server,
            connect(
                "127.0.0.1",
                port_of(server),
                configuration=client_side(certificates),
                create_protocol=Deaf,
            ) as client,
        ):
            _reader, writer = await client.create_stream()
            # More than the windows allow.
            writer.write(bytes(64 << 20))
            draining = asyncio.ensure_future(writer.drain())
            await within(client.ping())
            assert not draining.done()
            client.close(error_code=9)
            with pytest.raises(ConnectionError, match="0x9"):
                await within(draining)
            with pytest.raises(ConnectionError, match="0x9"):
                await writer.drain()

    run(main())


@pytest.mark.parametrize("side", ["client", "server"])
def test_abort_of_the_socket_ends_waiters(certificates: Certificates, run: Run, side: str) -> None:
    async def main() -> None:
        protocols: list[QuicConnectionProtocol] = []

        def make(*arguments: Any, **keywords: Any) -> QuicConnectionProtocol:
            protocols.append(QuicConnectionProtocol(*arguments, **keywords))
            return protocols[-1]

        async with both(certificates, create_protocol=make) as client:
            await within(client.ping())
            protocol: Any = client if side == "client" else protocols[0]
            reader, _writer = await protocol.create_stream()
            waiting = [
                asyncio.ensure_future(wait) for wait in (reader.read(), protocol.wait_closed())
            ]
            await asyncio.sleep(0)
            protocol._transport.abort()
            for task in waiting:
                await within(task)
            with pytest.raises(ConnectionError):
                await protocol.create_stream()

    run(main())


def test_untrusted_server_is_a_connection_error(certificates: Certificates, run: Run) -> None:
    async def main() -> None:
        async with served(certificates) as server:
            configuration = client_side(certificates)
            configuration.server_name = "another.example"
            with pytest.raises(ConnectionError, match="certificate"):
                async with connect("127.0.0.1", port_of(server), configuration=configuration):
                    pytest.fail("it was trusted")
            configuration = client_side(certificates)
            configuration.alpn_protocols = ["other"]
            with pytest.raises(ConnectionError, match="protocol"):
                async with connect("127.0.0.1", port_of(server), configuration=configuration):
                    pytest.fail("there is no common protocol")

    run(main())


@pytest.mark.parametrize("retry", [False, True])
def test_early_data_and_resumption(certificates: Certificates, run: Run, retry: bool) -> None:
    async def main() -> None:
        tickets: list[Any] = []
        async with served(
            certificates,
            stream_handler=echo,
            session_ticket_handler=lambda ticket: None,
            retry=retry,
        ) as server:
            async with connect(
                "127.0.0.1",
                port_of(server),
                configuration=client_side(certificates),
                session_ticket_handler=tickets.append,
            ) as protocol:
                while not tickets:
                    await protocol.ping()
            async with connect(
                "127.0.0.1",
                port_of(server),
                configuration=client_side(certificates, session_ticket=tickets[0]),
                wait_connected=False,
            ) as protocol:
                reader, writer = await protocol.create_stream()
                writer.write(b"early")
                writer.write_eof()
                assert await reader.read() == b"early"
                assert protocol._quic.tls.session_resumed
                assert protocol._quic.tls.early_data_accepted

    run(main())


def test_transport_created_by_the_application(certificates: Certificates, run: Run) -> None:
    async def main() -> None:
        async with served(certificates, stream_handler=echo) as server:
            loop = asyncio.get_running_loop()
            connection = QuicConnection(configuration=client_side(certificates))
            transport, protocol = await loop.create_datagram_endpoint(
                lambda: QuicConnectionProtocol(connection), local_addr=("127.0.0.1", 0)
            )
            protocol.connect(("127.0.0.1", port_of(server)))
            await protocol.wait_connected()
            reader, writer = await protocol.create_stream()
            writer.write(b"sans I/O")
            writer.write_eof()
            assert await reader.read() == b"sans I/O"
            await protocol.ping()
            protocol.close()
            await protocol.wait_closed()
            protocol.transmit()
            if protocol._timer is not None:
                protocol._timer.cancel()
            transport.close()

    run(main())


def test_connections_leave_nothing_at_the_server(certificates: Certificates, run: Run) -> None:
    async def main() -> None:
        seen: weakref.WeakSet[QuicConnectionProtocol] = weakref.WeakSet()

        def made(connection: QuicConnection, **keywords: Any) -> QuicConnectionProtocol:
            protocol = QuicConnectionProtocol(connection, **keywords)
            seen.add(protocol)
            return protocol

        async with served(certificates, create_protocol=made, stream_handler=echo) as server:
            for _connection in range(5):
                configuration = client_side(certificates)
                async with connect(
                    "127.0.0.1", port_of(server), configuration=configuration
                ) as protocol:
                    reader, writer = await protocol.create_stream()
                    writer.write(b"x")
                    writer.write_eof()
                    assert await reader.read() == b"x"
            deadline = asyncio.get_running_loop().time() + 20
            while server._protocols:
                assert asyncio.get_running_loop().time() < deadline
                await asyncio.sleep(0.01)
        gc.collect()
        assert not seen

    run(main())


def test_a_configuration_without_certificate_is_refused(run: Run) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="certificate"):
            await serve("127.0.0.1", 0, configuration=QuicConfiguration(is_client=False))

    run(main())


@pytest.mark.parametrize("waits", [True, False])
def test_changes_right_after_connecting(certificates: Certificates, run: Run, waits: bool) -> None:
    """In the same task step in which the client connected: the server has not confirmed it yet."""

    async def main() -> None:
        async with served(certificates) as server:
            for change in ("change_connection_id", "request_key_update"):
                async with connect(
                    "127.0.0.1",
                    port_of(server),
                    configuration=client_side(certificates),
                    wait_connected=waits,
                ) as client:
                    getattr(client, change)()
                    await within(client.wait_connected())
                    await within(client.ping())

    run(main())
