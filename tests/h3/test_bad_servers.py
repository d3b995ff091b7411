"""Servers that break the rules of HTTP/3: the client ends the request or the connection."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import h3, quic
from tests.h3.raw import frame, headers
from tests.h3.support import opened
from tests.support import wait_until, within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]

SETTINGS = b"\x00\x04\x00"  # the type of a control stream, and the frame
OK = b"\x01\x03\x00\x00\xd9"  # a response with the status 200, of the static table
EARLY_HINTS = b"\x01\x03\x00\x00\xd8"  # status 103


class RawServer:
    """A server of QUIC that answers a request with the bytes of a test."""

    def __init__(self, where: str, data: bytes, *, ends: bool) -> None:
        self.where = where
        self.data = data
        self.ends = ends
        self.connection: quic.Connection | None = None

    async def handle(self, connection: quic.Connection) -> None:
        self.connection = connection
        control = await connection.open_stream(unidirectional=True)
        control.write(SETTINGS)
        request = await connection.accept_stream()
        await request.read(1)
        match self.where:
            case "request":
                stream = request
            case "control":
                stream = control
            case _:
                unidirectional = self.where == "unidirectional"
                stream = await connection.open_stream(unidirectional=unidirectional)
        stream.write(self.data)
        if self.ends:
            stream.finish()
        await connection.wait_closed()


@asynccontextmanager
async def client_of(
    certificates: Certificates, where: str, data: bytes, *, ends: bool = False
) -> AsyncIterator[tuple[h3.Client, RawServer]]:
    certificate, key = certificates.issue()
    server = RawServer(where, data, ends=ends)
    endpoint = await quic.serve(
        server.handle, "127.0.0.1", certificate=certificate, private_key=key, alpn=["h3"]
    )
    async with endpoint, await opened(certificates, endpoint) as client:
        yield client, server


@pytest.mark.parametrize(
    ("where", "data", "code"),
    [
        pytest.param("request", b"\x00\x01a", 0x105, id="DATA before HEADERS"),
        pytest.param("request", b"\x04\x00", 0x105, id="SETTINGS on a request stream"),
        pytest.param("request", b"\x05\x01\x00", 0x108, id="a push is promised"),
        pytest.param("request", b"\x01\x02\xff\xff", 0x200, id="fields of an empty table"),
        pytest.param("control", b"\x04\x00", 0x105, id="SETTINGS twice"),
        pytest.param("control", b"\x00\x00", 0x105, id="DATA on the control stream"),
        pytest.param("control", b"\x07\x01\x01", 0x108, id="GOAWAY of a stream that is no request"),
        pytest.param("control", b"\x07\x01\x00\x07\x01\x04", 0x108, id="GOAWAY that grows"),
        pytest.param("control", b"\x0d\x01\x00", 0x105, id="MAX_PUSH_ID from a server"),
        pytest.param("unidirectional", b"\x00\x04\x00", 0x103, id="a second control stream"),
        pytest.param("unidirectional", b"\x01\x00", 0x108, id="a push"),
        pytest.param("unidirectional", b"\x02\x3f\xff\xff\xff\x7f", 0x201, id="a table too large"),
        pytest.param("bidirectional", b"\x01\x00", 0x103, id="a request from a server"),
    ],
)
def test_connection_errors_close_with_their_code(
    run: Run, certificates: Certificates, where: str, data: bytes, code: int
) -> None:
    async def main() -> None:
        async with client_of(certificates, where, data) as (client, server):
            with pytest.raises(quic.QuicError):
                await within(client.request("GET", "/"))
            await within(client.connection.wait_closed())
            error = client.connection.error
            assert isinstance(error, quic.ConnectionClosed)
            assert (error.code, error.by_peer) == (code, False)
            assert error.reason
            await wait_until(lambda: server.connection and server.connection.is_closed)
            assert server.connection is not None
            told = server.connection.error
            assert isinstance(told, quic.ConnectionClosedByPeer)
            assert told.code == code
            assert not client.is_usable

    run(main())


def test_control_stream_that_ends_closes_the_connection(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        async with client_of(certificates, "control", b"", ends=True) as (client, _):
            with pytest.raises(quic.ConnectionClosed) as closed:
                await within(client.request("GET", "/"))
            assert closed.value.code == 0x104

    run(main())


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x01\x03\x00\x00\xd1", id="a request's field"),
        pytest.param(b"\x01\x02\x00\x00", id="no status"),
        pytest.param(b"\x01\x04\x00\x00\xd9\xd9", id="the status twice"),
        pytest.param(b"\x01\x09\x00\x00\xd9\x22Xa\x02bc", id="an upper-case name"),
        pytest.param(b"", id="no response"),
        pytest.param(EARLY_HINTS, id="an interim response alone"),
    ],
)
def test_malformed_responses_fail_their_request_alone(
    run: Run, certificates: Certificates, data: bytes
) -> None:
    async def main() -> None:
        async with client_of(certificates, "request", data, ends=True) as (client, _):
            with pytest.raises(h3.MessageError):
                await within(client.request("GET", "/"))
            assert client.is_usable
            assert client.request_count == 0

    run(main())


@pytest.mark.parametrize("body", [b"toolong", b"few"])
def test_body_with_another_length_is_a_message_error(
    run: Run, certificates: Certificates, body: bytes
) -> None:
    data = headers((b":status", b"200"), (b"content-length", b"5")) + frame(0, body)

    async def main() -> None:
        async with client_of(certificates, "request", data, ends=True) as (client, _):
            response = await within(client.request("GET", "/"))
            with pytest.raises(h3.MessageError, match="malformed") as malformed:
                await within(response.read())
            assert malformed.value.code == 0x10E
            assert isinstance(malformed.value, quic.StreamError)
            assert client.is_usable

    run(main())


def test_interim_responses_are_kept_within_a_limit(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        data = EARLY_HINTS * 10_000 + OK
        async with client_of(certificates, "request", data, ends=True) as (client, _):
            response = await within(client.request("GET", "/"))
            assert response.status == 200
            assert 0 < len(response.take_interim()) <= 100
            assert await within(response.read()) == b""

    run(main())


def test_server_that_never_responds_can_be_left(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with client_of(certificates, "request", EARLY_HINTS) as (client, _):
            asking = asyncio.ensure_future(client.request("GET", "/"))
            await wait_until(lambda: client.request_count == 1)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await within(asking)
            assert client.request_count == 0

    run(main())
