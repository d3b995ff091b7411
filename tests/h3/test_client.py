"""The client of `ringloop.h3`: bodies, cancelling, shutdown of the server, priorities."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import h3, quic
from ringloop._native import h3 as native
from tests.h3.support import both, echo, sending_until, served
from tests.support import wait_until, within
from tests.support.tcp import pattern

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.support.tls import Certificates

    Run = Callable[[Any], Any]

CANCELLED = 0x10C


async def respond(request: h3.Request) -> None:
    await request.respond(200, {}, await request.read())


def test_client_is_connected_elsewhere_than_its_origin_says(
    run: Run, certificates: Certificates
) -> None:
    async def tell(request: h3.Request) -> None:
        await request.respond(200, {}, (request.authority or "").encode())

    async def main() -> None:
        async with served(certificates, tell) as server:
            target = ("127.0.0.1", server.address[1])
            connecting = h3.connect("localhost", connect_to=target, ca_file=certificates.authority)
            async with connecting as client:
                response = await within(client.request("GET", "/"))
                assert await response.read() == b"localhost"
            with pytest.raises(TypeError, match=r"give \(host, port\)"):
                await h3.open_client("localhost", connect_to=443)  # type: ignore[arg-type]

    run(main())


def test_header_joins_lines_and_ignores_case(run: Run, certificates: Certificates) -> None:
    async def handler(request: h3.Request) -> None:
        assert request.header("x-sent") == "é"
        await request.respond(200, [("Vary", "a"), ("vary", "b"), ("one", "1")])

    async def main() -> None:
        async with both(certificates, handler) as client:
            response = await within(client.request("GET", "/", {"X-Sent": "é"}))
            assert response.header("VARY") == "a, b"
            assert response.header("one") == "1"
            assert response.header("two") is None
            with pytest.raises(TypeError):
                response.header(b"one")  # type: ignore[arg-type]

    run(main())


def test_response_comes_while_the_body_is_sent(run: Run, certificates: Certificates) -> None:
    """An echo of more than all windows and queues hold, whose response is read after `request`."""

    async def main() -> None:
        windows = {"max_stream_data": 64 << 10, "max_data": 256 << 10}
        body = pattern(2 << 20)

        async def pieces() -> AsyncIterator[bytes]:
            for at in range(0, len(body), 50_000):
                yield body[at : at + 50_000]

        async with both(certificates, echo, windows, **windows) as client:
            response = await within(client.request("POST", "/", body=pieces()))
            assert await within(response.read()) == body
            response = await within(client.request("POST", "/", body=body))
            assert await within(response.read()) == body
            assert response.has_ended
            await wait_until(lambda: client.request_count == 0)

    run(main())


def test_trailers_follow_a_body(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"one"
            yield b"two"

        async with both(certificates, echo) as client:
            for body in (pieces(), b"onetwo"):
                response = await within(
                    client.request("POST", "/", body=body, trailers={"sum": "7"})
                )
                assert await within(response.read()) == b"onetwo"
                assert response.trailers == [(b"sum", b"7")]
            response = await within(client.request("POST", "/", trailers={"sum": "8"}))
            assert await within(response.read()) == b""
            assert response.trailers == [(b"sum", b"8")]

    run(main())


def test_failed_body_cancels_the_request_and_is_raised(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        codes: list[int] = []
        may_fail = asyncio.Event()

        async def handler(request: h3.Request) -> None:
            if request.path == "/started":
                request.start(200)
            try:
                await request.read()
            except quic.StreamResetError as error:
                codes.append(error.code)
                raise

        async def pieces() -> AsyncIterator[bytes]:
            yield b"part"
            await may_fail.wait()
            raise LookupError("of the body")

        async with both(certificates, handler) as client:
            response = await within(client.request("POST", "/started", body=pieces()))
            may_fail.set()
            with pytest.raises(LookupError, match="of the body"):
                await within(response.read())
            await wait_until(lambda: codes == [CANCELLED])
            with pytest.raises(LookupError, match="of the body"):
                await within(client.request("POST", "/", body=pieces()))
            await wait_until(lambda: client.request_count == 0)
            assert client.is_usable

    run(main())


def test_length_of_a_known_body_is_sent(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        lengths: list[str | None] = []

        async def handler(request: h3.Request) -> None:
            lengths.append(request.header("content-length"))
            await respond(request)

        async def pieces() -> AsyncIterator[bytes]:
            yield b"abc"

        async with both(certificates, handler) as client:
            for body in (None, b"", b"abc", pieces()):
                await within(client.request("POST", "/", body=body))
            await within(client.request("POST", "/", {"Content-Length": "3"}, b"abc"))
        assert lengths == [None, "0", "3", None, "3"]

    run(main())


def test_body_of_another_type_is_refused(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates, respond) as client:
            for body in ("text", 7, [b"x"]):
                with pytest.raises(TypeError, match="body is of type"):
                    await within(client.request("POST", "/", body=body))  # type: ignore[arg-type]
            # None of them was sent.
            assert client.request_count == 0
            with pytest.raises(ValueError, match="not a valid field name"):
                await within(client.request("GET", "/", {"a b": "c"}))
            response = await within(client.request("POST", "/", body=b"more"))
            assert await within(response.read()) == b"more"

    run(main())


def test_trailers_and_interim_fields_take_any_form_of_fields(
    run: Run, certificates: Certificates
) -> None:
    async def answer(request: h3.Request) -> None:
        request.send_headers({":status": "103", "link": "x"})
        request.start(200)
        await request.send(b"body")
        with pytest.raises(TypeError, match="5 is not a field's name or value"):
            request.send_trailers({"length": 5})  # type: ignore[arg-type]
        request.send_trailers({"length": "4"})

    async def main() -> None:
        async with both(certificates, answer) as client:
            response = await within(client.request("GET", "/"))
            assert await within(response.read()) == b"body"
            assert response.take_interim() == [(103, [(b"link", b"x")])]
            assert response.trailers == [(b"length", b"4")]

    run(main())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"method": b"GET"}, "method and path are b'GET' and '/'"),
        ({"path": None}, "method and path are 'GET' and None"),
        ({"headers": None}, "fields are a mapping"),
        ({"headers": {"content-length": 5}}, "5 is not a field's name or value"),
        ({"headers": ["accept"]}, "fields are a mapping"),
        ({"trailers": {"digest": 7}}, "7 is not a field's name or value"),
        ({"priority": 3}, "priority is 3"),
    ],
)
def test_arguments_of_other_types_are_refused_by_name(
    arguments: dict[str, Any], problem: str, run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        async with both(certificates, respond) as client:
            with pytest.raises(TypeError, match=problem):
                await within(client.request(**{"method": "GET", "path": "/", **arguments}))
            response = await within(client.request("POST", "/", body=b"more"))
            assert await within(response.read()) == b"more"

    run(main())


async def endless(request: h3.Request) -> None:
    if not request.has_responded:
        request.start(200)
    while True:
        await request.send(bytes(1 << 16))


@pytest.mark.parametrize("state", ["no body", "body that waits", "window full", "reading"])
def test_cancelled_request_is_reset_and_the_connection_goes_on(
    run: Run, certificates: Certificates, state: str
) -> None:
    async def main() -> None:
        codes: list[int] = []
        begun, was_cancelled = asyncio.Event(), asyncio.Event()

        async def handler(request: h3.Request) -> None:
            if request.path == "/quick":
                await request.respond(200)
                return
            if state == "reading":
                request.start(200)
            begun.set()
            await was_cancelled.wait()
            try:
                await request.read()
                await endless(request)
            except (quic.StreamResetError, quic.StreamStoppedError) as error:
                codes.append(error.code)
                raise

        async def body() -> AsyncIterator[bytes]:
            yield b"first"
            while state == "window full":
                yield bytes(1 << 16)
            await asyncio.Event().wait()

        async def ask(client: h3.Client) -> None:
            sent = None if state == "no body" else body()
            async with await client.request("POST", "/", body=sent) as response:
                await response.read()

        async with both(certificates, handler) as client:
            asking = asyncio.ensure_future(ask(client))
            await within(begun.wait())
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await within(asking)
            was_cancelled.set()
            await wait_until(lambda: codes == [CANCELLED])
            assert client.request_count == 0
            response = await within(client.request("GET", "/quick"))
            assert response.status == 200

    run(main())


def test_request_that_waits_for_a_stream_can_be_cancelled(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        begun, may_end = 0, asyncio.Event()

        async def handler(request: h3.Request) -> None:
            nonlocal begun
            begun += 1
            await may_end.wait()
            await request.respond(200)

        async with both(certificates, handler, {"max_streams_bidi": 2}) as client:
            first = [asyncio.ensure_future(client.request("GET", "/")) for _ in range(2)]
            await wait_until(lambda: begun == 2)
            waiting = asyncio.ensure_future(client.request("GET", "/"))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await within(waiting)
            may_end.set()
            for response in await within(asyncio.gather(*first)):
                assert await within(response.read()) == b""
            assert (await within(client.request("GET", "/"))).status == 200
            assert begun == 3

    run(main())


def test_timeout_cancels_the_request(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        ended = asyncio.Event()

        async def handler(request: h3.Request) -> None:
            try:
                await request.read()
                await request.drain()
                while True:
                    await request.receive_datagram()
            finally:
                ended.set()

        async def endless() -> AsyncIterator[bytes]:
            yield b"x"
            await asyncio.Event().wait()

        async with both(certificates, handler) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await client.request("POST", "/", body=endless())
            await wait_until(lambda: client.request_count == 0)
            assert client.is_usable
            await within(ended.wait())

    run(main())


def test_requests_that_the_server_leaving_has_not_processed_may_be_sent_again(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        begun, may_end = asyncio.Event(), asyncio.Event()
        connections: list[quic.Connection] = []

        async def handler(request: h3.Request) -> None:
            connections.append(request.connection)
            begun.set()
            await may_end.wait()
            await request.respond(200, {}, b"late")

        async with both(certificates, handler, {"max_streams_bidi": 1}) as client:
            processed = asyncio.ensure_future(client.request("GET", "/"))
            await within(begun.wait())
            # It waits for the server to allow another stream.
            waiting = asyncio.ensure_future(client.request("GET", "/"))
            await asyncio.sleep(0)
            native.go_away(connections[0])
            with pytest.raises(h3.RequestRejected, match="may be sent again"):
                await within(waiting)
            with pytest.raises(h3.RequestRejected):
                await within(client.request("GET", "/"))
            assert not client.is_usable
            may_end.set()
            response = await within(processed)
            assert await within(response.read()) == b"late"

    run(main())


def test_rejected_request_says_that_it_may_be_sent_again(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        async def handler(request: h3.Request) -> None:
            request.cancel(h3.RequestRejected.code)

        async with both(certificates, handler) as client:
            with pytest.raises(h3.RequestRejected):
                await within(client.request("GET", "/"))

            async def endless() -> AsyncIterator[bytes]:
                while True:
                    yield bytes(1 << 16)

            with pytest.raises(h3.RequestRejected):
                await within(client.request("POST", "/", body=endless()))

    run(main())


def test_closing_ends_bodies_that_wait(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        ended = False

        async def handler(request: h3.Request) -> None:
            request.start(200)
            await request.read()

        async def waits() -> AsyncIterator[bytes]:
            nonlocal ended
            try:
                yield b"x"
                await asyncio.Event().wait()
            finally:
                ended = True

        async with both(certificates, handler) as client:
            response = await within(client.request("POST", "/", body=waits()))
            client.close()
            await wait_until(lambda: ended)
            with pytest.raises(quic.ConnectionClosed):
                await within(response.read())

    run(main())


def test_urgent_responses_come_first(run: Run, certificates: Certificates) -> None:
    """Bodies that are written at once, of less than a send window, arrive in the order of urgency."""
    size = 200 << 10

    async def main() -> None:
        may_send, was_changed = asyncio.Event(), asyncio.Event()
        fields: list[str | None] = []

        async def handler(request: h3.Request) -> None:
            if request.path == "/go":
                may_send.set()
                await request.respond(204)
                return
            fields.append(request.header("priority"))
            request.start(200)
            await may_send.wait()
            await request.send(bytes(size), end=True)

        async with both(certificates, handler) as client:
            order: list[str] = []

            async def one(name: str, priority: h3.Priority) -> None:
                response = await client.request("GET", f"/{name}", priority=priority)
                if name == "changed":
                    response.set_priority(h3.Priority(6))
                    was_changed.set()
                assert len(await response.read()) == size
                order.append(name)

            tasks = [
                asyncio.ensure_future(one("low", h3.Priority(7, incremental=True))),
                asyncio.ensure_future(one("changed", h3.Priority(0))),
                asyncio.ensure_future(one("high", h3.Priority(1))),
            ]
            await wait_until(lambda: len(fields) == 3)
            await within(was_changed.wait())
            # It is sent behind the change of priority.
            await within(client.request("GET", "/go"))
            await within(asyncio.gather(*tasks))
            assert order == ["high", "changed", "low"]
            assert sorted(map(str, fields)) == ["u=0", "u=1", "u=7, i"]

    run(main())


def test_priority_out_of_range_is_refused(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates, respond) as client:
            with pytest.raises(ValueError, match="urgency is 8: give 0 to 7"):
                await within(client.request("GET", "/", priority=h3.Priority(8)))
            response = await within(client.request("GET", "/"))
            with pytest.raises(ValueError, match="urgency is -1: give 0 to 7"):
                response.set_priority(h3.Priority(-1))

    run(main())


@pytest.mark.parametrize("waits_for", ["space", "piece"])
def test_response_dropped_while_its_body_is_sent_cancels_the_request(
    waits_for: str, run: Run, certificates: Certificates
) -> None:
    """The task that sends the body does not keep the response."""
    outcomes: list[BaseException] = []
    closed: list[bool] = []

    async def body() -> AsyncIterator[bytes]:
        try:
            yield b"first"
            if waits_for == "piece":
                await asyncio.Event().wait()
            while True:
                yield bytes(1 << 16)
        finally:
            closed.append(True)

    async def main() -> None:
        handler, settings = sending_until(outcomes), {"max_stream_data": 100_000}
        async with both(certificates, handler, settings) as client:
            response = await within(client.request("POST", "/", body=body()))
            assert await within(response.read(10))
            await asyncio.sleep(0.05)
            assert not closed
            del response
            gc.collect()
            await wait_until(lambda: outcomes)
            assert isinstance(outcomes[0], quic.StreamStoppedError)
            await wait_until(lambda: closed)
            await wait_until(lambda: not client._senders)
            assert client.request_count == 0

    run(main())
