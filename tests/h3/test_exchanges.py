"""Requests and responses of `ringloop.h3`, on every loop."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import h3, quic
from tests.h3.support import both, echo, opened, sending_until, served
from tests.support import LoopLog, wait_until, within
from tests.support.tcp import pattern

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]

# More than native code keeps of a body, and than a stream's window.
LONG = 20 << 20


def test_request_and_response_have_their_fields(run: Run, certificates: Certificates) -> None:
    seen: list[Any] = []

    async def handler(request: h3.Request) -> None:
        seen.append((request.method, request.scheme, request.authority, request.path))
        seen.append(request.headers)
        seen.append(await request.read())
        assert request.is_read
        await request.respond(201, [("X-One", "1"), (b"x-one", b"2")], b"made")

    async def main() -> None:
        async with both(certificates, handler) as client:
            response = await within(client.request("GET", "/a?b=c", {"Accept": "text/plain"}))
            assert response.status == 201
            assert response.headers == [(b"x-one", b"1"), (b"x-one", b"2")]
            assert await within(response.read()) == b"made"
            assert response.is_read
            assert response.trailers is None
            assert await within(response.read()) == b""
            authority = client.authority
        assert seen == [
            ("GET", "https", authority, "/a?b=c"),
            [(b"accept", b"text/plain")],
            b"",
        ]

    run(main())


def test_long_bodies_go_both_ways_at_once(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        body = pattern(1 << 20) * (LONG >> 20)

        async def pieces() -> AsyncIterator[bytes]:
            for at in range(0, len(body), 100_000):
                yield body[at : at + 100_000]

        async with both(certificates, echo) as client:
            fields = [
                (b":method", b"POST"),
                (b":scheme", b"https"),
                (b":authority", b"localhost"),
                (b":path", b"/"),
            ]
            response = await within(client.open(fields))

            async def send() -> None:
                async for piece in pieces():
                    await response.send(piece)
                response.send_trailers([(b"sum", b"7")])

            _, answer = await within(asyncio.gather(send(), response.read()))
            assert answer == body
            assert response.trailers == [(b"sum", b"7")]
            assert response.has_ended

    run(main())


def test_many_requests_at_once_on_one_connection(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates, echo) as client:

            async def one(number: int) -> None:
                body = b"%d" % number * 1000
                response = await client.request("POST", f"/{number}", body=body)
                assert await response.read() == body

            # More than the server allows at a time.
            await within(asyncio.gather(*map(one, range(300))))

    run(main())


def test_reader_that_waits_stops_the_sender(run: Run, certificates: Certificates) -> None:
    sent = 0

    async def handler(request: h3.Request) -> None:
        nonlocal sent
        request.start()
        while sent < LONG:
            await request.send(bytes(64 << 10))
            sent += 64 << 10

    async def main() -> None:
        windows = {"max_stream_data": 256 << 10, "max_data": 1 << 20}
        settings = {"send_window": 256 << 10}
        async with both(certificates, handler, settings, **windows) as client:
            response = await within(client.request("GET", "/"))
            # 256 KiB each: the send window, the receive window, the queue; and what is on its way.
            await wait_until(lambda: sent > 256 << 10)
            before = -1
            while before != sent:
                before = sent
                await asyncio.sleep(0.05)
            assert sent < 2 << 20
            assert len(await within(response.read())) == LONG

    run(main())


def test_interim_responses_come_before_the_final_one(run: Run, certificates: Certificates) -> None:
    async def handler(request: h3.Request) -> None:
        request.start(103, {"link": "</a.css>; rel=preload"})
        await request.respond(200)

    async def main() -> None:
        async with both(certificates, handler) as client:
            response = await within(client.request("GET", "/"))
            assert response.status == 200
            assert response.take_interim() == [(103, [(b"link", b"</a.css>; rel=preload")])]
            assert response.take_interim() == []

    run(main())


@pytest.mark.loop_errors
def test_failed_handler_is_status_500_and_is_reported(
    run: Run, certificates: Certificates, loop_log: LoopLog
) -> None:
    async def handler(request: h3.Request) -> None:
        if request.path == "/none":
            return
        if request.path == "/late":
            request.start()
            await request.send(b"part")
        raise ValueError("of the handler")

    async def main() -> None:
        async with both(certificates, handler) as client:
            for path in ("/none", "/"):
                response = await within(client.request("GET", path))
                assert response.status == 500
                assert await within(response.read()) == b""
            with pytest.raises(quic.StreamResetError) as reset:
                response = await within(client.request("GET", "/late"))
                await within(response.read())
            assert reset.value.code == 0x102

    run(main())
    assert any("a handler of an HTTP/3 request raised" in line for line in loop_log.take())


def test_dropped_response_cancels_the_request(run: Run, certificates: Certificates) -> None:
    outcomes: list[BaseException] = []

    async def main() -> None:
        async with both(certificates, sending_until(outcomes)) as client:
            response = await within(client.request("GET", "/"))
            assert await within(response.read(10))
            del response
            gc.collect()
            await wait_until(lambda: outcomes)
            assert isinstance(outcomes[0], quic.StreamStoppedError)
            assert outcomes[0].code == 0x10C

    run(main())


def test_server_that_answers_early_stops_the_body(run: Run, certificates: Certificates) -> None:
    async def handler(request: h3.Request) -> None:
        await request.respond(413, {}, b"too long")

    async def main() -> None:
        async def endless() -> AsyncIterator[bytes]:
            while True:
                yield bytes(1 << 16)

        async with both(certificates, handler) as client:
            response = await within(client.request("POST", "/", body=endless()))
            assert response.status == 413
            assert await within(response.read()) == b"too long"

    run(main())


@pytest.mark.parametrize("timeout", ["1", b"1", [1]])
def test_shutdown_with_a_timeout_of_another_type_changes_nothing(
    run: Run, certificates: Certificates, timeout: Any
) -> None:
    async def main() -> None:
        async with served(certificates, echo) as server:
            with pytest.raises(TypeError):
                await within(server.shut_down(timeout))
            async with await opened(certificates, server) as client:
                assert not client.is_going_away
                response = await within(client.request("POST", "/", body=b"some"))
                assert await within(response.read()) == b"some"

    run(main())


def test_shutdown_leaves_the_close_to_a_client_that_closes(
    run: Run, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringloop.h3._server._CLOSE_SECONDS", 3600)

    async def main() -> None:
        async with served(certificates, echo) as server:
            async with await opened(certificates, server) as client:
                response = await within(client.request("POST", "/", body=b"some"))
                connection = server.connections[0]
                ending = asyncio.ensure_future(server.shut_down())
                await wait_until(lambda: client.is_going_away)
                assert await within(response.read()) == b"some"
                # All has arrived now, and the server knows.
                for _ in range(20):
                    await within(client.connection.ping())
            await within(ending)
            assert isinstance(connection.error, quic.ConnectionClosedByPeer)

    run(main())


def test_shutdown_ends_requests_first(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def handler(request: h3.Request) -> None:
            begun.set()
            await may_end.wait()
            await request.respond(200, {}, b"late")

        async with (
            served(certificates, handler) as server,
            await opened(certificates, server) as client,
        ):
            asking = asyncio.ensure_future(client.request("GET", "/"))
            await within(begun.wait())
            ending = asyncio.ensure_future(server.shut_down())
            await wait_until(lambda: client.is_going_away)
            with pytest.raises(h3.RequestRejected):
                await within(client.request("GET", "/"))
            may_end.set()
            response = await within(asking)
            assert await within(response.read()) == b"late"
            await within(ending)

    run(main())


def test_shutdown_takes_requests_of_clients_that_do_not_know_of_it(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        async with (
            served(certificates, echo) as server,
            await opened(certificates, server) as client,
        ):
            await within((await client.request("GET", "/")).read())
            # It is sent in the turn in which the server begins to end.
            _, response = await within(
                asyncio.gather(server.shut_down(), client.request("POST", "/", body=b"late"))
            )
            assert await within(response.read()) == b"late"

    run(main())


def test_shutdown_waits_until_responses_have_arrived(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        body, responded = bytes(4 << 20), asyncio.Event()

        async def handler(request: h3.Request) -> None:
            await request.respond(200, {}, body)
            responded.set()

        # The window takes all of it, the network does not at once.
        async with (
            served(certificates, handler, send_window_min=16 << 20) as server,
            await opened(certificates, server) as client,
        ):
            response = await within(client.request("GET", "/"))
            await within(responded.wait())
            _, got = await within(asyncio.gather(server.shut_down(), response.read()))
            assert got == body

    run(main())


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(b"\x00\x01a", 0x105, id="DATA before HEADERS"),
        pytest.param(b"\x04\x00", 0x105, id="SETTINGS on a request stream"),
        pytest.param(b"\x01\x02\xff\xff", 0x200, id="a section that cannot be decoded"),
    ],
)
def test_violations_close_the_connection_with_their_code(
    run: Run, certificates: Certificates, data: bytes, code: int
) -> None:
    async def main() -> None:
        async with served(certificates, echo) as server:
            opening = quic.open_connection(
                *server.address[:2],
                alpn=["h3"],
                ca_file=certificates.authority,
                server_name="localhost",
            )
            async with await within(opening) as connection:
                stream = await within(connection.open_stream())
                stream.write(data)
                stream.finish()
                await within(connection.wait_closed())
                assert isinstance(connection.error, quic.ConnectionClosedByPeer)
                assert connection.error.code == code

    run(main())


def test_datagrams_belong_to_their_exchange(run: Run, certificates: Certificates) -> None:
    async def handler(request: h3.Request) -> None:
        request.start()
        for _ in range(3):
            request.send_datagram(await request.receive_datagram() + b"!")
        await request.read()

    async def main() -> None:
        async with both(certificates, handler) as client:
            fields = [
                (b":method", b"CONNECT"),
                (b":scheme", b"https"),
                (b":authority", b"localhost"),
                (b":path", b"/"),
                (b":protocol", b"connect-udp"),
            ]
            open_ones = [await within(client.open(fields)) for _ in range(2)]
            for response in open_ones:
                await within(response._wait_head())
            for number, response in enumerate(open_ones):
                for _ in range(3):
                    data = b"%d" % number
                    response.send_datagram(data)
                    assert await within(response.receive_datagram()) == data + b"!"
                await within(response.send(b"", end=True))

    run(main())


def test_connection_without_http3_is_refused(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates, echo, {"alpn": ["other"]}, alpn=["other"]) as client:
            with pytest.raises(RuntimeError, match="no HTTP/3"):
                await within(client.request("GET", "/"))

    run(main())


def test_connection_that_ends_wakes_who_waits(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        begun = asyncio.Event()

        async def handler(request: h3.Request) -> None:
            request.start(200)
            await request.send(b"part")
            begun.set()
            await request.read()

        async with both(certificates, handler) as client:
            fields = [
                (b":method", b"POST"),
                (b":scheme", b"https"),
                (b":authority", b"localhost"),
                (b":path", b"/"),
            ]
            response = await within(client.open(fields))
            await within(begun.wait())
            assert await within(response.read(100)) == b"part"
            reading = asyncio.ensure_future(response.read(100))
            await asyncio.sleep(0)
            client.close()
            with pytest.raises(quic.ConnectionClosed):
                await within(reading)

    run(main())
