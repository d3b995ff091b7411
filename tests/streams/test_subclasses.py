"""Subclasses of the native streams: what they override is called as asyncio would call it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import copy
import pickle
from typing import TYPE_CHECKING, Any

import pytest

from ringloop import _native
from tests import support
from tests.support.tcp import socket_pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

CLASSES: tuple[Any, ...] = (
    _native.StreamReader,
    _native.StreamWriter,
    _native.StreamReaderProtocol,
)


@contextlib.asynccontextmanager
async def connected(
    reader_class: Any = _native.StreamReader,
    protocol_class: Any = _native.StreamReaderProtocol,
    writer_class: Any = _native.StreamWriter,
) -> AsyncIterator[tuple[Any, Any, Any]]:
    """Connect streams of these classes to a plain socket; close both ends afterwards."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket_pair()
    ours.setblocking(False)
    reader = reader_class(loop=loop)
    protocol = protocol_class(reader, loop=loop)
    transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
    writer = writer_class(transport, protocol, reader, loop)
    with contextlib.closing(theirs):
        yield reader, writer, theirs
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def test_overridden_reading_is_what_the_other_methods_call(run: Run) -> None:
    """asyncio's `readline()` calls `readuntil()`, `read(-1)` `read(limit)`, `async for` `readline()`."""

    class Counted(_native.StreamReader):
        calls: list[str]

        async def read(self, n: int | None = -1) -> bytes:
            self.calls.append(f"read {n}")
            return await super().read(n)

        async def readuntil(self, separator: Any = b"\n") -> bytes:
            self.calls.append(f"readuntil {separator!r}")
            return await super().readuntil(separator)

        async def readline(self) -> bytes:
            self.calls.append("readline")
            return await super().readline()

    async def main() -> None:
        async with connected(Counted) as (reader, _writer, theirs):
            reader.calls = []
            theirs.sendall(b"one\ntwo\nrest")
            assert await reader.readline() == b"one\n"
            assert await anext(reader) == b"two\n"
            theirs.close()
            assert await reader.read() == b"rest"
            until, limit = "readuntil b'\\n'", reader._limit
            assert reader.calls[:4] == ["readline", until, "readline", until]
            assert reader.calls[4] == "read -1"
            assert set(reader.calls[5:]) == {f"read {limit}"}

    run(main())


def test_overridden_wait_is_used(run: Run) -> None:
    class Patient(_native.StreamReader):
        waits: list[str]

        async def _wait_for_data(self, func_name: str) -> None:
            self.waits.append(func_name)
            await super()._wait_for_data(func_name)  # type: ignore[misc]

    async def main() -> None:
        async with connected(Patient) as (reader, _writer, theirs):
            reader.waits = []
            for name, arguments in (("read", (5,)), ("readexactly", (5,)), ("readuntil", (b"5",))):
                waiting = asyncio.ensure_future(getattr(reader, name)(*arguments))
                await support.wait_until(lambda: reader._waiter is not None)
                theirs.sendall(b"12345")
                assert await support.within(waiting) == b"12345"
            assert reader.waits == ["read", "readexactly", "readuntil"]

    run(main())


def test_overridden_writing_and_flow_control(run: Run) -> None:
    class Loud(_native.StreamWriter):
        def write(self, data: Any) -> None:
            super().write(bytes(data).upper())

        async def drain(self) -> None:
            self.drained = True
            await super().drain()

    class Watched(_native.StreamReaderProtocol):
        told: list[str]

        def data_received(self, data: bytes) -> None:
            self.told.append("data")
            super().data_received(data)

        def eof_received(self) -> bool | None:
            self.told.append("eof")
            return super().eof_received()

        def connection_lost(self, exc: Exception | None) -> None:
            self.told.append("lost")
            super().connection_lost(exc)

        async def _drain_helper(self) -> None:
            self.told.append("drain")
            await super()._drain_helper()  # type: ignore[misc]

    async def main() -> None:
        async with connected(protocol_class=Watched, writer_class=Loud) as (reader, writer, theirs):
            told = writer._protocol.told = []
            writer.write(b"loud")
            await writer.drain()
            assert writer.drained
            assert told == ["drain"]
            theirs.settimeout(30)
            assert theirs.recv(10) == b"LOUD"
            theirs.sendall(b"quiet\n")
            assert await support.within(reader.readline()) == b"quiet\n"
            theirs.close()
            assert await support.within(reader.read()) == b""
        assert [told[0], *sorted(set(told[1:]))] == ["drain", "data", "eof", "lost"]

    run(main())


variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


def test_what_is_overridden_runs_in_the_context_of_the_connection(run: Run) -> None:
    seen: list[str] = []

    class Feeds(_native.StreamReader):
        def feed_data(self, data: Any) -> None:
            seen.append(variable.get())
            super().feed_data(data)

    async def main() -> None:
        variable.set("connection")
        async with connected(Feeds) as (reader, _writer, theirs):
            theirs.sendall(b"x")
            assert await support.within(reader.readexactly(1)) == b"x"
        async with connected() as (reader, _writer, theirs):
            feed = reader.feed_data

            def listen(data: bytes) -> None:
                seen.append(variable.get())
                feed(data)

            reader.feed_data = listen
            theirs.sendall(b"x")
            assert await support.within(reader.readexactly(1)) == b"x"
            del reader.feed_data

    run(main())
    assert seen == ["connection", "connection"]


class Closed:
    """A transport, for the finaliser of a writer."""

    def is_closing(self) -> bool:
        return True


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("shell", CLASSES)
def test_streams_cannot_be_copied(shell: Any, copied: Callable[[Any], Any]) -> None:
    """A copy would have no bytes and no transport."""
    made = shell.__new__(shell)
    made._transport = Closed()
    with pytest.raises(TypeError, match="cannot pickle"):
        copied(made)
