"""A message of ours has the length that it declares (RFC 9114 §4.1.2), for requests and responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ringloop import h3, quic
from tests.h3.support import both, echo
from tests.support import wait_until, within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.support import LoopLog
    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]

THREE = {"content-length": "3"}
TOO_LONG = "longer than its content-length: 4 of 3 bytes"
TOO_SHORT = "ends before its content-length: 2 of 3 bytes"


async def pieces(*data: bytes) -> AsyncIterator[bytes]:
    for piece in data:
        yield piece


@pytest.mark.parametrize(
    ("body", "trailers", "problem"),
    [
        (lambda: b"abcd", None, TOO_LONG),
        (lambda: pieces(b"ab", b"cd"), None, TOO_LONG),
        (lambda: b"ab", None, TOO_SHORT),
        (lambda: pieces(b"a", b"b"), None, TOO_SHORT),
        (lambda: b"ab", {"x": "y"}, TOO_SHORT),
        (lambda: pieces(b"a", b"b"), {"x": "y"}, TOO_SHORT),
        (lambda: None, None, "content-length: 0 of 3 bytes"),
        (lambda: None, {"x": "y"}, "content-length: 0 of 3 bytes"),
    ],
)
def test_request_with_another_length_is_cancelled(
    run: Run,
    certificates: Certificates,
    body: Callable[[], Any],
    trailers: dict[str, str] | None,
    problem: str,
) -> None:
    received: list[bytes] = []
    ends: list[object] = []

    async def handler(request: h3.Request) -> None:
        if request.path == "/":
            await echo(request)
            return
        try:
            while piece := await request.read(1 << 16):
                received.append(piece)
        except quic.StreamResetError as error:
            ends.append(error.code)
        else:
            ends.append("complete")

    async def main() -> None:
        async with both(certificates, handler) as client:
            with pytest.raises(ValueError, match=problem):
                await within(client.request("POST", "/wrong", THREE, body(), trailers=trailers))
            response = await within(client.request("POST", "/", THREE, b"abc", trailers={"x": "y"}))
            assert await within(response.read()) == b"abc"
            assert client.request_count == 0
        assert len(b"".join(received)) <= 3
        # A reset may overtake the request, of which the handler then hears nothing.
        assert set(ends) <= {0x10C}

    run(main())


@pytest.mark.parametrize("ends", ["send", "trailers", "handler"])
def test_response_that_ends_too_early_is_reset(
    run: Run, certificates: Certificates, loop_log: LoopLog, ends: str
) -> None:
    async def handler(request: h3.Request) -> None:
        request.start(200, THREE)
        await request.send(b"ab")
        if ends == "send":
            await request.send(b"", end=True)
        elif ends == "trailers":
            request.send_trailers({"x": "y"})

    async def main() -> None:
        async with both(certificates, handler) as client:
            # The reset may overtake the response's fields.
            with pytest.raises(quic.StreamResetError) as reset:
                await within((await within(client.request("GET", "/"))).read())
            assert reset.value.code == 0x102
            assert client.is_usable
            await wait_until(lambda: loop_log.records)
            [record] = loop_log.records
            assert record.exc_info is not None
            assert isinstance(record.exc_info[1], ValueError)
            assert TOO_SHORT in str(record.exc_info[1])
            loop_log.take()

    run(main())


def test_response_goes_on_after_too_many_bytes(run: Run, certificates: Certificates) -> None:
    """They are refused before any of them is sent."""

    async def handler(request: h3.Request) -> None:
        with pytest.raises(ValueError, match="content-length: 0 of 3 bytes"):
            request.start(200, THREE, end=True)
        request.start(200, THREE)
        await request.send(b"a")
        with pytest.raises(ValueError, match=TOO_LONG):
            await request.send(b"xyz", end=True)
        await request.send(b"bc")
        with pytest.raises(ValueError, match=TOO_LONG):
            await request.send(b"d")
        await request.send(b"", end=True)

    async def main() -> None:
        async with both(certificates, handler) as client:
            response = await within(client.request("GET", "/"))
            assert (response.status, await within(response.read())) == (200, b"abc")

    run(main())


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 304), ("GET", 204)])
@pytest.mark.parametrize("body", [b"", b"ab", b"abcd"])
def test_response_without_content_may_declare_a_length(
    run: Run, certificates: Certificates, method: str, status: int, body: bytes
) -> None:
    """As the response to GET would have it (RFC 9110 §8.6); the body is not sent."""

    async def handler(request: h3.Request) -> None:
        await request.respond(status, THREE, body)

    async def main() -> None:
        async with both(certificates, handler) as client:
            response = await within(client.request(method, "/"))
            assert (response.status, await within(response.read())) == (status, b"")

    run(main())


@pytest.mark.parametrize("value", ["", "x", "-1", "+3", "3, 3", "3.0", "18446744073709551616"])
def test_length_that_is_no_number_is_refused(
    run: Run, certificates: Certificates, value: str
) -> None:
    async def handler(request: h3.Request) -> None:
        with pytest.raises(ValueError, match="invalid content-length"):
            request.start(200, {"content-length": value})
        with pytest.raises(ValueError, match="conflicting values of content-length"):
            request.start(200, [("content-length", "3"), ("content-length", "4")])
        await request.respond(200, [("content-length", "3"), ("content-length", "3")], b"abc")

    async def main() -> None:
        async with both(certificates, handler) as client:
            with pytest.raises(ValueError, match="invalid content-length"):
                await within(client.request("POST", "/", {"content-length": value}, b"abc"))
            response = await within(client.request("GET", "/"))
            assert (response.status, await within(response.read())) == (200, b"abc")

    run(main())
