"""Iterators keep no references: what they yield is freed when the consumer drops it."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import quic
from tests.quic.support import both
from tests.support import wait_until, within

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from tests.support.tls import Certificates

    Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(autouse=True)
def _without_the_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("unidirectional", [False, True])
def test_streams_of_an_iterator_end_when_dropped(
    run: Run, certificates: Certificates, unidirectional: bool
) -> None:
    async def main() -> None:
        async with both(certificates, {"max_stream_data": 50_000}) as (client, server):
            taken: list[weakref.ref[quic.Stream]] = []

            async def take() -> None:
                async for stream in server.incoming_streams(unidirectional=unidirectional):
                    assert await stream.read(10)
                    taken.append(weakref.ref(stream))
                    del stream

            task = asyncio.ensure_future(take())
            for _ in range(2):
                sent = await client.open_stream(unidirectional=unidirectional)
                with pytest.raises(quic.StreamStoppedError):
                    async with asyncio.timeout(20):
                        while True:
                            sent.write(bytes(20_000))
                            await sent.drain()
                await wait_until(lambda: len(taken) > 0)
                assert taken.pop()() is None
            task.cancel()

    run(main())


def test_accepted_streams_end_when_dropped(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with both(certificates) as (client, server):
            for _ in range(2):
                sent = await client.open_stream()
                sent.write(b"x")
                stream = await within(server.accept_stream())
                there = weakref.ref(stream)
                del stream
                assert there() is None

    run(main())


def test_chunks_of_a_stream_are_not_kept(run: Run, certificates: Certificates) -> None:
    """`bytes` have no weak references: this checks what the generator's frame holds."""

    async def main() -> None:
        async with both(certificates) as (client, server):
            sent = await client.open_stream()
            sent.write(b"x" * 1000)
            stream = await within(server.accept_stream())
            chunks: Any = stream.chunks()
            assert await within(anext(chunks))
            waiting = asyncio.ensure_future(anext(chunks))
            await asyncio.sleep(0)
            assert not any(isinstance(value, bytes) for value in chunks.ag_frame.f_locals.values())
            sent.finish()
            with pytest.raises(StopAsyncIteration):
                await within(waiting)

    run(main())
