"""The `websocket` scope over HTTP/3, on every loop, with a client made of `websockets`' frames."""

from __future__ import annotations

import asyncio
import gc
import sys
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from websockets.frames import Close, Frame, Opcode
from websockets.protocol import Protocol, Side, State

from ringloop import quic
from ringloop.serve import _websocket
from tests.serve.support import both, client_of, served
from tests.support import wait_until, within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ringloop import h3
    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]


class Client:
    """A WebSocket on an exchange."""

    def __init__(self, exchange: h3.Response) -> None:
        self.exchange = exchange
        self.frames = Protocol(Side.CLIENT, state=State.OPEN, max_size=None)

    async def send(self) -> None:
        for data in self.frames.data_to_send():
            await within(self.exchange.send(data, end=not data))

    async def receive(self) -> list[Frame]:
        """Wait for frames."""
        while not (events := self.frames.events_received()):
            data = await within(self.exchange.read(1 << 16))
            if not data:
                self.frames.receive_eof()
                return []
            self.frames.receive_data(data)
        return [event for event in events if isinstance(event, Frame)]

    async def closed(self) -> Close | None:
        """Answer the server's close, wait for the end of its stream, and return the close."""
        while await self.receive():
            await self.send()
        return self.frames.close_rcvd


async def opened(
    client: h3.Client, *headers: tuple[bytes, bytes], path: bytes = b"/chat?room=1"
) -> h3.Response:
    fields = [
        (b":method", b"CONNECT"),
        (b":protocol", b"websocket"),
        (b":scheme", b"https"),
        (b":authority", b"localhost"),
        (b":path", path),
        (b"sec-websocket-version", b"13"),
    ]
    response = await within(client.open([*fields, *headers]))
    await within(response._wait_head())
    return response


