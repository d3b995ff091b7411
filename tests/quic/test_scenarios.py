"""Applications in aioquic's style, identical on aioquic and on ours: only the imports differ.

aioquic is the oracle if it is installed (`make quic-shims` installs it); ours always runs. The tests
compare what applications see: events with their order and fields, readers and writers, errors.
"""

from __future__ import annotations

import asyncio
import io
import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.quic.scenarios import (
    Both,
    SansIO,
    Shape,
    client_side,
    connected,
    dialled,
    echo_handler,
    served,
    server_side,
)
from tests.support import wait_until, while_scheduled, within

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]


# --- events ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("retry", [False, True])
def test_events_of_a_connection_from_its_handshake_to_its_close(
    shape: Shape, certificates: Certificates, run: Run, retry: bool
) -> None:
    async def main() -> None:
        events = shape.events
        async with connected(shape, certificates, retry=retry) as both:
            await within(both.client.ping())
            both.client._quic.send_stream_data(0, b"question", end_stream=True)
            both.client.transmit()
            await wait_until(lambda: both.found(events.StreamDataReceived, at_server=True))
            both.client.close(error_code=42, reason_phrase="enough")
            await within(both.client.wait_closed())
            await wait_until(lambda: both.found(events.ConnectionTerminated, at_server=True))
        assert both.kinds(at_server=False) == [
            *("ProtocolNegotiated", "HandshakeCompleted", "PingAcknowledged"),
            "ConnectionTerminated",
        ]
        assert both.kinds(at_server=True) == [
            *("ProtocolNegotiated", "HandshakeCompleted", "StreamDataReceived"),
            "ConnectionTerminated",
        ]
        for at_server in (False, True):
            (negotiated,) = both.found(events.ProtocolNegotiated, at_server=at_server)
            assert negotiated == events.ProtocolNegotiated(alpn_protocol="scenario")
            (completed,) = both.found(events.HandshakeCompleted, at_server=at_server)
            assert completed == events.HandshakeCompleted(
                alpn_protocol="scenario", early_data_accepted=False, session_resumed=False
            )
            (end,) = both.found(events.ConnectionTerminated, at_server=at_server)
            assert end == events.ConnectionTerminated(
                error_code=42, frame_type=None, reason_phrase="enough"
            )
        (received,) = both.found(events.StreamDataReceived, at_server=True)
        assert received == events.StreamDataReceived(data=b"question", end_stream=True, stream_id=0)

    run(main())


def test_bytes_of_streams_arrive_in_order_and_end_once(
    shape: Shape, certificates: Certificates, run: Run
) -> None:
    async def main() -> None:
        events, data = shape.events, bytes(range(256)) * 400
        async with connected(shape, certificates) as both:
            quic = both.client._quic
            for is_unidirectional, stream_id in ((False, 0), (True, 2), (False, 4)):
                assert quic.get_next_available_stream_id(is_unidirectional) == stream_id
                quic.send_stream_data(stream_id, data[:1000])
                quic.send_stream_data(stream_id, data[1000:], True)
            both.client.transmit()

            def of(stream_id: int) -> list[Any]:
                received = both.found(events.StreamDataReceived, at_server=True)
                return [event for event in received if event.stream_id == stream_id]

            def is_ended(stream_id: int) -> bool:
                return any(event.end_stream for event in of(stream_id))

            for stream_id in (0, 2, 4):
                await wait_until(partial(is_ended, stream_id))
                assert b"".join(event.data for event in of(stream_id)) == data
                assert [event.end_stream for event in of(stream_id)].count(True) == 1
                assert of(stream_id)[-1].end_stream

    run(main())


def test_resets_and_stops_are_events_with_codes(
    shape: Shape, certificates: Certificates, run: Run
) -> None:
    async def main() -> None:
        events = shape.events
        async with connected(shape, certificates) as both:
            quic = both.client._quic
            quic.send_stream_data(0, b"begun")
            both.client.transmit()
            await wait_until(lambda: both.found(events.StreamDataReceived, at_server=True))
            (server,) = both.servers
            server._quic.send_stream_data(0, b"answered")
            server._quic.stop_stream(0, 7)
            server.transmit()
            await wait_until(lambda: both.found(events.StopSendingReceived, at_server=False))
            assert both.found(events.StopSendingReceived, at_server=False) == [
                events.StopSendingReceived(error_code=7, stream_id=0)
            ]
            server._quic.reset_stream(0, 9)
            server.transmit()
            await wait_until(lambda: both.found(events.StreamReset, at_server=False))
            assert both.found(events.StreamReset, at_server=False) == [
                events.StreamReset(error_code=9, stream_id=0)
            ]

    run(main())


