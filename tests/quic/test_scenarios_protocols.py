"""Applications that subclass aioquic's protocol: the order of calls, on aioquic and on ours.

aioquic is the oracle, as in `test_scenarios`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.quic.scenarios import (
    Both,
    Shape,
    client_side,
    connected,
    dialled,
    echo_handler,
    served,
)
from tests.support import wait_until, within

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]


def telling(shape: Shape, told: list[str]) -> Any:
    """A protocol class that records which of its methods were called."""

    class Telling(shape.asyncio.QuicConnectionProtocol):  # type: ignore[misc]
        def close(self, *arguments: Any, **keywords: Any) -> None:
            told.append("close")
            super().close(*arguments, **keywords)

        def connection_lost(self, error: Exception | None) -> None:
            assert error is None
            told.append("connection_lost")
            super().connection_lost(error)

    return Telling


def test_session_tickets_are_passed_to_the_handler(
    shape: Shape, certificates: Certificates, run: Run
) -> None:
    async def main() -> None:
        tickets: list[Any] = []
        both = Both()
        kept = {"session_ticket_handler": lambda _ticket: None}
        async with (
            served(shape, certificates, both, **kept),
            dialled(shape, certificates, both, session_ticket_handler=tickets.append),
        ):
            await wait_until(lambda: tickets)

    run(main())


def test_protocols_get_connection_lost(shape: Shape, certificates: Certificates, run: Run) -> None:
    async def main() -> None:
        client: list[str] = []
        server: list[str] = []
        both = Both()
        async with served(
            shape, certificates, both, create_protocol=telling(shape, server)
        ) as serving:
            made = telling(shape, client)
            async with dialled(shape, certificates, both, create_protocol=made) as protocol:
                await within(protocol.ping())
            await wait_until(lambda: len(client) > 1)
            assert client == ["close", "connection_lost"]
            assert server == []
            async with dialled(shape, certificates, both) as protocol:
                await within(protocol.ping())
                serving.close()
                await within(protocol.wait_closed())
            assert "close" in server

    run(main())


def test_stream_reset_without_data_does_not_call_the_handler(
    shape: Shape, certificates: Certificates, run: Run
) -> None:
    async def main() -> None:
        events = shape.events
        opened: list[Any] = []
        async with connected(
            shape, certificates, stream_handler=lambda *pair: opened.append(pair)
        ) as both:
            quic = both.client._quic
            quic.reset_stream(quic.get_next_available_stream_id(), 5)
            both.client.transmit()
            await wait_until(lambda: both.found(events.StreamReset, at_server=True))
            assert both.found(events.StreamReset, at_server=True) == [
                events.StreamReset(error_code=5, stream_id=0)
            ]
            assert opened == []
            assert quic.get_next_available_stream_id() == 4

    run(main())


def test_subclasses_may_use_own_attribute_names(
    shape: Shape, certificates: Certificates, run: Run
) -> None:
    class Own(shape.asyncio.QuicConnectionProtocol):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            super().__init__(*arguments, **keywords)
            self._streams: list[int] = []
            self._handlers: list[int] = []
            self._pings: list[int] = []

    async def main() -> None:
        tasks: list[Any] = []
        both = Both()
        async with (
            served(
                shape,
                certificates,
                both,
                create_protocol=Own,
                stream_handler=echo_handler(tasks),
            ),
            dialled(shape, certificates, both, create_protocol=Own) as client,
        ):
            reader, writer = await client.create_stream()
            writer.write(b"there and back")
            writer.write_eof()
            assert await within(reader.read()) == b"there and back"
            await within(client.ping())
            for task in tasks:
                await task
            assert client._streams == client._handlers == client._pings == []

    run(main())


def test_a_datagram_after_the_end_is_not_an_error(
    shape: Shape, certificates: Certificates, run: Run
) -> None:
    async def main() -> None:
        fields = {"max_datagram_frame_size": 65536}
        async with connected(shape, certificates, fields) as both:
            both.client.close()
            await within(both.client.wait_closed())
            both.client._quic.send_datagram_frame(b"too late")

    run(main())


def test_trace_exists_as_soon_as_the_connection(shape: Shape, certificates: Certificates) -> None:
    logger = shape.logger.QuicLogger()
    configuration = client_side(shape, certificates, quic_logger=logger)
    quic = shape.connection.QuicConnection(configuration=configuration)
    quic._quic_logger.log_event(category="http", event="frame_created", data={"length": 3})
    (trace,) = logger.to_dict()["traces"]
    assert trace["common_fields"]["ODCID"] == quic.original_destination_connection_id.hex()
    assert [event["name"] for event in trace["events"]] == ["http:frame_created"]


def test_a_key_may_follow_its_certificate(shape: Shape, certificates: Certificates) -> None:
    certfile, keyfile = certificates.issue()
    configuration = shape.configuration.QuicConfiguration(is_client=False)
    configuration.load_cert_chain(certfile)
    assert configuration.certificate is not None
    assert configuration.private_key is None
    configuration.load_cert_chain(certfile, keyfile)
    assert configuration.private_key is not None


def test_transmitted_data_is_sent_before_a_close(
    shape: Shape, certificates: Certificates, run: Run
) -> None:
    async def main() -> None:
        events = shape.events
        async with connected(shape, certificates) as both:
            await within(both.client.ping())
            both.client._quic.send_stream_data(0, b"last words", end_stream=True)
            both.client.transmit()
            both.client.close(error_code=7)
            await wait_until(lambda: both.found(events.ConnectionTerminated, at_server=True))
            (end,) = both.found(events.ConnectionTerminated, at_server=True)
            assert end.error_code == 7
            assert both.found(events.StreamDataReceived, at_server=True) == [
                events.StreamDataReceived(data=b"last words", end_stream=True, stream_id=0)
            ]

    run(main())


def test_answer_and_close_inside_an_event(
    shape: Shape, certificates: Certificates, run: Run
) -> None:
    """An event is delivered once the previous one was handled, whatever is called meanwhile."""

    async def main() -> None:
        events, depths = shape.events, []

        class Answering(shape.asyncio.QuicConnectionProtocol):  # type: ignore[misc]
            depth = 0

            def quic_event_received(self, event: Any) -> None:
                self.depth += 1
                depths.append(self.depth)
                if isinstance(event, events.StreamDataReceived):
                    self._quic.send_stream_data(event.stream_id, event.data.upper(), True)
                    self.transmit()
                    self.close(error_code=7)
                self.depth -= 1

        async with connected(shape, certificates, create_protocol=Answering) as both:
            both.client._quic.send_stream_data(0, b"shout", end_stream=True)
            both.client.transmit()
            await within(both.client.wait_closed())
            (end,) = both.found(events.ConnectionTerminated, at_server=False)
            assert end.error_code == 7
            assert both.found(events.StreamDataReceived, at_server=False) == [
                events.StreamDataReceived(data=b"SHOUT", end_stream=True, stream_id=0)
            ]
            assert set(depths) == {1}

    run(main())


def test_falsy_protocol_works(shape: Shape, certificates: Certificates, run: Run) -> None:
    """For example a protocol with `__len__`."""

    async def main() -> None:
        tasks: list[Any] = []

        class Empty(shape.asyncio.QuicConnectionProtocol):  # type: ignore[misc]
            def __len__(self) -> int:
                return 0

        async with connected(
            shape, certificates, create_protocol=Empty, stream_handler=echo_handler(tasks)
        ) as both:
            reader, writer = await both.client.create_stream()
            writer.write(b"there and back")
            writer.write_eof()
            assert await within(reader.read()) == b"there and back"
        for task in tasks:
            await task

    run(main())


def test_falsy_handlers_work(shape: Shape, certificates: Certificates, run: Run) -> None:
    """For example an empty ticket store."""

    async def main() -> None:
        class Store(list[Any]):
            def __call__(self, ticket: Any) -> None:
                self.append(ticket)

        tickets = Store()
        both = Both()
        kept = {"session_ticket_handler": Store()}
        async with (
            served(shape, certificates, both, **kept),
            dialled(shape, certificates, both, session_ticket_handler=tickets),
        ):
            await wait_until(lambda: tickets)

    run(main())


def test_clock_that_starts_at_zero(shape: Shape, certificates: Certificates) -> None:
    make = shape.connection.QuicConnection
    client = make(configuration=client_side(shape, certificates))
    client.connect(("192.0.2.2", 4433), now=0.0)
    timer = client.get_timer()
    assert timer is not None
    client.handle_timer(now=timer)
    assert client.datagrams_to_send(now=timer)
