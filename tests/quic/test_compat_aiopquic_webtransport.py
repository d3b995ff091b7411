"""Applications written for aiopquic's WebTransport: sessions by events, full queues, codes."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from ringloop.quic.compat.aiopquic import events
from ringloop.quic.compat.aiopquic import webtransport as aiopquic
from ringloop.quic.compat.aiopquic.configuration import QuicConfiguration
from tests.support import LoopLog, within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from ringloop.quic.compat.aiopquic.webtransport import (
        WebTransportClient,
        WebTransportServer,
        WebTransportSession,
    )
    from tests.support.tls import Certificates

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

PATH = "/wt"
PIECE = bytes(range(256)) * 256


class Accepting:
    """A handler that hands its sessions on; they go on when it returns."""

    def __init__(self) -> None:
        self.sessions: asyncio.Queue[WebTransportSession] = asyncio.Queue()

    def __call__(self, session: WebTransportSession) -> None:
        self.sessions.put_nowait(session)


@asynccontextmanager
async def served(
    certificates: Certificates, handler: Callable[[Any], object], **keywords: Any
) -> AsyncIterator[WebTransportServer]:
    certificate, key = certificates.issue()
    server = await aiopquic.serve_webtransport(
        "127.0.0.1",
        0,
        PATH,
        handler=handler,
        cert_file=str(certificate),
        key_file=str(key),
        **keywords,
    )
    try:
        yield server
    finally:
        await within(server.aclose())


def connecting(
    certificates: Certificates, server: WebTransportServer, path: str = PATH, **keywords: Any
) -> Any:
    keywords = {"sni": "localhost", "ca_file": str(certificates.authority), **keywords}
    return aiopquic.connect_webtransport("127.0.0.1", server.sockname[1], path, **keywords)


@asynccontextmanager
async def both(
    certificates: Certificates, **client: Any
) -> AsyncIterator[tuple[WebTransportClient, WebTransportSession]]:
    """Open a session, and give both of its ends."""
    handler = Accepting()
    async with (
        served(certificates, handler) as server,
        connecting(certificates, server, **client) as session,
    ):
        yield session, await within(handler.sessions.get())


async def event_of(session: WebTransportSession, kind: type) -> Any:
    """Wait for an event of a kind."""

    async def found() -> Any:
        async for event in session.events():
            if isinstance(event, kind):
                return event
        pytest.fail(f"no {kind.__name__} came")

    return await within(found())


async def all_of(session: WebTransportSession, stream_id: int) -> list[Any]:
    """Read a stream up to its end or reset."""

    async def read() -> list[Any]:
        return [event async for event in session.receive_stream_data(stream_id)]

    return await within(read())


async def opened(
    client: WebTransportSession, server: WebTransportSession, bidir: bool = True
) -> int:
    """Open a stream whose first byte the other end has read."""
    stream_id = await within(client.create_stream(bidir))
    client.send_stream_data(stream_id, b"x")
    assert (await event_of(server, events.WebTransportNewStream)).stream_id == stream_id
    reader: Any = server.receive_stream_data(stream_id)
    assert bytes((await within(anext(reader))).data) == b"x"
    await reader.aclose()
    return stream_id


def test_ends_of_a_session_know_what_they_are(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            assert (client.role, server.role) == ("client", "server")
            assert (client.is_client, server.is_server) == (True, True)
            assert client.session_ready
            assert server.session_ready
            assert client.control_stream_id == server.control_stream_id == 0
            assert client.local_address() == server.peer_address()
            assert client.peer_address() == server.local_address()
            assert client.tx_event_ring_fill() == 0.0
            client.drain()
            await event_of(server, events.WebTransportSessionDraining)
            assert client.is_draining
            assert server.is_draining
        assert client.session_closed
        assert client.peer_address() is None
        await within(client.detach())

    run(main())


def test_stream_is_reported_once_and_read_in_parts(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            stream_id = await opened(client, server)
            client.send_stream_data(stream_id, b"rest", end_stream=True)
            got = await all_of(server, stream_id)
            assert b"".join(event.data for event in got) == b"rest"
            assert [event.end_stream for event in got][-1]
            server.send_stream_data(stream_id, b"answer", end_stream=True)
            assert bytes((await all_of(client, stream_id))[0].data) == b"answer"
            # Nothing of it is kept, and nothing more is to be read.
            with pytest.raises(aiopquic.WebTransportError, match="not open for receiving"):
                await all_of(client, stream_id)
            with pytest.raises(aiopquic.WebTransportError, match="not open for sending"):
                client.send_stream_data(99, b"x")

    run(main())


def test_full_stream_is_reported_and_awaited(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        configuration = QuicConfiguration(stream_ring_cap=1 << 20, send_window=1 << 20)
        async with both(certificates, configuration=configuration) as (client, server):
            stream_id = await opened(client, server, bidir=False)
            reading = asyncio.ensure_future(all_of(server, stream_id))
            with pytest.raises(ValueError, match="stream_ring_cap"):
                client.send_stream_data(stream_id, bytes((1 << 20) + 1))
            count = 0
            with pytest.raises(BufferError, match="stream_ring_cap"):
                for _ in range(1000):
                    client.send_stream_data(stream_id, PIECE)
                    count += 1
            queued = client.tx_data_ring_used(stream_id)
            assert 0 < queued <= 1 << 20
            assert client.tx_sent_bytes(stream_id) == 1 + count * len(PIECE) - queued
            await within(client.get_tx_data_drain_event(stream_id).wait())
            # The queue is filled and emptied many times.
            for _ in range(100):
                await within(client.send_stream_data_drained(stream_id, PIECE))
            client.set_tx_data_drain_pending(stream_id)
            client.clear_tx_data_drain_pending(stream_id)
            await within(client.send_stream_data_drained(stream_id, b"", end_stream=True))
            got = b"".join(event.data for event in await reading)
            assert got == PIECE * (count + 100)

    run(main())


def test_new_stream_waits_while_too_much_is_queued(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        configuration = QuicConfiguration(send_window=1 << 16, tx_max_queued_bytes=1 << 18)
        async with both(certificates, configuration=configuration) as (client, server):
            stream_id = await opened(client, server, bidir=False)
            client.send_stream_data(stream_id, PIECE * 16, end_stream=True)
            assert client.tx_data_ring_used(stream_id) > 1 << 18
            opening = asyncio.ensure_future(client.create_stream())
            await asyncio.sleep(0)
            assert not opening.done()
            assert len(b"".join(it.data for it in await all_of(server, stream_id))) == 1 << 20
            assert await within(opening) > 0

    run(main())


def test_codes_of_streams_arrive(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            stream_id = await opened(client, server)
            writing = asyncio.ensure_future(server.send_stream_data_drained(stream_id, b"x"))
            await within(writing)
            client.stop_stream(stream_id, 7)
            told = await event_of(server, events.WebTransportStopSending)
            assert (told.stream_id, told.error_code) == (stream_id, 7)
            with pytest.raises(aiopquic.WebTransportError):
                server.send_stream_data(stream_id, b"late")
            client.reset_stream(stream_id, 0xFFFFFFFF)
            with pytest.raises(aiopquic.WebTransportError):
                client.send_stream_data(stream_id, b"late")
            (told,) = await all_of(server, stream_id)
            assert isinstance(told, events.WebTransportStreamReset)
            assert told.error_code == 0xFFFFFFFF
            # Against their direction nothing happens.
            one_way = await opened(client, server, bidir=False)
            client.stop_stream(one_way)
            server.reset_stream(one_way)
            assert client.set_stream_priority(one_way, 200) == 0
            with pytest.raises(ValueError, match="priority"):
                client.set_stream_priority(one_way, 256)
            client.send_stream_data(one_way, b"still", end_stream=True)
            assert b"".join(it.data for it in await all_of(server, one_way)) == b"still"

    run(main())


def test_writer_of_a_stopped_stream_continues(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        configuration = QuicConfiguration(stream_ring_cap=1 << 16, send_window=1 << 16)
        async with both(certificates, configuration=configuration) as (client, server):
            stream_id = await opened(client, server)

            async def push() -> None:
                while True:
                    await client.send_stream_data_drained(stream_id, PIECE)

            pushing = asyncio.ensure_future(push())
            server.stop_stream(stream_id, 3)
            with pytest.raises(aiopquic.WebTransportError):
                await within(pushing)

    run(main())


def test_datagrams_go_both_ways_until_there_is_no_room(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        configuration = QuicConfiguration(datagram_send_bytes=2000)
        async with both(certificates, configuration=configuration) as (client, server):
            assert client.send_datagram_frame(b"there") == 5
            told = await event_of(server, events.WebTransportDatagramReceived)
            assert bytes(told.data) == b"there"
            assert server.send_datagram_frame(bytearray(b"back")) == 4
            told = await event_of(client, events.WebTransportDatagramReceived)
            assert bytes(told.data) == b"back"
            with pytest.raises(ValueError, match="longer than the path allows"):
                client.send_datagram_frame(bytes(5000))
            room = client.get_datagram_tx_drain_event()
            assert room.is_set()
            taken = [client.send_datagram_frame(bytes(1000)) for _ in range(4)]
            assert taken[0] == 1000
            assert taken[-1] == 0
            await within(room.wait())
            assert client.send_datagram_frame(bytes(1000)) == 1000

    run(main())


def test_close_is_reported_at_both_ends(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            stream_id = await opened(client, server)
            reading = asyncio.ensure_future(all_of(client, stream_id))
            listening = asyncio.ensure_future(event_of(client, events.WebTransportSessionClosed))
            await asyncio.sleep(0)
            client.close(300, b"why")
            assert client.session_closed
            client.close(1)
            told = await listening
            assert (told.error_code, bytes(told.reason)) == (300, b"why")
            for session in (client, server):
                (told,) = await (reading if session is client else all_of(server, stream_id))
                assert isinstance(told, events.WebTransportStreamReset)
                assert told.error_code == aiopquic.WT_SESSION_GONE
            told = await event_of(server, events.WebTransportSessionClosed)
            assert (told.error_code, bytes(told.reason)) == (300, b"why")
            await within(server.wait_closed(timeout=5))
            # The close was the last event.
            assert [event async for event in server.events()] == []
            for session in (client, server):
                with pytest.raises(ConnectionError):
                    await session.create_stream()
                for call in (
                    lambda it: it.send_stream_data(stream_id, b"late"),
                    lambda it: it.send_datagram_frame(b"late"),
                    lambda it: it.set_stream_priority(stream_id, 1),
                ):
                    with pytest.raises(aiopquic.WebTransportError):
                        call(session)
                await within(session.send_stream_data_drained(stream_id, b"late"))

    run(main())


def test_connection_of_a_client_ends_with_its_session(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            session: Any = client._session
            server.close(5, b"bye")
            await within(client.wait_closed())
            await within(session.connection.wait_closed())
            told: Any = client._session_close_event
            assert (told.error_code, bytes(told.reason)) == (5, b"bye")

    run(main())


def test_open_session_is_waited_for_in_vain(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, _):
            with pytest.raises(TimeoutError):
                await client.wait_closed(timeout=0.01)

    run(main())


def test_unwanted_session_is_refused(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        handler = Accepting()
        async with served(certificates, handler, wt_supported_protocols=["one", "two"]) as server:
            wanted: list[tuple[dict[str, Any], str]] = [
                ({"path": "/other"}, "HTTP 404"),
                ({"wt_available_protocols": ["three"]}, "HTTP 400"),
                ({"ca_file": None}, "failed: "),
                ({"sni": "other.example"}, "failed: "),
            ]
            for keywords, said in wanted:
                with pytest.raises(aiopquic.WebTransportError, match=said):
                    async with connecting(certificates, server, **keywords):
                        pytest.fail("it was accepted")
            assert handler.sessions.empty()
            offered = connecting(certificates, server, wt_available_protocols=["two", "one"])
            async with offered as client:
                assert client.negotiated_protocol == "two"
                assert (await within(handler.sessions.get())).negotiated_protocol == "two"
            unverified = connecting(certificates, server, ca_file=None, verify_peer=False)
            async with unverified as client:
                assert client.negotiated_protocol is None

    run(main())


def test_handler_that_raises_ends_its_session(
    run: Run, certificates: Certificates, loop_log: LoopLog
) -> None:
    async def handler(_session: WebTransportSession) -> None:
        raise ValueError("on purpose")

    async def main() -> None:
        async with (
            served(certificates, handler) as server,
            connecting(certificates, server) as client,
        ):
            told = await event_of(client, events.WebTransportSessionClosed)
            assert told.error_code == 1

    run(main())
    assert any("handler" in text for text in loop_log.take())


def test_sessions_are_made_by_the_factory(run: Run, certificates: Certificates) -> None:
    class Own(aiopquic.WebTransportServerSession):
        pass

    async def main() -> None:
        handler = Accepting()
        made = served(certificates, handler, session_factory=Own)
        async with made as server, connecting(certificates, server):
            assert isinstance(await within(handler.sessions.get()), Own)

    run(main())


def test_unsupported_arguments_are_refused(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        for keywords in ({"transport": object()}, {"web_folder": "."}):
            with pytest.raises(ValueError, match=next(iter(keywords))):
                async with served(certificates, Accepting(), **keywords):
                    pytest.fail("it was ignored")
        with pytest.raises(ValueError, match="transport"):
            aiopquic.WebTransportClient(object(), "localhost", 1, PATH)  # type: ignore[arg-type]
        client = aiopquic.WebTransportClient(None, "localhost", 1, PATH)
        assert not client.session_ready
        assert client.control_stream_id == -1
        with pytest.raises(aiopquic.WebTransportError, match="not open yet"):
            client.send_stream_data(0, b"x")
        await within(client.aclose())
        with pytest.raises(ValueError, match="role"):
            aiopquic.WebTransportSession(None, "peer")

    run(main())


def test_silent_server_is_given_up(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, ("127.0.0.1", 0)
        )
        port = transport.get_extra_info("sockname")[1]
        with pytest.raises(aiopquic.WebTransportError, match=r"timed out after 0\.1"):
            async with aiopquic.connect_webtransport("127.0.0.1", port, PATH, timeout=0.1):
                pytest.fail("there was an answer")
        transport.close()

    run(main())