def test_datagrams_are_events(shape: Shape, certificates: Certificates, run: Run) -> None:
    async def main() -> None:
        events = shape.events
        async with connected(shape, certificates, {"max_datagram_frame_size": 65536}) as both:
            for number in range(5):
                both.client._quic.send_datagram_frame(b"%d" % number)
            both.client.transmit()
            frames = [events.DatagramFrameReceived(data=b"%d" % number) for number in range(5)]
            await wait_until(
                lambda: both.found(events.DatagramFrameReceived, at_server=True) == frames
            )

    run(main())


def test_issued_and_retired_connection_ids_are_events(
    shape: Shape, certificates: Certificates, run: Run
) -> None:
    async def main() -> None:
        events = shape.events
        async with connected(shape, certificates) as both:
            await within(both.client.ping())
            for at_server in (False, True):
                await wait_until(
                    partial(both.found, events.ConnectionIdIssued, at_server=at_server)
                )
            (server,) = both.servers
            first = server._quic.host_cid
            length = server._quic.configuration.connection_id_length
            assert len(first) == length
            assert not both.found(events.ConnectionIdRetired, at_server=True)
            both.client.change_connection_id()
            await within(both.client.ping())
            await wait_until(lambda: both.found(events.ConnectionIdRetired, at_server=True))
            (retired,) = both.found(events.ConnectionIdRetired, at_server=True)
            assert retired.connection_id == first
            issued = [
                event.connection_id
                for event in both.found(events.ConnectionIdIssued, at_server=True)
            ]
            assert len(set(issued)) == len(issued)
            assert all(len(connection_id) == length for connection_id in issued)

    run(main())


def test_refusals_of_tls_are_connection_errors_with_an_alert(
    shape: Shape, certificates: Certificates, run: Run
) -> None:
    async def main() -> None:
        events, both = shape.events, Both()
        async with served(shape, certificates, both):
            other = client_side(shape, certificates)
            other.alpn_protocols = ["another"]
            stranger = client_side(shape, certificates)
            stranger.server_name = "another.example"
            for configuration in (other, stranger):
                both.down.clear()
                with pytest.raises(ConnectionError):
                    async with dialled(shape, certificates, both, configuration=configuration):
                        pytest.fail("it was connected")
                (end,) = both.found(events.ConnectionTerminated, at_server=False)
                assert 0x100 < end.error_code < 0x200
                assert end.frame_type == shape.packet.QuicFrameType.CRYPTO

    run(main())


def test_idle_timeout_has_aioquics_error(
    shape: Shape, certificates: Certificates, run: Run
) -> None:
    async def main() -> None:
        events = shape.events
        async with connected(shape, certificates, {"idle_timeout": 0.3}) as both:
            await within(both.client.wait_closed())
        (end,) = both.found(events.ConnectionTerminated, at_server=False)
        assert end == events.ConnectionTerminated(
            error_code=shape.packet.QuicErrorCode.INTERNAL_ERROR,
            frame_type=shape.packet.QuicFrameType.PADDING,
            reason_phrase="Idle timeout",
        )

    run(while_scheduled(main, 0.1))


# --- streams, protocols ---------------------------------------------------------------------------


def test_readers_and_writers(shape: Shape, certificates: Certificates, run: Run) -> None:
    async def main() -> None:
        tasks: list[Any] = []
        async with connected(shape, certificates, stream_handler=echo_handler(tasks)) as both:
            for number in range(5):
                reader, writer = await both.client.create_stream()
                assert isinstance(reader, asyncio.StreamReader)
                assert isinstance(writer, asyncio.StreamWriter)
                assert writer.get_extra_info("stream_id") == number * 4
                assert writer.can_write_eof()
                writer.write(b"%d " % number)
                writer.writelines([b"line\n", b"after line"])
                await writer.drain()
                writer.write_eof()
                assert writer.is_closing()
                assert await within(reader.readline()) == b"%d line\n" % number
                assert await within(reader.read()) == b"after line"
                assert reader.at_eof()
        await asyncio.gather(*tasks)

    run(main())


