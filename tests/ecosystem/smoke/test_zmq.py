"""pyzmq: its descriptor is edge-triggered and signals once for any number of messages.

A loop that misses readiness from before the watch, or that expects the descriptor to stay readable until
it is drained, hangs here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import zmq
import zmq.asyncio

from tests.support import within

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

COUNT = 5000


@pytest.fixture
def context(leak_check: None) -> Iterator[zmq.asyncio.Context]:
    made = zmq.asyncio.Context()
    yield made
    made.destroy(linger=0)


def test_push_pull_delivers_each_message_in_order(run: Run, context: zmq.asyncio.Context) -> None:
    async def main() -> None:
        with context.socket(zmq.PUSH) as push, context.socket(zmq.PULL) as pull:
            port = push.bind_to_random_port("tcp://127.0.0.1")
            pull.connect(f"tcp://127.0.0.1:{port}")

            async def produce() -> None:
                for number in range(COUNT):
                    await push.send(b"%d" % number)

            sending = asyncio.create_task(produce())
            for number in range(COUNT):
                assert await within(pull.recv()) == b"%d" % number
            await sending

    run(main())


def test_request_reply_alternates(run: Run, context: zmq.asyncio.Context) -> None:
    async def answer(reply: Any) -> None:
        while True:
            await reply.send(b"re: " + await reply.recv())

    async def main() -> None:
        with context.socket(zmq.REP) as reply, context.socket(zmq.REQ) as request:
            reply.bind("inproc://talk")
            request.connect("inproc://talk")
            answering = asyncio.create_task(answer(reply))
            for number in range(500):
                await request.send(b"%d" % number)
                assert await within(request.recv()) == b"re: %d" % number
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)

    run(main())


def test_router_like_a_jupyter_kernel_serves_many_clients(
    run: Run, context: zmq.asyncio.Context
) -> None:
    """Like a Jupyter kernel: a router, dealers, a publisher and a poller at once."""

    async def serve(router: Any, publisher: Any) -> None:
        while True:
            identity, body = await router.recv_multipart()
            await publisher.send_multipart([b"status", b"busy"])
            await router.send_multipart([identity, body.upper()])

    async def client(port: int, number: int) -> None:
        with context.socket(zmq.DEALER) as dealer:
            dealer.connect(f"tcp://127.0.0.1:{port}")
            poller = zmq.asyncio.Poller()
            poller.register(dealer, zmq.POLLIN)
            for step in range(50):
                await dealer.send(b"from %d: %d" % (number, step))
                assert await poller.poll(10_000)
                assert await dealer.recv() == b"FROM %d: %d" % (number, step)

    async def count(subscriber: Any) -> int:
        for _ in range(20 * 50):
            assert (await subscriber.recv_multipart())[1] == b"busy"
        return 20 * 50

    async def main() -> None:
        sockets = [context.socket(kind) for kind in (zmq.ROUTER, zmq.PUB, zmq.SUB)]
        router, publisher, subscriber = sockets
        publisher.set_hwm(0)
        subscriber.set_hwm(0)
        port = router.bind_to_random_port("tcp://127.0.0.1")
        publisher.bind("inproc://status")
        subscriber.connect("inproc://status")
        subscriber.subscribe(b"status")
        serving = asyncio.create_task(serve(router, publisher))
        counting = asyncio.create_task(count(subscriber))
        await within(asyncio.gather(*(client(port, number) for number in range(20))), 30)
        assert await within(counting) == 1000
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        for socket in sockets:
            socket.close(linger=0)

    run(main())
