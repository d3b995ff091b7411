"""`ringloop.quic.asyncio`: protocols, their exceptions, and logs, on every loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ringloop.quic import events
from ringloop.quic.asyncio import QuicConnectionProtocol, connect
from ringloop.quic.logger import QuicLogger
from tests.quic.shape import both, echo, port_of, served
from tests.quic.test_shape_connection import client_side, server_side
from tests.support import wait_until, within

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ringloop.quic.connection import QuicConnection
    from ringloop.quic.logger import QuicLoggerTrace
    from tests.support import LoopLog
    from tests.support.tls import Certificates

    Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.mark.loop_errors
def test_refused_queued_datagram_loses_no_event(
    certificates: Certificates, run: Run, loop_log: LoopLog
) -> None:
    async def main() -> None:
        async with served(certificates, stream_handler=echo) as server:
            configuration = client_side(certificates)
            async with connect(
                "127.0.0.1", port_of(server), configuration=configuration, wait_connected=False
            ) as protocol:
                assert protocol._quic.send_datagram_frame(b"x") == 1
                protocol.transmit()
                await within(protocol.wait_connected())
                await within(protocol.ping())
                endpoint: Any = protocol._transport
            # The logged error references it and its socket, so wait for its end on the loop.
            await within(endpoint.wait_closed())
        assert any("send_datagram_frame() failed" in record for record in loop_log.take())

    run(main())


@pytest.mark.loop_errors
def test_failing_qlog_does_not_prevent_the_end_of_a_connection(
    certificates: Certificates, run: Run, loop_log: LoopLog
) -> None:
    class Full(QuicLogger):
        def end_trace(self, trace: QuicLoggerTrace) -> None:
            raise OSError(28, "No space left on device")

    async def main() -> None:
        made: list[QuicConnectionProtocol] = []

        def keep(connection: QuicConnection, **keywords: Any) -> QuicConnectionProtocol:
            made.append(QuicConnectionProtocol(connection, **keywords))
            return made[-1]

        settings = server_side(certificates)
        settings.quic_logger = Full()
        async with both(certificates, configuration=settings, create_protocol=keep) as client:
            await within(client.ping())
            client.close()
            await within(made[0].wait_closed())
        assert any("end_trace() failed" in record for record in loop_log.take())

    run(main())


@pytest.mark.loop_errors
def test_qlog_that_cannot_start_refuses_clients(
    certificates: Certificates, run: Run, loop_log: LoopLog
) -> None:
    class Full(QuicLogger):
        def start_trace(self, is_client: bool, odcid: bytes) -> QuicLoggerTrace:
            raise OSError(28, "No space left on device")

    async def main() -> None:
        settings = server_side(certificates)
        settings.quic_logger = Full()
        with pytest.raises(ConnectionError):
            async with both(certificates, configuration=settings) as client:
                await within(client.wait_closed())
                raise ConnectionError("it was let in, and closed")
        assert any("create_protocol() failed" in record for record in loop_log.take())

    run(main())


@pytest.mark.loop_errors
def test_transmit_that_raises_does_not_affect_other_connections(
    certificates: Certificates, run: Run, loop_log: LoopLog
) -> None:
    class Broken(QuicConnectionProtocol):
        def transmit(self) -> None:
            raise ZeroDivisionError("asked for")

    async def main() -> None:
        async with (
            served(certificates, create_protocol=Broken) as server,
            connect(
                "127.0.0.1", port_of(server), configuration=client_side(certificates)
            ) as client,
        ):
            await within(client.ping())
            endpoint: Any = client._transport
        # As above: the logged errors of the server reference the client and its socket.
        await within(endpoint.wait_closed())
        assert any("transmit() failed" in record for record in loop_log.take())

    run(main())


def test_transmitted_data_is_sent_at_once(certificates: Certificates, run: Run) -> None:
    async def main() -> None:
        async with served(certificates) as server:
            configuration = client_side(certificates)
            async with connect(
                "127.0.0.1", port_of(server), configuration=configuration
            ) as protocol:
                await within(protocol.ping())
                before = protocol._quic.stats().stream_frames_sent
                protocol._quic.send_stream_data(0, b"now")
                protocol.transmit()
                # The loop has not run meanwhile.
                assert protocol._quic.stats().stream_frames_sent == before + 1
                # Several chunks are sent together, before they are cancelled.
                for stream_id in (0, 4, 8):
                    protocol._quic.send_stream_data(stream_id, b"more")
                    protocol.transmit()
                assert protocol._quic.stats().stream_frames_sent == before + 1
                protocol._quic.reset_stream(8, 1)
                assert protocol._quic.stats().stream_frames_sent == before + 4

    run(main())


class Asking(QuicConnectionProtocol):
    """A protocol like aioquic's examples: one future per question."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.seen: list[events.QuicEvent] = []
        self.answers: dict[int, asyncio.Future[bytes]] = {}

    async def ask(self, question: bytes) -> bytes:
        stream_id = self._quic.get_next_available_stream_id()
        self._quic.send_stream_data(stream_id, question, end_stream=True)
        answer = self.answers[stream_id] = self._loop.create_future()
        self.transmit()
        return await asyncio.shield(answer)

    def quic_event_received(self, event: events.QuicEvent) -> None:
        self.seen.append(event)
        if isinstance(event, events.StreamDataReceived) and event.end_stream:
            self.answers.pop(event.stream_id).set_result(event.data)