def test_readers_end_with_the_connection(
    shape: Shape, certificates: Certificates, run: Run
) -> None:
    async def main() -> None:
        async with connected(shape, certificates) as both:
            reader, writer = await both.client.create_stream()
            writer.write(b"x")
            await wait_until(lambda: both.found(shape.events.StreamDataReceived, at_server=True))
            both.servers[0].close()
            assert await within(reader.read()) == b""
            await within(both.client.wait_closed())

    run(main())


def test_pings_key_updates_and_ids_during_a_transfer(
    shape: Shape, certificates: Certificates, run: Run
) -> None:
    async def main() -> None:
        tasks: list[Any] = []
        async with connected(shape, certificates, stream_handler=echo_handler(tasks)) as both:
            for step in (both.client.request_key_update, both.client.change_connection_id) * 2:
                reader, writer = await both.client.create_stream()
                writer.write(bytes(50_000))
                writer.write_eof()
                step()
                assert await within(reader.read()) == bytes(50_000)
                await within(both.client.ping())
        await asyncio.gather(*tasks)

    run(main())


def test_overridden_transmit_is_called(shape: Shape, certificates: Certificates, run: Run) -> None:
    """For applications that send gathered data once all events of a datagram were handled."""

    async def main() -> None:
        events, calls = shape.events, []

        class Gathering(shape.asyncio.QuicConnectionProtocol):  # type: ignore[misc]
            def __init__(self, *arguments: Any, **keywords: Any) -> None:
                super().__init__(*arguments, **keywords)
                self.gathered: list[tuple[int, bytes]] = []

            def quic_event_received(self, event: Any) -> None:
                if isinstance(event, events.StreamDataReceived):
                    self.gathered.append((event.stream_id, event.data))

            def transmit(self) -> None:
                calls.append(len(self.gathered))
                for stream_id, data in self.gathered:
                    self._quic.send_stream_data(stream_id, data.upper(), True)
                self.gathered = []
                super().transmit()

        async with connected(shape, certificates, create_protocol=Gathering) as both:
            reader, writer = await both.client.create_stream()
            writer.write(b"shout")
            writer.write_eof()
            assert await within(reader.read()) == b"SHOUT"
            assert sum(calls) == 1

    run(main())


# --- sessions, logs -------------------------------------------------------------------------------


def test_sessions_are_resumed_with_early_data(
    shape: Shape, certificates: Certificates, run: Run
) -> None:
    async def main() -> None:
        kept: dict[bytes, Any] = {}
        tickets: list[Any] = []
        tokens: list[bytes] = []
        tasks: list[Any] = []
        events, both = shape.events, Both()
        async with served(
            shape,
            certificates,
            both,
            session_ticket_fetcher=lambda label: kept.pop(label, None),
            session_ticket_handler=lambda ticket: kept.update({ticket.ticket: ticket}),
            stream_handler=echo_handler(tasks),
        ):
            async with dialled(
                shape,
                certificates,
                both,
                session_ticket_handler=tickets.append,
                token_handler=tokens.append,
            ) as first:
                await within(first.ping())
                await wait_until(lambda: tickets)
            assert all(isinstance(ticket, shape.tls.SessionTicket) for ticket in tickets)
            assert tickets[0].server_name == "localhost"
            both.down.clear()
            async with dialled(
                shape,
                certificates,
                both,
                configuration=client_side(shape, certificates, session_ticket=tickets[0]),
                wait_connected=False,
            ) as second:
                reader, writer = await second.create_stream()
                writer.write(b"early")
                writer.write_eof()
                assert await within(reader.read()) == b"early"
            (completed,) = both.found(events.HandshakeCompleted, at_server=False)
            assert completed.session_resumed
            assert completed.early_data_accepted
        await asyncio.gather(*tasks)

    run(main())