@asynccontextmanager
async def connected(
    certificates: Certificates, application: Any, **others: Any
) -> AsyncIterator[Client]:
    async def only_websockets(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await application(scope, receive, send)

    async with both(certificates, only_websockets, **others) as client:
        response = await opened(client)
        assert response.status == 200
        yield Client(response)


async def echo(scope: dict[str, Any], receive: Any, send: Any) -> None:
    assert (await receive())["type"] == "websocket.connect"
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({**message, "type": "websocket.send"})


def test_messages_go_both_ways(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with connected(certificates, echo) as client:
            for size in (0, 5, 70_000, 1 << 20):
                client.frames.send_binary(bytes(size))
                await client.send()
                (frame,) = await client.receive()
                assert (frame.opcode, len(frame.data)) == (Opcode.BINARY, size)
            # In pieces, with a ping between.
            client.frames.send_text("é".encode(), fin=False)
            client.frames.send_ping(b"now")
            client.frames.send_continuation(b"!", fin=True)
            await client.send()
            frames = [*await client.receive()]
            while len(frames) < 2:
                frames += await client.receive()
            assert [(frame.opcode, bytes(frame.data)) for frame in frames] == [
                (Opcode.PONG, b"now"),
                (Opcode.TEXT, "é!".encode()),
            ]

    run(main())


def test_scope_subprotocol_and_compression(run: Run, certificates: Certificates) -> None:
    seen: list[dict[str, Any]] = []

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        seen.append(scope)
        await send({"type": "websocket.accept", "subprotocol": "b", "headers": [(b"X-One", b"1")]})

    async def main() -> None:
        async with both(certificates, application, lifespan="off") as client:
            response = await opened(
                client,
                (b"sec-websocket-protocol", b"a, b"),
                (b"sec-websocket-extensions", b"permessage-deflate; client_max_window_bits"),
            )
            fields = dict(response.headers or ())
            assert fields[b"sec-websocket-protocol"] == b"b"
            assert fields[b"sec-websocket-extensions"].startswith(b"permessage-deflate")
            assert fields[b"x-one"] == b"1"
            # It returned without a close.
            assert await Client(response).closed() == Close(1000, "")
        (scope,) = seen
        assert scope["type"] == "websocket"
        assert scope["scheme"] == "wss"
        assert scope["http_version"] == "3"
        assert scope["path"] == "/chat"
        assert scope["query_string"] == b"room=1"
        assert scope["subprotocols"] == ["a", "b"]

    run(main())


def test_closes_of_either_side(run: Run, certificates: Certificates) -> None:
    told: list[Any] = []

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        await receive()
        message = await receive()
        if message["type"] == "websocket.receive":
            await send({"type": "websocket.close", "code": 4001, "reason": "enough"})
            message = await receive()
        with pytest.raises((OSError, RuntimeError)):
            await send({"type": "websocket.send", "text": "late"})
        told.append((message["type"], message["code"], message["reason"]))

    async def main() -> None:
        async with connected(certificates, application) as client:
            client.frames.send_text(b"close")
            await client.send()
            assert await client.closed() == Close(4001, "enough")
        async with connected(certificates, application) as client:
            client.frames.send_close(4002, "over")
            await client.send()
            assert await client.closed() == Close(4002, "over")
        async with connected(certificates, application) as client:
            client.exchange.cancel()
            await wait_until(lambda: len(told) == 3)
        assert told == [
            ("websocket.disconnect", 4001, "enough"),
            ("websocket.disconnect", 4002, "over"),
            ("websocket.disconnect", 1006, ""),
        ]

    run(main())


def sent(first: int, payload: bytes, *, length: bytes | None = None) -> bytes:
    """A frame of a client, masked by zeros, whose first byte has the flags and the opcode."""
    length = length or bytes([len(payload)])
    return bytes([first, length[0] | 0x80, *length[1:]]) + bytes(4) + payload


FIRST = sent(0x81, b"first")


@pytest.mark.parametrize("behind", ["nothing", "frames", "close"])
@pytest.mark.parametrize("cut", [False, True], ids=["one read", "byte by byte"])
@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(b"\x82\x01a", 1002, id="frame without mask"),
        pytest.param(sent(0xC1, b"a"), 1002, id="first reserved bit"),
        pytest.param(sent(0xA1, b"a"), 1002, id="second reserved bit"),
        pytest.param(sent(0x91, b"a"), 1002, id="third reserved bit"),
        pytest.param(sent(0x83, b""), 1002, id="reserved opcode"),
        pytest.param(sent(0x8B, b""), 1002, id="reserved control opcode"),
        pytest.param(sent(0x09, b"a"), 1002, id="ping in pieces"),
        pytest.param(sent(0x08, b"\x03\xe8"), 1002, id="close in pieces"),
        pytest.param(sent(0x89, bytes(126), length=b"\x7e\0\x7e"), 1002, id="long ping"),
        pytest.param(sent(0x80, b"a"), 1002, id="continuation of nothing"),
        pytest.param(sent(0x01, b"a") + sent(0x81, b"b"), 1002, id="text within a text"),
        pytest.param(sent(0x88, b"\x03"), 1002, id="half a close code"),
        pytest.param(sent(0x88, b"\x03\xed"), 1002, id="close code that is never sent"),
        pytest.param(sent(0x88, b"\x00\x63"), 1002, id="close code below 1000"),
        pytest.param(sent(0x88, b"\x03\xe8\xff"), 1007, id="close reason that is no UTF-8"),
        pytest.param(sent(0x81, b"\xff"), 1007, id="text that is no UTF-8"),
        pytest.param(sent(0x01, b"a") + sent(0x80, b"\xe2\x82"), 1007, id="text that is cut off"),
        pytest.param(sent(0x82, b"", length=b"\x7f" + (1 << 20).to_bytes(8)), 1009, id="too long"),
        pytest.param(
            sent(0x02, bytes(9)) + sent(0x80, b"", length=b"\x7e\x03\xe0"),
            1009,
            id="too long in all",
        ),
    ],
)
def test_violation_is_closed_with_its_code_and_nothing_behind_it_is_taken(
    run: Run, certificates: Certificates, data: bytes, code: int, cut: bool, behind: str
) -> None:
    told: list[dict[str, Any]] = []
    follow = {
        "nothing": b"",
        "frames": sent(0x81, b"behind") + sent(0x89, b"ping") + sent(0x82, b"it"),
        "close": sent(0x81, b"behind") + sent(0x88, b"\x03\xe8"),
    }

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        while not told or told[-1]["type"] != "websocket.disconnect":
            message = await receive()
            if message["type"] != "websocket.connect":
                told.append(message)

    async def main() -> None:
        async with connected(certificates, application, websocket_bytes_max=1000) as client:
            wire = FIRST + data + follow[behind]
            pieces = [wire[at : at + 1] for at in range(len(wire))] if cut else [wire]
            # The server may be through with it before all of it is sent.
            with suppress(quic.StreamStoppedError):
                for piece in pieces:
                    await within(client.exchange.send(piece))
                    await asyncio.sleep(0)
            while await client.receive():
                pass
            closed = client.frames.close_rcvd
            assert closed is not None
            assert closed.code == code
            await wait_until(lambda: told and told[-1]["type"] == "websocket.disconnect")
        assert [(message["type"], message.get("text")) for message in told] == [
            ("websocket.receive", "first"),
            ("websocket.disconnect", None),
        ]
        assert told[-1]["code"] == code

    run(main())


