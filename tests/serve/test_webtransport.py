"""The `webtransport` scope, on every loop."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic, webtransport
from tests.serve.support import served
from tests.support import wait_until, within
from tests.support.tcp import pattern

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ringloop.serve import Server
    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]

LONG = 4 << 20
ACCEPT = {"type": "webtransport.accept"}


async def echo(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Return datagrams, and streams on themselves or, from one-way ones, on a new one."""
    assert scope["type"] == "webtransport"
    assert await receive() == {"type": "webtransport.connect"}
    await send(ACCEPT)
    parts: dict[int, bytes] = {}
    ended: list[bytes] = []
    while (message := await receive())["type"] != "webtransport.disconnect":
        match message["type"]:
            case "webtransport.datagram.receive":
                await send({"type": "webtransport.datagram.send", "data": message["data"]})
            case "webtransport.stream.receive" if message["bidirectional"]:
                sent = {"stream": message["stream"], "data": message["data"]}
                sent["end_stream"] = message["end_stream"]
                await send({"type": "webtransport.stream.send", **sent})
            case "webtransport.stream.receive":
                stream = message["stream_id"]
                parts[stream] = parts.get(stream, b"") + message["data"]
                if not message["more_data"]:
                    ended.append(parts.pop(stream))
                    await send({"type": "webtransport.stream.open", "bidirectional": False})
            case "webtransport.stream.opened":
                sent = {"stream_id": message["stream_id"], "data": ended.pop(0)}
                await send({"type": "webtransport.stream.send", **sent, "more_data": False})


async def opened(
    certificates: Certificates, server: Server, path: str = "/", **others: Any
) -> webtransport.Session:
    host, port = server.quic_address
    given = {"ca_file": certificates.authority, "server_name": "localhost", **others}
    return await within(webtransport.open_session(f"https://{host}:{port}{path}", **given))


@asynccontextmanager
async def both(
    certificates: Certificates, application: Any, path: str = "/", **client: Any
) -> AsyncIterator[webtransport.Session]:
    async with served(certificates, application, lifespan="off") as server:
        async with await opened(certificates, server, path, **client) as session:
            yield session


def test_streams_and_datagrams_go_both_ways(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        body = pattern(LONG)

        async def exchanged(session: webtransport.Session) -> None:
            stream = await session.open_stream()

            async def send() -> None:
                for at in range(0, LONG, 1 << 16):
                    await stream.send(body[at : at + (1 << 16)])
                stream.finish()

            _, answer = await asyncio.gather(send(), stream.read_to_end())
            assert answer == body

        async with both(certificates, echo) as session:
            session.send_datagram(b"datagram")
            assert await within(session.receive_datagram()) == b"datagram"
            await within(asyncio.gather(*(exchanged(session) for _ in range(3))))
            one_way = await within(session.open_unidirectional_stream())
            await within(one_way.send(body))
            one_way.finish()
            answer = await within(session.accept_unidirectional_stream())
            assert await within(answer.read_to_end()) == body

    run(main())


def test_scope_and_subprotocol(run: Run, certificates: Certificates) -> None:
    seen: list[dict[str, Any]] = []

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        seen.append(scope)
        await receive()
        await send({**ACCEPT, "subprotocol": "b", "headers": [(b"X-One", b"1")]})
        await receive()

    async def main() -> None:
        async with both(certificates, application, "/a%20b?c=d", protocols=["a", "b"]) as session:
            assert session.protocol == "b"
            assert (b"x-one", b"1") in (session.response_headers or [])
        (scope,) = seen
        assert scope["type"] == "webtransport"
        assert scope["http_version"] == "3"
        assert scope["scheme"] == "https"
        assert scope["path"] == "/a b"
        assert scope["query_string"] == b"c=d"
        assert scope["subprotocols"] == ["a", "b"]
        assert "webtransport" in scope["extensions"]

    run(main())


@pytest.mark.parametrize(("code", "status"), [(None, 403), (404, 404), (7, 403)])
def test_session_is_refused(
    run: Run, certificates: Certificates, code: int | None, status: int
) -> None:
    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "webtransport.close", "code": code})
        assert (await receive())["type"] == "webtransport.disconnect"

    async def main() -> None:
        async with served(certificates, application, lifespan="off") as server:
            with pytest.raises(webtransport.SessionRejected) as rejected:
                await opened(certificates, server)
            assert rejected.value.status == status

    run(main())