def test_qlog_traces_are_kept_in_memory(shape: Shape, certificates: Certificates, run: Run) -> None:
    async def main() -> None:
        logger = shape.logger.QuicLogger()
        async with connected(shape, certificates, {"quic_logger": logger}) as both:
            await within(both.client.ping())
        told = logger.to_dict()
        assert told["qlog_format"] == "JSON"
        assert told["qlog_version"] == "0.3"
        points = {trace["vantage_point"]["type"]: trace for trace in told["traces"]}
        assert set(points) == {"client", "server"}
        ids = {trace["common_fields"]["ODCID"] for trace in told["traces"]}
        assert len(ids) == 1
        for trace in told["traces"]:
            names = [event["name"] for event in trace["events"]]
            assert {"transport:packet_sent", "transport:packet_received"} <= set(names)
            assert all(isinstance(event["data"], dict) for event in trace["events"])
            times = [event["time"] for event in trace["events"]]
            assert times == sorted(times)
            # A time of day, in milliseconds.
            assert times[0] > 1e12
        json.dumps(told)

    run(main())


def test_traces_go_to_files(
    shape: Shape, certificates: Certificates, run: Run, tmp_path: Path
) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="does not exist"):
            shape.logger.QuicFileLogger(str(tmp_path / "nowhere"))
        configuration = client_side(shape, certificates)
        configuration.quic_logger = shape.logger.QuicFileLogger(str(tmp_path))
        both = Both()
        async with served(shape, certificates, both):
            async with dialled(shape, certificates, both, configuration=configuration) as client:
                await within(client.ping())
        (path,) = tmp_path.iterdir()
        assert path.suffix == ".qlog"
        told = json.loads(path.read_text())
        assert path.stem == told["traces"][0]["common_fields"]["ODCID"]
        assert told["traces"][0]["vantage_point"]["type"] == "client"

    run(main())


def test_secrets_are_written_to_a_file_object(
    shape: Shape, certificates: Certificates, run: Run
) -> None:
    async def main() -> None:
        log = io.StringIO()
        both = Both()
        configuration = client_side(shape, certificates, secrets_log_file=log)
        async with served(shape, certificates, both):
            async with dialled(shape, certificates, both, configuration=configuration) as client:
                await within(client.ping())
        labels = {line.split()[0] for line in log.getvalue().splitlines()}
        assert {"CLIENT_HANDSHAKE_TRAFFIC_SECRET", "CLIENT_TRAFFIC_SECRET_0"} <= labels

    run(main())


def test_keys_with_passwords(shape: Shape, certificates: Certificates, run: Run) -> None:
    pytest.importorskip("cryptography")

    async def main() -> None:
        configuration = server_side(shape, certificates)
        certificate, key = certificates.issue("locked", password="open sesame")
        configuration.load_cert_chain(certificate, key, password="open sesame")
        both = Both()
        async with served(shape, certificates, both, configuration=configuration):
            async with dialled(shape, certificates, both) as client:
                await within(client.ping())

    run(main())


# --- without I/O ----------------------------------------------------------------------------------


def test_a_connection_without_io(shape: Shape, certificates: Certificates) -> None:
    events, both = shape.events, SansIO(shape, certificates)
    client, server, seen = both.client, both.server, both.seen
    both.exchange()
    for happened in seen.values():
        assert sum(isinstance(event, events.HandshakeCompleted) for event in happened) == 1
    stream_id = client.get_next_available_stream_id()
    client.send_stream_data(stream_id, b"question", end_stream=True)
    client.send_ping(uid=77)
    both.exchange()
    assert events.PingAcknowledged(uid=77) in seen["client"]
    received = events.StreamDataReceived(data=b"question", end_stream=True, stream_id=0)
    assert received in seen["server"]
    server.send_stream_data(0, b"answer", end_stream=True)
    both.exchange()
    received = events.StreamDataReceived(data=b"answer", end_stream=True, stream_id=0)
    assert received in seen["client"]
    server.close(error_code=5, reason_phrase="done")
    both.exchange()
    both.wait()
    end = events.ConnectionTerminated(error_code=5, frame_type=None, reason_phrase="done")
    assert seen["client"][-1] == seen["server"][-1] == end