@pytest.mark.parametrize("data", [b"", b"ab"])
def test_message_of_many_small_frames_takes_little_more_than_its_bytes(
    run: Run, certificates: Certificates, data: bytes
) -> None:
    """`max_size` bounds its bytes, not its frames, which may be empty and never end."""
    count = 10_000
    servers: list[_websocket.WebSocket] = []

    async def kept(scope: dict[str, Any], receive: Any, send: Any) -> None:
        servers.append(receive.__self__)
        await echo(scope, receive, send)

    async def main() -> None:
        async with connected(certificates, kept) as client:
            (server,) = servers
            client.frames.send_text(b"a", fin=False)
            await client.send()
            for _ in range(count):
                client.frames.send_continuation(data, fin=False)
            await within(client.exchange.send(b"".join(client.frames.data_to_send())))
            client.frames.send_ping(b"all")
            await client.send()
            # The server has read them all.
            (frame,) = await client.receive()
            assert frame.opcode is Opcode.PONG
            parts = server._parts
            held = sys.getsizeof(parts) + sum(map(sys.getsizeof, gc.get_referents(parts)))
            assert held <= 2 * len(data) * count + 1000
            client.frames.send_continuation(b"!", fin=True)
            await client.send()
            (frame,) = await client.receive()
            assert bytes(frame.data) == b"a" + data * count + b"!"

    run(main())


