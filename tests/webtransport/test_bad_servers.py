"""Servers that break the rules of WebTransport, or send without end: clear, and bounded."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic, webtransport
from ringloop._native import h3 as _h3
from ringloop.quic.buffer import encode_uint_var
from ringloop.webtransport import SessionClosed
from tests.h3.raw import frame, headers
from tests.support import within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]
    Answer = Callable[[quic.Connection, quic.Stream], Awaitable[None]]

# Extended CONNECT, datagrams, WebTransport as of draft 02.
SETTINGS = b"\x00" + frame(4, b"\x08\x01\x33\x01" + encode_uint_var(0x2B603742) + b"\x01")
OK = headers((b":status", b"200"))
EARLY_HINTS = headers((b":status", b"103"))
NO_ERROR = 0x100
MESSAGE_ERROR = 0x10E


def capsule(kind: int, value: bytes = b"") -> bytes:
    return encode_uint_var(kind) + encode_uint_var(len(value)) + value


def close(code: int, reason: bytes) -> bytes:
    return capsule(0x2843, code.to_bytes(4, "big") + reason)


@asynccontextmanager
async def url_of(certificates: Certificates, answer: Answer) -> AsyncIterator[str]:
    """Serve one connection, whose request is answered so."""
    certificate, key = certificates.issue()

    async def handle(connection: quic.Connection) -> None:
        control = await connection.open_stream(unidirectional=True)
        control.write(SETTINGS)
        connection.control = control  # type: ignore[attr-defined]
        request = await connection.accept_stream()
        await request.read(1)
        await answer(connection, request)
        await connection.wait_closed()

    endpoint = await quic.serve(
        handle, "127.0.0.1", certificate=certificate, private_key=key, alpn=["h3"]
    )
    async with endpoint:
        yield f"https://127.0.0.1:{endpoint.address[1]}/"


async def opened(certificates: Certificates, url: str, **keywords: Any) -> webtransport.Session:
    opening = webtransport.open_session(
        url, ca_file=certificates.authority, server_name="localhost", **keywords
    )
    return await within(opening)


def test_close_that_is_cut_anywhere_is_read(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        whole = frame(0, close(7, "späť".encode()))
        for cut in range(1, len(whole)):

            async def answer(
                connection: quic.Connection, request: quic.Stream, cut: int = cut
            ) -> None:
                request.write(OK + whole[:cut])
                await connection.ping()
                request.write(whole[cut:])
                request.finish()

            async with (
                url_of(certificates, answer) as url,
                await opened(certificates, url) as session,
            ):
                assert await within(session.wait_closed()) == (7, "späť", True)

    run(main())


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        pytest.param(close(7, bytes(1025)), "a reason of more than 1024 bytes", id="long reason"),
        pytest.param(close(7, b"\xff"), "not UTF-8", id="reason not UTF-8"),
        pytest.param(capsule(0x2843, b"abc"), "has no code", id="no code"),
        pytest.param(capsule(0x78AE, b"a"), "WT_DRAIN_SESSION is not empty", id="drain"),
    ],
)
def test_bad_capsules_end_the_session_alone(
    run: Run, certificates: Certificates, sent: bytes, said: str
) -> None:
    async def answer(_: quic.Connection, request: quic.Stream) -> None:
        request.write(OK + frame(0, sent))

    async def main() -> None:
        async with (
            url_of(certificates, answer) as url,
            await opened(certificates, url) as session,
        ):
            with pytest.raises(SessionClosed, match=said) as closed:
                await within(session.wait_closed())
            assert closed.value.code == MESSAGE_ERROR
        # For no error of the connection's own.
        error = session.connection.error
        assert isinstance(error, quic.ConnectionClosed)
        assert error.code == NO_ERROR

    run(main())


def test_server_that_sends_without_end_leaves_nothing_and_the_session_goes_on(
    run: Run, certificates: Certificates
) -> None:
    async def answer(connection: quic.Connection, request: quic.Stream) -> None:
        request.write(EARLY_HINTS * 5000 + OK)
        # A capsule of no known type, which never ends.
        request.write(frame(0, encode_uint_var(0x1234567) + encode_uint_var((1 << 62) - 1)))
        request.write(frame(0, bytes(1 << 20)) * 8)
        for _ in range(1000):
            stream = await connection.open_stream(unidirectional=True)
            stream.write(encode_uint_var(0x54) + encode_uint_var(400) + b"of no session")
            stream.finish()
            await connection.send_datagram(encode_uint_var(100) + b"of no session")
        stream = await connection.open_stream(unidirectional=True)
        stream.write(encode_uint_var(0x54) + encode_uint_var(0) + b"of the session")
        stream.finish()

    async def main() -> None:
        async with (
            url_of(certificates, answer) as url,
            await opened(certificates, url) as session,
        ):
            stream = await within(session.accept_unidirectional_stream())
            assert await within(stream.read()) == b"of the session"
            # The CONNECT, the control stream, the session and its stream.
            assert sum(_h3.kept(session.connection)) <= 6
            assert not session.is_closed

    run(main())
