"""grpc.aio: its core has its own threads, and one of them wakes the loop through a socket.

That poller thread writes a byte to a socket pair whose other end the loop watches with `add_reader`, so
the end of each call is a wake-up from another thread.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

from tests.support import wait_until, within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from tests.ecosystem.smoke.conftest import Certificates

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

pytestmark = pytest.mark.keeps_threads

MIB = 1 << 20


class Service:
    """One method of each kind, on plain bytes; every method checks which loop it runs on."""

    def __init__(self, assert_right_loop: Callable[[], None]) -> None:
        self.assert_right_loop = assert_right_loop
        self.cancelled = 0
        self.waiting = 0

    async def reverse(self, request: bytes, context: Any) -> bytes:
        self.assert_right_loop()
        return request[::-1]

    async def wait(self, request: bytes, context: Any) -> bytes:
        self.waiting += 1
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return b""

    async def count(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        self.assert_right_loop()
        for number in range(int(request)):
            yield str(number).encode()

    async def total(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        return str(sum([int(request) async for request in requests])).encode()

    async def echo(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request

    async def refuse(self, request: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not today")
        return b""

    def handlers(self) -> Any:
        return grpc.method_handlers_generic_handler(
            "Smoke",
            {
                "reverse": grpc.unary_unary_rpc_method_handler(self.reverse),
                "wait": grpc.unary_unary_rpc_method_handler(self.wait),
                "refuse": grpc.unary_unary_rpc_method_handler(self.refuse),
                "count": grpc.unary_stream_rpc_method_handler(self.count),
                "total": grpc.stream_unary_rpc_method_handler(self.total),
                "echo": grpc.stream_stream_rpc_method_handler(self.echo),
            },
        )


@pytest.fixture
def service(assert_right_loop: Callable[[], None]) -> Service:
    return Service(assert_right_loop)


@contextlib.asynccontextmanager
async def serving(service: Service, tls: Certificates | None = None) -> AsyncIterator[Any]:
    """Serve `service`; yield a channel to it."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((service.handlers(),))
    if tls is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        pair = (tls.key.read_bytes(), tls.certificate.read_bytes())
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    await server.start()
    if tls is None:
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
    else:
        trust = grpc.ssl_channel_credentials(tls.authority.read_bytes())
        channel = grpc.aio.secure_channel(f"localhost:{port}", trust)
    try:
        async with channel:
            yield channel
    finally:
        await within(server.stop(grace=0))


def test_thousand_calls_at_once(run: Run, service: Service) -> None:
    async def main() -> None:
        async with serving(service) as channel:
            reverse = channel.unary_unary("/Smoke/reverse")
            words = [b"call %d" % number for number in range(1000)]
            answers = await asyncio.gather(*(reverse(word) for word in words))
            assert answers == [word[::-1] for word in words]

    run(main())


def test_streams_in_every_direction(run: Run, service: Service) -> None:
    async def numbers() -> AsyncIterator[bytes]:
        for number in range(500):
            yield str(number).encode()

    async def main() -> None:
        async with serving(service) as channel:
            wanted = [str(number).encode() for number in range(500)]
            count = channel.unary_stream("/Smoke/count")
            assert [answer async for answer in count(b"500")] == wanted
            total = channel.stream_unary("/Smoke/total")
            assert await total(numbers()) == str(sum(range(500))).encode()
            echo = channel.stream_stream("/Smoke/echo")
            assert [answer async for answer in echo(numbers())] == wanted
            talk = echo()
            for word in wanted[:100]:
                await talk.write(word)
                assert await talk.read() == word
            await talk.done_writing()
            assert await talk.read() is grpc.aio.EOF

    run(main())


def test_big_messages_come_back_whole(run: Run, service: Service) -> None:
    async def main() -> None:
        async with serving(service) as channel:
            message = bytes(range(256)) * (3 * MIB // 256)
            assert await channel.unary_unary("/Smoke/reverse")(message) == message[::-1]

    run(main())


def test_cancelled_call_cancels_its_handler(run: Run, service: Service) -> None:
    async def main() -> None:
        async with serving(service) as channel:
            calls = [channel.unary_unary("/Smoke/wait")(b"") for _ in range(20)]
            waiting = [asyncio.ensure_future(call) for call in calls]
            await wait_until(lambda: service.waiting == 20, "all handlers")
            for call in calls:
                call.cancel()
            results = await within(asyncio.gather(*waiting, return_exceptions=True))
            assert {type(result) for result in results} == {asyncio.CancelledError}
            await wait_until(lambda: service.cancelled == 20, "the cancelled handlers")

    run(main())


def test_deadline_ends_the_call_on_both_sides(run: Run, service: Service) -> None:
    async def main() -> None:
        async with serving(service) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary("/Smoke/wait")(b"", timeout=0.2)
            assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            await wait_until(lambda: service.cancelled == 1, "the cancelled handler")

    run(main())


def test_abort_reaches_the_caller(run: Run, service: Service) -> None:
    async def main() -> None:
        async with serving(service) as channel:
            with pytest.raises(grpc.aio.AioRpcError, match="not today") as caught:
                await channel.unary_unary("/Smoke/refuse")(b"")
            assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION

    run(main())


def test_tls_channel(run: Run, service: Service, certificates: Certificates) -> None:
    async def main() -> None:
        async with serving(service, certificates) as channel:
            reverse = channel.unary_unary("/Smoke/reverse")
            answers = await asyncio.gather(*(reverse(b"%d" % number) for number in range(100)))
            assert answers == [str(number).encode()[::-1] for number in range(100)]

    run(main())