def test_closes_of_either_side(run: Run, certificates: Certificates) -> None:
    told: list[Any] = []

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await send(ACCEPT)
        await receive()
        if scope["path"] == "/server":
            await send({"type": "webtransport.stream.open"})
            stream = (await receive())["stream"]
            one = {"type": "webtransport.stream.send", "stream": stream}
            await send({**one, "data": bytes(100_000), "end_stream": True})
            await send({"type": "webtransport.close", "code": 7, "reason": "enough"})
            return
        message = await receive()
        with pytest.raises(ConnectionError):
            await send({"type": "webtransport.datagram.send", "data": b"late"})
        told.append((message["type"], message["code"], message["reason"]))

    async def main() -> None:
        async with both(certificates, application, "/server") as session:
            # What was sent before the close comes first.
            stream = await within(session.accept_stream())
            assert len(await within(stream.read_to_end())) == 100_000
            closed = await within(session.wait_closed())
            assert closed == (7, "enough", True)
        async with both(certificates, application) as session:
            session.close(8, "over")
            await wait_until(lambda: told)
        assert told == [("webtransport.disconnect", 8, "over")]

    run(main())


def test_resets_and_stops_have_their_codes(run: Run, certificates: Certificates) -> None:
    told: list[Any] = []

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await receive()
        await send(ACCEPT)
        stream = (await receive())["stream"]
        told.append("part")
        message = await receive()
        told.append((message["type"], message["code"]))
        await send({"type": "webtransport.stream.reset", "stream": stream, "code": 12})
        stream = (await receive())["stream"]
        one = {"type": "webtransport.stream.stop_sending", "stream": stream}
        await send({**one, "code": 13})
        await receive()

    async def main() -> None:
        async with both(certificates, application) as session:
            stream = await within(session.open_stream())
            await within(stream.send(b"part"))
            # A reset drops what has not arrived, the stream's header too.
            await wait_until(lambda: told)
            stream.reset(11)
            with pytest.raises(quic.StreamResetError) as reset:
                await within(stream.read())
            assert reset.value.code == 12
            stopped = await within(session.open_stream())
            await within(stopped.send(b"part"))
            assert await within(stopped.stopped()) == 13
        assert told == ["part", ("webtransport.stream.reset", 11)]

    run(main())


def test_mistakes_close_the_session_and_are_logged(
    run: Run, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await receive()
        if scope["path"] == "/early":
            await send({"type": "webtransport.datagram.send", "data": b""})
        if scope["path"] != "/none":
            await send(ACCEPT)
            await send({"type": "webtransport.stream.send", "stream": 99, "data": b""})

    async def main() -> None:
        async with both(certificates, application) as session:
            assert (await within(session.wait_closed())).code == 1
        async with served(certificates, application, lifespan="off") as server:
            for path in ("/none", "/early"):
                with pytest.raises(webtransport.SessionRejected) as rejected:
                    await opened(certificates, server, path)
                assert rejected.value.status == 500

    run(main())
    for text in ("no open stream 99", "without completing handshake", "'webtransport.accept'"):
        assert text in caplog.text


def test_end_of_the_server_closes_sessions(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with served(certificates, echo, lifespan="off") as server:
            async with await opened(certificates, server) as session:
                server.shut_down()
                assert (await within(session.wait_closed())).reason == "the server ends"
                await within(server.wait_closed())

    run(main())


def test_application_that_does_not_receive_stops_the_client(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        may_end = asyncio.Event()

        async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
            await send(ACCEPT)
            await may_end.wait()

        async with both(certificates, application, send_window=256 << 10) as session:
            stream = await within(session.open_stream())
            sent = 0

            async def send() -> None:
                nonlocal sent
                while True:
                    await stream.send(bytes(1 << 16))
                    sent += 1 << 16

            sending = asyncio.ensure_future(send())
            before = -1
            while before != sent or not sent:
                before = sent
                await asyncio.sleep(0.05)
            # The messages that wait, QUIC's window of a stream, the send window.
            assert sent < 24 << 20
            sending.cancel()
            may_end.set()

    run(main())
