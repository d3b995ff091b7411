"""Sessions of WebTransport in aiopquic's shape: PROGRAM aiopquic|ringloop FOLDER.

A server that echoes streams of both kinds and datagrams, and a client; with aiopquic's names alone, of
its `asyncio.webtransport`, `quic.configuration` and `quic.events`.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

from tests.ecosystem.quic import shim

if sys.argv[1] == "ringloop":
    shim.stand_in_for_aiopquic()

from aiopquic.asyncio.webtransport import (
    WT_SESSION_GONE,
    WebTransportError,
    connect_webtransport,
    serve_webtransport,
)
from aiopquic.quic.configuration import QuicConfiguration
from aiopquic.quic.events import (
    WebTransportDatagramReceived,
    WebTransportNewStream,
    WebTransportStopSending,
    WebTransportStreamDataReceived,
    WebTransportStreamReset,
)

FOLDER = sys.argv[2]
FILES = {"cert_file": f"{FOLDER}/certificate.pem", "key_file": f"{FOLDER}/key.pem"}
TRUST = {"sni": "localhost", "ca_file": f"{FOLDER}/authority.pem"}
BULK = bytes(range(256)) * (24 << 10)
SECONDS = 20


async def received(session: Any, stream_id: int) -> bytes:
    """Read a stream to its end."""
    data = bytearray()
    async for event in session.receive_stream_data(stream_id):
        assert isinstance(event, WebTransportStreamDataReceived), event
        data += event.data
        if event.end_stream:
            break
    return bytes(data)


class Echo:
    """The handler of a server: its sessions, and what it was told."""

    def __init__(self) -> None:
        self.sessions: list[Any] = []
        self.told: asyncio.Queue[Any] = asyncio.Queue()
        self.tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, session: Any) -> None:
        self.sessions.append(session)
        async for event in session.events():
            if isinstance(event, WebTransportNewStream):
                task = asyncio.create_task(self.echo(session, event.stream_id))
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)
            elif isinstance(event, WebTransportDatagramReceived):
                assert session.send_datagram_frame(bytes(event.data)) == len(event.data)
            else:
                self.told.put_nowait(event)

    async def echo(self, session: Any, stream_id: int) -> None:
        """Send a stream back: on itself, or on a new one where it is unidirectional."""
        answer = stream_id
        if stream_id & 2:
            answer = await session.create_stream(bidir=False)
        async for event in session.receive_stream_data(stream_id):
            if isinstance(event, WebTransportStreamReset):
                self.told.put_nowait(event)
                return
            await session.send_stream_data_drained(answer, bytes(event.data), event.end_stream)
            if event.end_stream:
                return


async def streams(client: Any) -> None:
    stream_id = await client.create_stream()
    client.send_stream_data(stream_id, b"both ", False)
    client.send_stream_data(stream_id, b"ways", end_stream=True)
    assert await received(client, stream_id) == b"both ways"
    stream_id = await client.create_stream(bidir=False)
    client.send_stream_data(stream_id, b"one way", end_stream=True)
    async for event in client.events():
        if isinstance(event, WebTransportNewStream):
            assert await received(client, event.stream_id) == b"one way"
            break


async def bulk(client: Any) -> None:
    """Send more than may be queued."""
    stream_id = await client.create_stream()
    reading = asyncio.create_task(received(client, stream_id))
    for at in range(0, len(BULK), 1 << 18):
        await client.send_stream_data_drained(stream_id, BULK[at : at + (1 << 18)])
    await client.send_stream_data_drained(stream_id, b"", end_stream=True)
    assert await reading == BULK
    try:
        client.send_stream_data(await client.create_stream(), bytes(client.stream_ring_cap + 1))
    except ValueError:
        pass
    else:
        raise AssertionError("more than a stream's queue was taken")


async def datagrams(client: Any) -> None:
    assert client.send_datagram_frame(b"datagram") == 8
    async for event in client.events():
        if isinstance(event, WebTransportDatagramReceived):
            assert bytes(event.data) == b"datagram"
            break
    try:
        client.send_datagram_frame(bytes(5000))
    except ValueError:
        pass
    else:
        raise AssertionError("a long datagram was taken")


async def codes(client: Any, echo: Echo) -> None:
    stream_id = await client.create_stream()
    client.send_stream_data(stream_id, b"x")
    async for event in client.receive_stream_data(stream_id):
        assert bytes(event.data) == b"x"
        break
    client.stop_stream(stream_id, 7)
    told = await echo.told.get()
    assert isinstance(told, WebTransportStopSending), told
    assert (told.stream_id, told.error_code) == (stream_id, 7)
    client.reset_stream(stream_id, 0xFFFFFFFF)
    told = await echo.told.get()
    assert isinstance(told, WebTransportStreamReset), told
    assert told.error_code == 0xFFFFFFFF
    try:
        client.send_stream_data(stream_id, b"late")
    except WebTransportError:
        pass
    else:
        raise AssertionError("a stream that was reset took more")


async def end(client: Any, echo: Echo) -> None:
    assert client.set_stream_priority(await client.create_stream(), 2) == 0
    stream_id = await client.create_stream()
    client.send_stream_data(stream_id, b"last")
    async for event in client.receive_stream_data(stream_id):
        assert bytes(event.data) == b"last"
        break
    client.close(300, b"over")
    assert client.session_closed
    events = [event async for event in client.receive_stream_data(stream_id)]
    assert [event.error_code for event in events] == [WT_SESSION_GONE]
    # aiopquic's `events` may end before it tells of the close.
    await echo.sessions[0].wait_closed(timeout=SECONDS)
    for send in (client.send_datagram_frame, lambda data: client.send_stream_data(0, data)):
        try:
            send(b"late")
        except ConnectionError:
            continue
        raise AssertionError("a closed session took something")


async def refusals(port: int) -> None:
    """Refuse sub-protocols, of which the client offers others; and a server without trust."""
    for keywords in ({**TRUST, "wt_available_protocols": ["three"]}, {"sni": "localhost"}):
        try:
            async with connect_webtransport("127.0.0.1", port, "/wt", **keywords):
                pass
        except WebTransportError as error:
            assert ("400" in str(error)) == ("ca_file" in keywords), error
        else:
            raise AssertionError(f"{keywords} got a session")


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


async def main() -> None:
    echo = Echo()
    port = free_port()
    server = await serve_webtransport(
        "127.0.0.1",
        port,
        "/wt",
        handler=echo,
        wt_supported_protocols=["one", "two"],
        configuration=QuicConfiguration(is_client=False),
        **FILES,
    )
    try:
        async with connect_webtransport(
            "127.0.0.1", port, "/wt", wt_available_protocols=["two", "one"], **TRUST
        ) as client:
            assert client.session_ready
            assert client.is_client
            assert client.peer_address() == ("127.0.0.1", port)
            assert client.negotiated_protocol == "two"
            await streams(client)
            await bulk(client)
            await datagrams(client)
            await codes(client, echo)
            await end(client, echo)
        assert echo.sessions[0].negotiated_protocol == "two"
        assert echo.sessions[0].role == "server"
        await refusals(port)
        assert len(echo.sessions) == 1
    finally:
        await server.aclose()
    print("done")


asyncio.run(asyncio.wait_for(main(), 5 * SECONDS))