def test_denied_and_failed_handshakes(
    run: Run, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "websocket.connect"
        match dict(scope["headers"])[b"x-case"]:
            case b"close":
                await send({"type": "websocket.close"})
                assert (await receive())["code"] == 1006
            case b"response":
                start = {"type": "websocket.http.response.start", "status": 401}
                await send({**start, "headers": [(b"x-why", b"token")]})
                await send({"type": "websocket.http.response.body", "body": b"no"})
            case b"error":
                raise RuntimeError("of the application")
            case b"wrong":
                await send({"type": "websocket.send", "text": "early"})

    async def main() -> None:
        async with both(certificates, application, lifespan="off") as client:
            expected = {b"close": 403, b"response": 401, b"error": 500, b"wrong": 500, b"none": 500}
            for case, status in expected.items():
                response = await opened(client, (b"x-case", case))
                assert response.status == status
                body = await within(response.read())
                assert body == (b"no" if case == b"response" else b"")

    run(main())
    for text in ("of the application", "'websocket.accept'", "without completing handshake"):
        assert text in caplog.text


def test_handshake_is_answered_while_another_task_receives(
    run: Run, certificates: Certificates
) -> None:
    told: list[Any] = []
    receiving_on: list[str] = []

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "websocket.connect"
        receiving = asyncio.ensure_future(receive())
        receiving_on.append(scope["path"])
        await asyncio.sleep(0)
        if scope["path"] == "/chat":
            await send({"type": "websocket.accept"})
        told.append(await receiving)

    async def main() -> None:
        async with connected(certificates, application) as client:
            client.frames.send_text(b"first")
            await client.send()
            await wait_until(lambda: told)
            assert told.pop() == {"type": "websocket.receive", "text": "first"}
        async with both(certificates, application, lifespan="off") as connection:
            fields = [(b":method", b"CONNECT"), (b":protocol", b"websocket"), (b":path", b"/none")]
            fields += [(b":scheme", b"https"), (b":authority", b"localhost")]
            exchange = await within(connection.open(fields))
            # A request that is reset before it was read never reaches the application.
            await wait_until(lambda: "/none" in receiving_on)
            exchange.cancel()
            await wait_until(lambda: told)
            assert told.pop()["code"] == 1006

    run(main())


def test_application_that_fails_closes_with_1011(run: Run, certificates: Certificates) -> None:
    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        raise RuntimeError("of the application")

    async def main() -> None:
        async with connected(certificates, application) as client:
            assert await client.closed() == Close(1011, "")

    run(main())


@pytest.mark.parametrize(
    "close",
    [{"code": 99}, {"code": 1005}, {"code": "x"}, {"reason": "r" * 124}, {"reason": b"r"}],
    ids=str,
)
def test_close_that_no_frame_has_is_the_applications_failure(
    run: Run, certificates: Certificates, close: dict[str, Any]
) -> None:
    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close", **close})

    async def main() -> None:
        async with connected(certificates, application) as client:
            assert await client.closed() == Close(1011, "")

    run(main())


def test_denial_with_a_body_that_cannot_be_sent_is_not_complete(
    run: Run, certificates: Certificates
) -> None:
    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await send({"type": "websocket.http.response.start", "status": 401})
        await send({"type": "websocket.http.response.body", "body": "text"})

    async def main() -> None:
        async with both(certificates, application, lifespan="off") as client:
            # The reset may overtake the response's fields.
            with pytest.raises(quic.StreamResetError):
                await within((await opened(client)).read())

    run(main())


@pytest.mark.parametrize(
    "parts", [(b"four", b"more"), (b"fourmore",), (b"fo", b"urm", b"o", b"re")]
)
def test_denial_longer_than_declared_is_cut_as_by_uvicorn(
    run: Run, certificates: Certificates, caplog: pytest.LogCaptureFixture, parts: tuple[bytes, ...]
) -> None:
    ended: list[bool] = []

    async def main() -> None:
        async with both(certificates, declaring(parts, ended), lifespan="off") as client:
            response = await opened(client)
            assert (response.status, await within(response.read())) == (401, b"four")
            await wait_until(lambda: ended)

    run(main())
    assert "longer than Content-Length" in caplog.text
    assert "Exception in ASGI" not in caplog.text


@pytest.mark.parametrize("parts", [(b"",), (b"fo",), (b"f", b"o")])
def test_denial_shorter_than_declared_is_cut_off_as_by_uvicorn(
    run: Run, certificates: Certificates, caplog: pytest.LogCaptureFixture, parts: tuple[bytes, ...]
) -> None:
    ended: list[bool] = []

    async def main() -> None:
        async with both(certificates, declaring(parts, ended), lifespan="off") as client:
            # The reset may overtake the response's fields.
            with pytest.raises(quic.StreamResetError):
                await within((await opened(client)).read())
            await wait_until(lambda: ended)

    run(main())
    assert "shorter than Content-Length" in caplog.text
    assert "Exception in ASGI" not in caplog.text


def declaring(parts: tuple[bytes, ...], ended: list[bool]) -> Any:
    """Return an application that denies with these parts of a body of four bytes."""

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        start = {"type": "websocket.http.response.start", "status": 401}
        await send({**start, "headers": [(b"content-length", b"4")]})
        for index, part in enumerate(parts, 1):
            more = index < len(parts)
            await send({"type": "websocket.http.response.body", "body": part, "more_body": more})
        ended.append(True)

    return application


def test_send_after_the_clients_close_is_a_connection_error(
    run: Run, certificates: Certificates
) -> None:
    """Also before the application receives the disconnect: the reply waits for space to send."""
    failures: list[BaseException] = []

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        sent: list[asyncio.Future[None]] = []
        message = {"type": "websocket.send", "bytes": bytes(16 << 20)}
        while not (ended := [one for one in sent if one.done() and one.exception()]):
            sent.append(asyncio.ensure_future(send(message)))
            message = {"type": "websocket.send", "bytes": b"x"}
            await asyncio.sleep(0.01)
        failures.extend(one.exception() or ValueError() for one in ended)
        for one in sent:
            one.cancel()
        await asyncio.gather(*sent, return_exceptions=True)

    async def main() -> None:
        async with connected(certificates, application) as client:
            client.frames.send_close(4002, "over")
            await client.send()
            await wait_until(lambda: failures)
            client.exchange.cancel()
        assert {type(failure) for failure in failures} == {ConnectionResetError}

    run(main())


def test_end_of_the_server_closes_with_1012(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with served(certificates, echo, lifespan="off") as server:
            async with client_of(certificates, server) as connection:
                client = Client(await opened(connection))
                server.shut_down()
                assert await client.closed() == Close(1012, "")
                await within(server.wait_closed())

    run(main())


def test_application_that_does_not_receive_stops_the_client(
    run: Run, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The client does not take part in the end.
    monkeypatch.setattr(_websocket, "_CLOSE_SECONDS", 0.01)

    async def main() -> None:
        may_end = asyncio.Event()

        async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
            await send({"type": "websocket.accept"})
            await may_end.wait()

        windows = {"max_stream_data": 64 << 10}
        async with connected(certificates, application, quic=windows) as client:
            client.exchange.connection.set_send_window(64 << 10)
            sent = 0

            async def send() -> None:
                nonlocal sent
                while True:
                    client.frames.send_binary(bytes(10_000))
                    for data in client.frames.data_to_send():
                        await client.exchange.send(data)
                    sent += 10_000

            sending = asyncio.ensure_future(send())
            before = -1
            while before != sent or not sent:
                before = sent
                await asyncio.sleep(0.05)
            assert sent < 1 << 20
            sending.cancel()
            may_end.set()

    run(main())


def test_client_that_does_not_read_does_not_keep_a_websocket_that_ends(
    run: Run, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its application returns while the window is full: the close that follows has no room."""
    monkeypatch.setattr(_websocket, "_CLOSE_SECONDS", 0.1)

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        full = asyncio.ensure_future(send({"type": "websocket.send", "bytes": bytes(32 << 20)}))
        await asyncio.sleep(0.1)
        assert not full.done()
        full.cancel()

    async def main() -> None:
        async with served(certificates, application, lifespan="off") as server:
            async with client_of(certificates, server, max_stream_data=64 << 10) as connection:
                response = await opened(connection)
                assert response.status == 200
                await wait_until(lambda: server._open)
                await wait_until(lambda: not server._open)
                with pytest.raises(quic.StreamResetError):
                    await within(response.read())

    run(main())


def test_other_protocols_are_refused(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates, echo, lifespan="off") as client:
            fields = [(b":method", b"CONNECT"), (b":protocol", b"connect-udp")]
            fields += [(b":scheme", b"https"), (b":authority", b"a"), (b":path", b"/")]
            for asked in (fields, [(b":method", b"CONNECT"), (b":authority", b"a:1")]):
                response = await within(client.open(asked))
                await within(response._wait_head())
                assert response.status == 501
                response.cancel()

    run(main())
