"""How sessions of WebTransport begin and end, on every loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import h3, quic, webtransport
from ringloop._native import h3 as _h3
from ringloop.webtransport import Session, SessionClosed, SessionRejected
from tests.h3.support import served as served_h3
from tests.support import LoopLog, wait_until, within
from tests.webtransport.support import both, opened, served

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]


async def idle(session: Session) -> None:
    """Wait for the end."""
    await session.wait_closed()


def test_session_has_what_it_was_asked_for_with(run: Run, certificates: Certificates) -> None:
    seen: list[Any] = []

    async def handler(session: Session) -> None:
        seen.append((session.path, session.authority, session.origin, session.protocol))
        seen.append(session.headers)
        await session.wait_closed()

    async def main() -> None:
        asked: dict[str, Any] = {
            "headers": {"Origin": "https://page.example", "X-One": "1"},
            "protocols": ["moq-16", "chat"],
        }
        async with both(
            certificates, handler, "/a?b=c", server={"protocols": ["chat"]}, **asked
        ) as session:
            assert session.protocol == "chat"
            assert session.status == 200
            assert session.path == "/a?b=c"
            authority = session.authority
        assert seen[0] == ("/a?b=c", authority, "https://page.example", "chat")
        assert (b"x-one", b"1") in seen[1]

    run(main())


def test_session_is_connected_elsewhere_than_its_url_says(
    run: Run, certificates: Certificates
) -> None:
    seen: list[str] = []

    async def handler(session: Session) -> None:
        seen.append(session.authority)

    async def main() -> None:
        async with served(certificates, handler) as server:
            connecting = webtransport.connect(
                "https://localhost/a",
                connect_to=("127.0.0.1", server.address[1]),
                local_address=("127.0.0.1", 0),
                ca_file=certificates.authority,
            )
            async with connecting as session:
                assert session.connection.remote_address == server.address
                assert session.connection.endpoint.address[0] == "127.0.0.1"
                await within(session.wait_closed())
        assert seen == ["localhost"]

    run(main())


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"connect_to": "localhost"}, r"give \(host, port\)"),
        ({"connect_to": ("localhost",)}, r"give \(host, port\)"),
        ({"ca_flie": "one"}, "Did you mean 'ca_file'"),
    ],
)
def test_keyword_that_cannot_be_is_refused(run: Run, keywords: Any, said: str) -> None:
    async def main() -> None:
        with pytest.raises(TypeError, match=said):
            async with webtransport.connect("https://localhost/", **keywords):
                pass

    run(main())


def test_open_connection_takes_no_settings(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates, idle) as session:
            for keywords in ({"server_name": "one"}, {"idle_timeout": 1.0}):
                opening = webtransport.open_session(
                    "https://localhost/", connection=session.connection, **keywords
                )
                with pytest.raises(TypeError, match=f"{next(iter(keywords))}: the connection is"):
                    await within(opening)

    run(main())


def test_unwanted_session_is_rejected(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        server = {"paths": ["/chat"], "origins": ["https://page.example"]}
        async with served(certificates, idle, **server) as endpoint:
            for path, headers, status in [
                ("/other", {}, 404),
                ("/chat", {"origin": "https://other.example"}, 403),
            ]:
                with pytest.raises(SessionRejected, match=str(status)) as caught:
                    await opened(certificates, endpoint, path, headers=headers)
                assert caught.value.status == status
            async with await opened(certificates, endpoint, "/chat?x") as session:
                assert not session.is_closed

    run(main())


def test_one_handler_takes_requests_and_sessions(run: Run, certificates: Certificates) -> None:
    async def handler(request: h3.Request) -> None:
        if not webtransport.is_session_request(request):
            await request.respond(200, {}, b"plain")
            return
        if request.path != "/chat":
            await request.respond(404, {"x-why": "path"}, b"no such path")
            return
        session = await webtransport.accept(request, headers={"x-one": "1"})
        with pytest.raises(quic.StreamClosedError, match="accepted as a session"):
            request.start(200)
        async with session:
            stream = await session.accept_stream()
            await stream.send(await stream.read())
            stream.close()
            assert await stream.acked()
            await session.wait_closed()

    async def main() -> None:
        async with served_h3(certificates, handler, webtransport=True) as server:
            client: dict[str, Any] = {"ca_file": certificates.authority, "server_name": "localhost"}
            port = server.address[1]
            async with h3.connect("127.0.0.1", port, **client) as plain:
                response = await within(plain.request("GET", "/"))
                assert await within(response.read()) == b"plain"
            with pytest.raises(SessionRejected) as caught:
                await opened(certificates, server, "/nowhere")
            assert caught.value.status == 404
            assert (b"x-why", b"path") in caught.value.headers
            async with await opened(certificates, server, "/chat") as session:
                assert session.response_headers == [(b"x-one", b"1")]
                stream = await session.open_stream()
                await stream.send(b"hello")
                stream.finish()
                assert await within(stream.read()) == b"hello"

    run(main())


def test_handler_that_does_not_answer_rejects(run: Run, certificates: Certificates) -> None:
    async def silent(request: h3.Request) -> None:
        pass

    async def main() -> None:
        async with served_h3(certificates, silent, webtransport=True) as server:
            with pytest.raises(SessionRejected) as caught:
                await opened(certificates, server)
            assert caught.value.status == 500

    run(main())


def test_status_2xx_is_not_how_a_session_is_accepted(run: Run, certificates: Certificates) -> None:
    async def handler(request: h3.Request) -> None:
        with pytest.raises(ValueError, match=r"webtransport\.accept"):
            request.start(200)
        await request.respond(429)
        with pytest.raises(quic.StreamClosedError):
            await webtransport.accept(request)

    async def main() -> None:
        async with served_h3(certificates, handler, webtransport=True) as server:
            with pytest.raises(SessionRejected) as caught:
                await opened(certificates, server)
            assert caught.value.status == 429

    run(main())


def test_server_without_sessions_has_its_own_error(run: Run, certificates: Certificates) -> None:
    async def handler(request: h3.Request) -> None:
        await request.respond(200)

    async def main() -> None:
        async with served_h3(certificates, handler) as server:
            with pytest.raises(quic.ConnectError, match="has not announced"):
                await opened(certificates, server)

    run(main())


def test_plain_request_is_not_accepted(run: Run, certificates: Certificates) -> None:
    async def handler(request: h3.Request) -> None:
        with pytest.raises(quic.StreamClosedError, match="asks for no session"):
            await webtransport.accept(request)
        await request.respond(204)

    async def main() -> None:
        async with served_h3(certificates, handler, webtransport=True) as server:
            port = server.address[1]
            ca_file = certificates.authority
            async with h3.connect(
                "127.0.0.1", port, ca_file=ca_file, server_name="localhost"
            ) as plain:
                response = await within(plain.request("GET", "/"))
                assert response.status == 204

    run(main())


def test_close_has_code_and_reason_both_ways(run: Run, certificates: Certificates) -> None:
    ends: list[Any] = []

    async def handler(session: Session) -> None:
        if session.path == "/server":
            session.close(0xFFFF_FFFF, "späti")
        ends.append(await session.wait_closed())

    async def main() -> None:
        async with served(certificates, handler) as server:
            async with await opened(certificates, server, "/server") as session:
                end = await within(session.wait_closed())
                assert end == (0xFFFF_FFFF, "späti", True)
                assert session.is_closed
                with pytest.raises(SessionClosed, match="späti") as caught:
                    await session.open_stream()
                assert caught.value.code == 0xFFFF_FFFF
                with pytest.raises(SessionClosed):
                    session.send_datagram(b"late")
            async with await opened(certificates, server, "/client") as session:
                session.close(7, "done")
                assert await within(session.wait_closed()) == (7, "done", False)
            await wait_until(lambda: len(ends) == 2)
        assert ends == [(0xFFFF_FFFF, "späti", False), (7, "done", True)]

    run(main())


@pytest.mark.parametrize(("code", "reason"), [(-1, ""), (1 << 32, ""), (True, "")])
def test_code_that_cannot_be_is_refused(
    run: Run, certificates: Certificates, code: int, reason: str
) -> None:
    async def main() -> None:
        async with both(certificates, idle) as session:
            with pytest.raises(ValueError, match="code is"):
                session.close(code, reason)
            assert not session.is_closed

    run(main())


def test_long_reason_is_cut(run: Run, certificates: Certificates) -> None:
    async def handler(session: Session) -> None:
        session.close(1, "ä" * 1000)

    async def main() -> None:
        async with both(certificates, handler) as session:
            end = await within(session.wait_closed())
            assert end == (1, "ä" * 512, True)

    run(main())


def test_drain_is_reported_and_everything_still_works(run: Run, certificates: Certificates) -> None:
    async def handler(session: Session) -> None:
        session.drain()
        stream = await session.accept_stream()
        await stream.send(await stream.read())
        stream.close()
        await session.wait_closed()

    async def main() -> None:
        async with both(certificates, handler) as session:
            await within(session.wait_draining())
            assert session.is_draining
            stream = await session.open_stream()
            await stream.send(b"still")
            stream.finish()
            assert await within(stream.read()) == b"still"

    run(main())


def test_goaway_drains_sessions(run: Run, certificates: Certificates) -> None:
    async def handler(session: Session) -> None:
        assert await session.wait_closed() == (3, "bye", True)

    async def main() -> None:
        async with served(certificates, handler) as server:
            session = await opened(certificates, server)
            async with session:
                shutting = asyncio.ensure_future(server.shut_down())
                await within(session.wait_draining())
                session.close(3, "bye")
                await within(shutting)

    run(main())


def test_handler_that_raises_closes_with_code_1(
    run: Run, certificates: Certificates, loop_log: LoopLog
) -> None:
    async def handler(session: Session) -> None:
        raise ValueError("handler")

    async def main() -> None:
        async with both(certificates, handler) as session:
            assert await within(session.wait_closed()) == (1, "", True)

    run(main())
    assert any("handler" in text for text in loop_log.take())


@pytest.mark.parametrize("in_group", [False, True])
def test_client_that_closes_while_the_handler_reads_is_no_failure(
    run: Run, certificates: Certificates, loop_log: LoopLog, in_group: bool
) -> None:
    reading: list[Any] = []
    raised: list[BaseException] = []

    async def read(session: Session) -> None:
        stream = await session.accept_stream()
        reading.append(await stream.read(4))
        await stream.read_to_end()

    async def handler(request: h3.Request) -> None:
        session = await webtransport.accept(request)
        try:
            async with session:
                if in_group:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(read(session))
                else:
                    await read(session)
        except SessionClosed as error:
            raised.append(error)
            raise

    async def main() -> None:
        async with served_h3(certificates, handler, webtransport=True) as endpoint:
            session = await opened(certificates, endpoint)
            async with session:
                stream = await within(session.open_stream())
                await within(stream.send(b"part"))
                await wait_until(lambda: reading)
                session.close(7, "the tab is closed")
                # The connection goes on.
                await wait_until(lambda: raised)
        assert [(error.code, error.reason) for error in raised] == [(7, "the tab is closed")]

    run(main())
    assert not loop_log.take()


def test_client_that_vanishes_ends_sessions(run: Run, certificates: Certificates) -> None:
    ended: list[BaseException] = []

    async def handler(session: Session) -> None:
        try:
            await session.wait_closed()
        except quic.ConnectionClosed as error:
            ended.append(error)
            raise

    async def main() -> None:
        async with served(certificates, handler) as server:
            session = await opened(certificates, server)
            session.connection.close(0x100)
            await wait_until(lambda: bool(ended))
            with pytest.raises(quic.ConnectionClosed):
                await session.wait_closed()
            await session._close_connection()

    run(main())


async def close_at_once(session: Session) -> None:
    session.close(7, "over")


def test_connection_is_closed_once_the_peer_has_ended_the_session(
    run: Run, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_at_close: list[int] = []
    close = quic.Connection.close

    def counted(connection: quic.Connection, *arguments: Any) -> None:
        if connection.is_client:
            open_at_close.append(_h3.request_count(connection))
        close(connection, *arguments)

    monkeypatch.setattr(quic.Connection, "close", counted)
    monkeypatch.setattr("ringloop.webtransport._session._END_SECONDS", 3600)

    async def main() -> None:
        async with served(certificates, idle) as server, await opened(certificates, server):
            pass
        assert open_at_close == [0]

    run(main())


@pytest.mark.parametrize("is_server", [False, True])
def test_connection_of_a_session_is_closed_with_it_without_a_context_manager(
    run: Run, certificates: Certificates, is_server: bool
) -> None:
    async def main() -> None:
        async with served(certificates, close_at_once if is_server else idle) as server:
            session = await opened(certificates, server)
            if not is_server:
                session.close(7, "over")
            assert (await within(session.wait_closed())).code == 7
            endpoint = session.connection.endpoint
            # Long before its idle time-out.
            async with asyncio.timeout(10):
                await wait_until(lambda: endpoint._driver.is_closed)
            assert session.connection.is_closed

    run(main())


def test_peer_that_does_not_end_a_session_does_not_keep_its_connection(
    run: Run, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_h3, "request_count", lambda _: 1)
    monkeypatch.setattr("ringloop.webtransport._session._END_SECONDS", 0.01)

    async def main() -> None:
        async with served(certificates, idle) as server:
            session = await opened(certificates, server)
            await within(session.__aexit__(None, None, None))
            assert session.connection.is_closed

    run(main())


def test_cancelled_open_gives_the_request_up(run: Run, certificates: Certificates) -> None:
    asked = asyncio.Event()
    ended: list[BaseException] = []

    async def step(request: h3.Request) -> Session | None:
        asked.set()
        try:
            await request.read()
        except quic.StreamResetError as error:
            ended.append(error)
            with pytest.raises(quic.StreamClosedError):
                await webtransport.accept(request)
        return None

    async def main() -> None:
        async with served(certificates, idle, accepts=step) as server:
            opening = asyncio.ensure_future(opened(certificates, server))
            await within(asked.wait())
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            await wait_until(lambda: bool(ended))

    run(main())


def test_session_without_references_is_given_up(run: Run, certificates: Certificates) -> None:
    ended: list[BaseException] = []

    async def handler(session: Session) -> None:
        try:
            await session.wait_closed()
        except SessionClosed as error:
            ended.append(error)

    async def main() -> None:
        async with served(certificates, handler) as server:
            session = await opened(certificates, server)
            connection = session.connection
            del session
            await wait_until(lambda: bool(ended))
            assert not connection.is_closed
            connection.close()
            await connection.endpoint._after_close(connection)

    run(main())


@pytest.mark.parametrize(
    "url", ["http://localhost/", "https://", "localhost:4433", "https://a@localhost/"]
)
def test_url_that_cannot_be_is_refused(run: Run, url: str) -> None:
    async def main() -> None:
        with pytest.raises(ValueError, match="not the URL of a session"):
            await webtransport.open_session(url)

    run(main())
