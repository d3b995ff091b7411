"""What is sent before an immediate close.

A client's close that is sent with the last flight of the handshake goes in a handshake packet, which
may not carry an application's code (RFC 9000 §10.2.3): the server would see APPLICATION_ERROR, and no
established connection. And a close drops queued data: on either end, written data must be sent first.
What the congestion window holds back is dropped, but not the close itself (quinn issue 2785).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic
from ringloop._native.quic import ConnectionTerminated as Terminated
from tests.quic.support import Pair, client_config, dialled, served
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]


def test_code_of_an_immediate_close_arrives(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        heard: asyncio.Future[ConnectionError | None] = asyncio.get_running_loop().create_future()

        async def handle(connection: quic.Connection) -> None:
            await connection.wait_closed()
            heard.set_result(connection.error)

        async with served(certificates, handler=handle) as server:
            async with dialled(certificates, server.address) as client:
                client.close(42, "at once")
            error = await within(heard)
            assert isinstance(error, quic.ConnectionClosedByPeer)
            assert error.code == 42

    run(main())


async def heard(connection: quic.Connection) -> bytes:
    stream = await connection.accept_stream(unidirectional=True)
    return await stream.read_to_end()


def test_data_written_before_a_handler_returns_arrives(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        async def handle(connection: quic.Connection) -> None:
            stream = await connection.accept_stream()
            assert await stream.read_to_end() == b"question"
            stream.write(b"answer" * 1000)
            stream.finish()

        async with served(certificates, handler=handle) as server:
            async with dialled(certificates, server.address) as client:
                stream = await client.open_stream()
                stream.write(b"question")
                stream.finish()
                assert await within(stream.read_to_end()) == b"answer" * 1000
                await within(client.wait_closed())
                assert isinstance(client.error, quic.ConnectionClosedByPeer)
                assert client.error.code == 0

    run(main())


def test_data_written_at_once_by_a_handler_arrives(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async def handle(connection: quic.Connection) -> None:
            stream = await connection.open_stream(unidirectional=True)
            stream.write(b"welcome")
            stream.finish()

        async with served(certificates, handler=handle) as server:
            async with dialled(certificates, server.address) as client:
                assert await within(heard(client)) == b"welcome"

    run(main())


def test_partial_data_of_a_failed_handler_is_not_complete(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        reported: list[type[BaseException]] = []
        asyncio.get_running_loop().set_exception_handler(
            # The exception itself would keep the stream alive.
            lambda _loop, context: reported.append(type(context["exception"]))
        )

        async def handle(connection: quic.Connection) -> None:
            stream = await connection.accept_stream()
            stream.write(b"half")
            raise ZeroDivisionError("asked for")

        async with served(certificates, handler=handle) as server:
            async with dialled(certificates, server.address) as client:
                stream = await client.open_stream()
                stream.write(b"question")
                assert await within(stream.readexactly(4)) == b"half"
                with pytest.raises(quic.ConnectionClosedByPeer) as closed:
                    await within(stream.read())
                assert closed.value.code == 1
        assert reported == [ZeroDivisionError]

    run(main())


@pytest.mark.parametrize("end", ["close", "context", "endpoint"])
@pytest.mark.parametrize("is_server", [False, True])
def test_written_data_is_sent_before_any_close(
    run: Run, certificates: Certificates, end: str, is_server: bool
) -> None:
    async def main() -> None:
        async with served(certificates) as server:
            client = await quic.open_connection(
                *server.address[:2],
                server_name="localhost",
                ca_file=certificates.authority,
                alpn=["test"],
            )
            async with client:
                accepted = await within(server.accept())
                await within(client.ping())
                closes, hears = (accepted, client) if is_server else (client, accepted)
                stream = await closes.open_stream(unidirectional=True)
                # A small write after another one is gathered.
                stream.write(b"last ")
                stream.write(b"words")
                stream.finish()
                if end == "close":
                    closes.close(3)
                elif end == "endpoint":
                    closes.endpoint.close(3)
                else:
                    await closes.__aexit__(None, None, None)
                assert await within(heard(hears)) == b"last words"
                await within(hears.wait_closed())

    run(main())


@pytest.mark.parametrize("congestion", ["cubic", "newreno", "bbr"])
@pytest.mark.parametrize("is_server", [False, True])
def test_close_is_sent_while_the_congestion_window_is_full(
    certificates: Certificates, congestion: str, is_server: bool
) -> None:
    pair = Pair.make(certificates, server={"congestion": congestion})
    client = pair.connect(client_config(certificates, congestion=congestion))
    pair.run_until(lambda: pair.accepted and not pair.accepted[-1].is_handshaking)
    (server,) = pair.accepted
    closes, hears = (server, client) if is_server else (client, server)
    hears.take_events()
    # Its acknowledgements are lost.
    pair.network = lambda datagram, from_client: [datagram] * (from_client != is_server)
    closes.send_stream_data(closes.next_stream_id(), bytes(1 << 20))
    pair.exchange()
    closes.close(42, "full", pair.now)
    ended: list[Any] = []

    def is_told() -> bool:
        ended.extend(event for event in hears.take_events() if isinstance(event, Terminated))
        return bool(ended)

    pair.run_until(is_told, seconds=5)
    assert (ended[0].error_code, ended[0].reason_phrase) == (42, "full")
