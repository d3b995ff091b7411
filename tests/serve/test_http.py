"""The `http` scope over HTTP/3, on every loop."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic
from tests.serve.support import both, client_of, fetched, fetched_over_tcp, plain, served
from tests.support import wait_until, within
from tests.support.tcp import pattern

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]

START = {"type": "http.response.start", "status": 200, "headers": []}
LONG = 20 << 20


async def respond(send: Any, status: int = 200, body: bytes = b"") -> None:
    await send({**START, "status": status})
    await send({"type": "http.response.body", "body": body})


def http(application: Any) -> Any:
    """Leave out the lifespan."""

    async def only_http(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            await application(scope, receive, send)

    return only_http


async def echo(scope: dict[str, Any], receive: Any, send: Any) -> None:
    await send(START)
    more = True
    while more:
        message = await receive()
        more = message["more_body"]
        await send({"type": "http.response.body", "body": message["body"], "more_body": more})


def test_scope_is_as_the_specification_has_it(run: Run, certificates: Certificates) -> None:
    seen: list[dict[str, Any]] = []

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        seen.append(scope)
        await respond(send)

    async def main() -> None:
        async with served(certificates, http(application), root_path="/api") as server:
            async with client_of(certificates, server) as client:
                headers = [("Cookie", "a=1"), ("cookie", "b=2"), ("x-one", "1")]
                assert await fetched(client, "GET", "/caf%C3%A9/%2F?q=%20&r", headers=headers) == (
                    200,
                    b"",
                )
                (scope,) = seen
                port = client.connection.endpoint.address[1]
                assert scope["client"] == ("127.0.0.1", port)
                assert scope["server"] == server.quic_address
                host = client.authority.encode()
        assert scope["type"] == "http"
        assert scope["asgi"]["version"] == "3.0"
        assert scope["http_version"] == "3"
        assert scope["method"] == "GET"
        assert scope["scheme"] == "https"
        assert scope["path"] == "/api/café//"
        assert scope["raw_path"] == b"/api/caf%C3%A9/%2F"
        assert scope["query_string"] == b"q=%20&r"
        assert scope["root_path"] == "/api"
        assert scope["headers"] == [(b"host", host), (b"x-one", b"1"), (b"cookie", b"a=1; b=2")]
        assert "http.response.trailers" in scope["extensions"]

    run(main())


def test_fields_of_a_trusted_proxy_replace_client_and_scheme(
    run: Run, certificates: Certificates
) -> None:
    seen: list[dict[str, Any]] = []

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        seen.append(scope)
        await respond(send)

    async def main() -> None:
        proxied = [("x-forwarded-for", "192.0.2.7"), ("x-forwarded-proto", "http")]
        async with both(certificates, http(application)) as client:
            await fetched(client, "GET", "/", headers=proxied)
            await fetched(client, "GET", "/")
        first, second = seen
        assert (first["client"][0], first["scheme"]) == ("192.0.2.7", "http")
        assert (second["client"][0], second["scheme"]) == ("127.0.0.1", "https")

    run(main())


def test_scopes_of_two_requests_share_nothing_that_applications_change(
    run: Run, certificates: Certificates
) -> None:
    seen: list[dict[str, Any]] = []

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        seen.append({name: dict(scope[name]) for name in ("asgi", "state", "extensions")})
        scope["asgi"]["changed"] = scope["state"]["changed"] = True
        scope["extensions"]["changed"] = {}
        scope["extensions"]["http.response.trailers"]["changed"] = True
        scope["path"] = "/changed"
        await respond(send)

    async def main() -> None:
        async with both(certificates, http(application)) as client:
            for _ in range(2):
                await fetched(client, "GET", "/")
        first, second = seen
        assert first["extensions"].pop("http.response.trailers") == {"changed": True}
        assert second["extensions"].pop("http.response.trailers") == {"changed": True}
        assert first == second
        assert "changed" not in second["extensions"]

    run(main())


def test_response_fields_of_lists_replace_the_defaults(
    run: Run, certificates: Certificates
) -> None:
    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        headers = [[b"Server", b"another"], (b"X-One", b"1"), (b"x-one", b"2")]
        await send({**START, "headers": headers})
        await send({"type": "http.response.body", "body": bytearray(b"bytes"), "more_body": True})
        await send({"type": "http.response.body", "body": memoryview(b" of any kind")})

    async def main() -> None:
        async with both(certificates, http(application)) as client:
            response = await within(client.request("GET", "/"))
            assert await within(response.read()) == b"bytes of any kind"
            fields = response.headers or []
            assert [value for name, value in fields if name == b"server"] == [b"another"]
            assert [value for name, value in fields if name == b"x-one"] == [b"1", b"2"]

    run(main())


def test_lifespan_is_one_for_both_protocols(run: Run, certificates: Certificates) -> None:
    told: list[Any] = []

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            scope["state"]["pool"] = "open"
            told.append((await receive())["type"])
            await send({"type": "lifespan.startup.complete"})
            told.append((await receive())["type"])
            await send({"type": "lifespan.shutdown.complete"})
            return
        told.append((scope["http_version"], scope["state"]["pool"]))
        await respond(send)

    async def main() -> None:
        async with served(certificates, application) as server:
            async with client_of(certificates, server) as client:
                await fetched(client, "GET", "/")
            await fetched_over_tcp(certificates, server)
        assert told == ["lifespan.startup", ("3", "open"), ("1.1", "open"), "lifespan.shutdown"]

    run(main())


def test_long_bodies_are_streamed_both_ways(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        body = pattern(1 << 20) * (LONG >> 20)

        async def pieces() -> AsyncIterator[bytes]:
            for at in range(0, len(body), 100_000):
                yield body[at : at + 100_000]

        async with both(certificates, http(echo)) as client:
            fields = [(b":method", b"POST"), (b":scheme", b"https"), (b":path", b"/")]
            response = await within(client.open([*fields, (b":authority", b"localhost")]))

            async def upload() -> None:
                async for piece in pieces():
                    await response.send(piece)
                await response.send(b"", end=True)

            _, answer = await within(asyncio.gather(upload(), response.read()))
            assert answer == body

    run(main())


def test_application_that_does_not_read_stops_the_client(
    run: Run, certificates: Certificates
) -> None:
    sent = 0

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        while sent == 0 or not may_end.is_set():
            await may_end.wait()
        await respond(send, 413)

    may_end = asyncio.Event()

    async def main() -> None:
        nonlocal sent
        windows = {"max_stream_data": 256 << 10, "max_data": 1 << 20}

        async def endless() -> AsyncIterator[bytes]:
            nonlocal sent
            while True:
                yield bytes(64 << 10)
                sent += 64 << 10

        async with both(certificates, http(application), quic=windows) as client:
            client.connection.set_send_window(256 << 10)
            asking = asyncio.ensure_future(client.request("POST", "/", body=endless()))
            await wait_until(lambda: sent > 256 << 10)
            before = -1
            while before != sent:
                before = sent
                await asyncio.sleep(0.05)
            assert sent < 2 << 20
            may_end.set()
            response = await within(asking)
            assert response.status == 413

    run(main())


def test_disconnect_is_told_once_the_response_is_complete_or_the_client_gone(
    run: Run, certificates: Certificates
) -> None:
    outcomes: list[Any] = []

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        assert (await receive())["more_body"] is False
        if scope["path"] == "/complete":
            await respond(send)
            outcomes.append(await receive())
            return
        await send(START)
        await send({"type": "http.response.body", "body": b"part", "more_body": True})
        outcomes.append(await receive())
        with pytest.raises(ConnectionError):
            await send({"type": "http.response.body", "body": b"more"})
        outcomes.append("refused")
        raise RuntimeError("of no interest")

    async def main() -> None:
        async with served(certificates, http(application)) as server:
            async with client_of(certificates, server) as client:
                await fetched(client, "GET", "/complete")
                await wait_until(lambda: len(outcomes) == 1)
                response = await within(client.request("GET", "/cancelled"))
                response.cancel()
                await wait_until(lambda: len(outcomes) == 3)
                await within(client.request("GET", "/vanished"))
            await wait_until(lambda: len(outcomes) == 5)
        gone = {"type": "http.disconnect"}
        assert outcomes == [gone, gone, "refused", gone, "refused"]

    run(main())


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        pytest.param([], "without starting response", id="nothing"),
        pytest.param([{"type": "http.response.body"}], "'http.response.start'", id="no start"),
        pytest.param([{**START, "status": 103}], "200 to 999", id="status 103"),
        pytest.param([{**START, "headers": [("a", "b")]}], "in bytes", id="text as header"),
        pytest.param(
            [{**START, "headers": [(b"a", b"b\r\nc: d")]}], "a", id="header with newlines"
        ),
    ],
)
def test_mistakes_of_an_application_are_status_500_and_logged(
    run: Run,
    certificates: Certificates,
    caplog: pytest.LogCaptureFixture,
    messages: list[Any],
    text: str,
) -> None:
    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)

    async def main() -> None:
        async with both(certificates, http(application)) as client:
            assert await fetched(client, "GET", "/") == (500, b"Internal Server Error")
            # The connection goes on.
            assert (await fetched(client, "HEAD", "/")) == (500, b"")

    run(main())
    assert text in caplog.text


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        pytest.param([], "without completing response", id="not complete"),
        pytest.param([START], "'http.response.body'", id="started twice"),
        pytest.param(
            [{"type": "http.response.body", "body": b"123456"}], "longer than", id="too long"
        ),
        pytest.param([{"type": "http.response.body", "body": b"12"}], "shorter than", id="short"),
    ],
)
def test_response_that_cannot_be_completed_is_reset(
    run: Run,
    certificates: Certificates,
    caplog: pytest.LogCaptureFixture,
    messages: list[Any],
    text: str,
) -> None:
    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await send({**START, "headers": [(b"Content-Length", b"5")]})
        for message in messages:
            await send(message)

    async def main() -> None:
        async with both(certificates, http(application)) as client:
            with pytest.raises(quic.StreamResetError) as reset:
                await fetched(client, "GET", "/")
            assert reset.value.code == 0x102

    run(main())
    assert text in caplog.text


def test_head_trailers_hints_and_files(
    run: Run, certificates: Certificates, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_bytes(pattern(600_000))

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["path"] == "/file":
            await send({**START, "headers": [(b"content-length", b"600000")]})
            await send({"type": "http.response.pathsend", "path": str(file)})
        elif scope["path"] == "/missing":
            await send(START)
            await send({"type": "http.response.pathsend", "path": str(tmp_path / "none")})
        else:
            await send({"type": "http.response.early_hint", "links": [b"</a.css>; rel=preload"]})
            await send({**START, "trailers": True, "headers": [(b"Connection", b"close")]})
            await send({"type": "http.response.body", "body": b"body"})
            one = {"type": "http.response.trailers", "headers": [(b"Sum", b"7")]}
            await send({**one, "more_trailers": True})
            await send(one)

    async def main() -> None:
        async with both(certificates, http(application)) as client:
            assert await fetched(client, "GET", "/file") == (200, file.read_bytes())
            assert await fetched(client, "HEAD", "/file") == (200, b"")
            with pytest.raises(quic.StreamResetError):
                await fetched(client, "GET", "/missing")
            response = await within(client.request("GET", "/"))
            assert await within(response.read()) == b"body"
            assert response.take_interim() == [(103, [(b"link", b"</a.css>; rel=preload")])]
            assert response.trailers == [(b"sum", b"7"), (b"sum", b"7")]
            names = [name for name, _ in response.headers or ()]
            assert b"connection" not in names
            assert {b"date", b"server", b"alt-svc"} <= set(names)

    run(main())


def test_continue_is_sent_when_the_body_is_asked_for(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates, http(echo)) as client:
            fields = [(b":method", b"POST"), (b":scheme", b"https"), (b":path", b"/")]
            fields += [(b":authority", b"localhost"), (b"expect", b"100-continue")]

            response = await within(client.open(fields))
            await within(response._wait_head())
            # `echo` starts its response before it reads: no interim one is of use then.
            assert response.take_interim() == []
            await response.send(b"body", end=True)
            assert await within(response.read()) == b"body"

    run(main())


def test_header_bomb_is_status_431(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates, http(plain)) as client:
            # The client keeps to the bytes that the server has announced.
            bomb = [(f"x-{number}", "b") for number in range(300)]
            status, _ = await fetched(client, "GET", "/", headers=bomb)
            assert status == 431
            assert (await fetched(client, "GET", "/"))[0] == 200

    run(main())


def test_flood_of_resets_ends_the_connection(run: Run, certificates: Certificates) -> None:
    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await receive()
        await asyncio.Event().wait()

    async def main() -> None:
        async with served(certificates, http(application), graceful_seconds=0) as server:
            async with client_of(certificates, server) as client:

                async def flood() -> None:
                    for _ in range(3000):
                        fields = [(b":method", b"GET"), (b":scheme", b"https"), (b":path", b"/")]
                        response = await client.open([*fields, (b":authority", b"localhost")])
                        response.cancel()

                with pytest.raises(quic.ConnectionClosedByPeer) as closed:
                    await within(flood())
                assert closed.value.code == 0x107
            async with client_of(certificates, server):
                pass

    run(main())


def test_access_log_has_the_protocol(
    run: Run, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "uvicorn.access")

    async def main() -> None:
        async with served(certificates, plain) as server:
            async with client_of(certificates, server) as client:
                await fetched(client, "GET", "/a b?c=d".replace(" ", "%20"))
            await fetched_over_tcp(certificates, server)

    run(main())
    lines = [record.getMessage() for record in caplog.records if record.name == "uvicorn.access"]
    assert lines[0].endswith('"GET /a%20b?c=d HTTP/3" 200')
    assert lines[1].endswith('"GET / HTTP/1.1" 200')