class Answering(QuicConnectionProtocol):
    def quic_event_received(self, event: events.QuicEvent) -> None:
        if isinstance(event, events.StreamDataReceived):
            if event.data == b"raise":
                raise ZeroDivisionError("asked for")
            self._quic.send_stream_data(event.stream_id, event.data[::-1], end_stream=True)
        elif isinstance(event, events.DatagramFrameReceived):
            self._quic.send_datagram_frame(event.data)
        self.transmit()


def test_protocols_that_override_the_event(certificates: Certificates, run: Run) -> None:
    async def main() -> None:
        fields = {"max_datagram_frame_size": 65535}
        async with (
            served(
                certificates,
                create_protocol=Answering,
                configuration=server_side(certificates, **fields),
            ) as server,
            connect(
                "127.0.0.1",
                port_of(server),
                configuration=client_side(certificates, **fields),
                create_protocol=Asking,
            ) as client,
        ):
            assert isinstance(client, Asking)
            answers = await asyncio.gather(*[client.ask(b"%03d" % n) for n in range(50)])
            assert answers == [(b"%03d" % n)[::-1] for n in range(50)]
            client._quic.send_datagram_frame(b"datagram")
            client.request_key_update()
            client.change_connection_id()
            while events.DatagramFrameReceived(data=b"datagram") not in client.seen:
                await client.ping()
        assert client.seen[-1] == events.ConnectionTerminated(
            error_code=0, frame_type=None, reason_phrase=""
        )

    run(main())


@pytest.mark.loop_errors
def test_a_protocol_that_raises_ends_neither_connection_nor_server(
    certificates: Certificates, run: Run, loop_log: LoopLog
) -> None:
    async def main() -> None:
        async with (
            served(certificates, create_protocol=Answering) as server,
            connect(
                "127.0.0.1",
                port_of(server),
                configuration=client_side(certificates),
                create_protocol=Asking,
            ) as client,
        ):
            assert isinstance(client, Asking)
            client._quic.send_stream_data(0, b"raise", end_stream=True)
            client.transmit()
            assert await client.ask(b"ab") == b"ba"
        assert any("quic_event_received() failed" in record for record in loop_log.take())

    run(main())


@pytest.mark.loop_errors
def test_cancelled_error_of_a_protocol_does_not_affect_others(
    certificates: Certificates, run: Run, loop_log: LoopLog
) -> None:
    class Cancelled(QuicConnectionProtocol):
        def quic_event_received(self, event: events.QuicEvent) -> None:
            if isinstance(event, events.StreamDataReceived):
                heard.append(event.data)
                if event.data == b"cancel":
                    raise asyncio.CancelledError

    heard: list[bytes] = []

    async def main() -> None:
        async with served(certificates, create_protocol=Cancelled) as server:
            where = "127.0.0.1", port_of(server)
            configuration = client_side(certificates)
            async with (
                connect(*where, configuration=configuration) as first,
                connect(*where, configuration=configuration) as second,
            ):
                # Both arrive in one iteration of the server's loop.
                for client, data in ((first, b"cancel"), (second, b"other")):
                    client._quic.send_stream_data(0, data)
                    client._quic._flush()
                await wait_until(lambda: {b"cancel", b"other"} <= set(heard))
                for client, data in ((first, b"more"), (second, b"of both")):
                    client._quic.send_stream_data(0, data)
                    client.transmit()
                    await wait_until(lambda data=data: data in heard)  # type: ignore[misc]
        assert any("quic_event_received() failed" in record for record in loop_log.take())

    run(main())
