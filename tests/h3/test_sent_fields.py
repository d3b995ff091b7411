"""What no message may have is refused by the sending end (RFC 9114 §4.2, §4.3)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.h3.support import both
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import Callable

    from ringloop import h3
    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]

WRONG = [
    {"a b": "1"},
    {"a(b": "1"},
    {"a:b": "1"},
    {"": "1"},
    {":path": "/"},
    {":status": "200"},
    {"a": "1\r\nb: 2"},
    {"a": "\x00"},
    {"a": "\x1b"},
    {"a": "\x7f"},
    {"Connection": "close"},
    {"keep-alive": "timeout=5"},
    {"proxy-connection": "close"},
    {"Transfer-Encoding": "chunked"},
    {"upgrade": "h2c"},
    {"te": "gzip"},
]


async def echo_fields(request: h3.Request) -> None:
    await request.respond(200, request.headers or (), await request.read())


@pytest.mark.parametrize("headers", WRONG, ids=repr)
def test_fields_that_no_message_has_are_refused(
    headers: dict[str, str], run: Run, certificates: Certificates
) -> None:
    refused: list[str] = []

    async def handler(request: h3.Request) -> None:
        with pytest.raises(ValueError, match="field"):
            await request.respond(200, headers, b"body")
        request.start(200)
        with pytest.raises(ValueError, match="field"):
            request.send_trailers([(a.encode(), b.encode()) for a, b in headers.items()])
        refused.append("at the server")
        await request.send(b"rest", end=True)

    async def main() -> None:
        async with both(certificates, handler) as client:
            with pytest.raises(ValueError, match="field"):
                await within(client.request("GET", "/", headers))
            with pytest.raises(ValueError, match="field"):
                await within(client.request("POST", "/", body=b"x", trailers=headers))
            response = await within(client.request("GET", "/"))
            assert (response.status, await within(response.read())) == (200, b"rest")
            assert client.request_count == 0
        assert refused[-1:] == ["at the server"]

    run(main())


def test_fields_are_sent_in_their_form(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates, echo_fields) as client:
            headers = {"X-One": " a\tb ", "te": "Trailers", "empty": "", "two": "\xe9"}
            response = await within(client.request("GET", "/", headers))
            assert response.headers == [
                (b"x-one", b"a\tb"),
                (b"te", b"Trailers"),
                (b"empty", b""),
                (b"two", b"\xe9"),
            ]

    run(main())


@pytest.mark.parametrize("status", [0, 99, 101, 1000, -1, True])
def test_statuses_that_there_are_not(status: Any, run: Run, certificates: Certificates) -> None:
    async def handler(request: h3.Request) -> None:
        with pytest.raises(ValueError, match="status is"):
            request.start(status)
        assert not request.has_responded
        await request.respond(204)

    async def main() -> None:
        async with both(certificates, handler) as client:
            assert (await within(client.request("GET", "/"))).status == 204

    run(main())


def test_messages_out_of_turn(run: Run, certificates: Certificates) -> None:
    async def handler(request: h3.Request) -> None:
        with pytest.raises(RuntimeError, match="no response was sent"):
            request.send_trailers([(b"a", b"b")])
        with pytest.raises(ValueError, match="interim"):
            await request.respond(103)
        request.start(103)
        request.start(200)
        with pytest.raises(RuntimeError, match="the final response was sent"):
            request.start(200)
        request.send_trailers([(b"a", b"b")])

    async def main() -> None:
        async with both(certificates, handler) as client:
            response = await within(client.request("GET", "/"))
            assert await within(response.read()) == b""
            assert response.trailers == [(b"a", b"b")]
            assert response.take_interim() == [(103, [])]

    run(main())


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("", "/", {}),
        ("A B", "/", {}),
        ("CONNECT", "/", {}),
        ("GET", "", {}),
        ("GET", "relative", {}),
        ("GET", "*", {}),
        ("GET", "/a b", {}),
        ("GET", "/#fragment", {}),
        ("GET", "/\r\n", {}),
        ("GET", "/", {"host": "elsewhere.example"}),
    ],
)
def test_targets_that_no_request_has(
    method: str, path: str, headers: dict[str, str], run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        async with both(certificates, echo_fields) as client:
            with pytest.raises(ValueError, match=r":|'host'"):
                await within(client.request(method, path, headers))
            response = await within(client.request("OPTIONS", "*"))
            assert response.status == 200

    run(main())


def test_pseudo_fields_of_an_open_request(run: Run, certificates: Certificates) -> None:
    place = [(b":scheme", b"https"), (b":authority", b"localhost"), (b":path", b"/")]
    get = (b":method", b"GET")
    wrong = [
        [],
        [get],
        place,
        [get, get, *place],
        [get, *place, (b":status", b"200")],
        [get, *place, (b":protocol", b"websocket")],
        [(b"a", b"b"), get, *place],
        [(b":method", b"CONNECT"), *place],
        [(b":method", b"CONNECT")],
    ]

    async def main() -> None:
        async with both(certificates, echo_fields) as client:
            for fields in wrong:
                with pytest.raises(ValueError, match=":"):
                    await within(client.open(fields, end=True))
            for head in ([*place, get], [get, place[0], place[2], (b"host", b"localhost")]):
                response = await within(client.open(head, end=True))
                await within(response._wait_head())
                assert response.status == 200

    run(main())


def test_cancelled_read_of_a_body_loses_nothing(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        goes_on = asyncio.Event()

        async def handler(request: h3.Request) -> None:
            request.start(200)
            await request.send(b"first ")
            await goes_on.wait()
            await request.send(b"second", end=True)

        async with both(certificates, handler) as client:
            response = await within(client.request("GET", "/"))
            reading = asyncio.ensure_future(response.read())
            assert await within(client.connection.ping()) > 0
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            goes_on.set()
            assert await within(response.read(3)) == b"fir"
            assert await within(response.read()) == b"st second"
            assert await within(response.read()) == b""

    run(main())


def test_length_of_a_view_is_sent(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates, echo_fields) as client:
            body = memoryview(b"abcdefgh").cast("I")
            response = await within(client.request("POST", "/", body=body))
            assert response.header("content-length") == "8"

    run(main())
