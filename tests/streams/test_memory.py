"""Streams leave nothing behind, however they end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest

import ringloop
from tests import support
from tests.support.streams import echo, until_alone
from tests.support.tcp import pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.support.tls import Certificates

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

GROWTH_MAX = 1 << 20


async def converse(port: int, **options: Any) -> list[weakref.ref[Any]]:
    """Use a connection in every way; return weak references to what it was made of."""
    reader, writer = await ringloop.open_connection("127.0.0.1", port, limit=1000, **options)
    data = pattern(50_000) + b"\nlast"
    writer.write(data)
    await writer.drain()
    assert await reader.readexactly(50_000) == data[:50_000]
    await reader.readline()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(reader.readexactly(100_000), 0)
    waiting = asyncio.ensure_future(reader.readuntil(b"never"))
    await asyncio.sleep(0)
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    made = [weakref.ref(one) for one in (reader, writer, writer._protocol, writer.transport)]  # type: ignore[attr-defined]
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return made


@pytest.mark.timeout(300)
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_conversations_leave_nothing(run: Run, certificates: Certificates, secure: bool) -> None:
    async def main() -> None:
        server_options: dict[str, Any] = {"ssl": certificates.server()} if secure else {}
        options: dict[str, Any] = {}
        if secure:
            options = {"ssl": certificates.client(), "server_hostname": "localhost"}
        server = await ringloop.start_server(echo, "127.0.0.1", 0, **server_options)
        port = server.sockets[0].getsockname()[1]
        count = 20 if secure else 200
        for _ in support.until_memory_stays(GROWTH_MAX):
            made: list[weakref.ref[Any]] = []
            for _ in range(count):
                made += await converse(port, **options)
            gc.collect()
            await support.wait_until(
                lambda made=made: gc.collect() >= 0 and not any(one() for one in made),  # type: ignore[misc]
                "the end of all objects",
            )
        await until_alone()
        server.close()
        await server.wait_closed()

    run(main())


def test_cycles_through_a_reader_are_collected(run: Run) -> None:
    async def main() -> None:
        class Marker:
            pass

        from ringloop import _native

        reader = _native.StreamReader()
        marker = Marker()
        gone = weakref.ref(marker)
        reader.marker, reader.itself = marker, reader  # type: ignore[attr-defined]
        reader._exception = ValueError(reader)
        call = reader.readexactly(100_000)
        reader.call = call  # type: ignore[attr-defined]
        call.close()
        del reader, marker, call
        gc.collect()
        assert gone() is None

    run(main())
