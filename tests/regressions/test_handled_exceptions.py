"""Exception handlers and `error_received` run inside of `except`, as on asyncio.

`logging.exception()` and `traceback.print_exc()` in a loop's exception handler printed "NoneType: None":
the native code called it without an exception being handled.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import traceback
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import socket_pair

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

pytestmark = pytest.mark.loop_errors


class BoomError(Exception):
    """What callbacks raise here."""


def boom(*_: object) -> None:
    raise BoomError


@pytest.fixture
def handled(loop: Any) -> list[BaseException | None]:
    """What is handled at each call of the exception handler."""
    found: list[BaseException | None] = []

    def handler(_loop: Any, context: dict[str, Any]) -> None:
        assert sys.exc_info()[1] is context["exception"]
        assert "NoneType: None" not in traceback.format_exc()
        found.append(sys.exc_info()[1])

    loop.set_exception_handler(handler)
    return found


@pytest.mark.parametrize("schedule", ["call_soon", "call_later", "call_soon_threadsafe"])
def test_of_callbacks(
    loop: Any, run: Run, handled: list[BaseException | None], schedule: str
) -> None:
    async def main() -> None:
        getattr(loop, schedule)(*([0] if schedule == "call_later" else []), boom)
        await support.wait_until(lambda: handled)
        assert sys.exc_info() == (None, None, None)

    run(main())
    assert [type(error) for error in handled] == [BoomError]


def test_of_done_callbacks_watchers_and_signals(
    loop: Any, run: Run, handled: list[BaseException | None]
) -> None:
    left, right = socket_pair()

    def readable() -> None:
        loop.remove_reader(left)
        boom()

    async def main() -> None:
        future = loop.create_future()
        future.add_done_callback(boom)
        future.set_result(None)
        loop.add_reader(left, readable)
        right.send(b"x")
        loop.add_signal_handler(signal.SIGUSR1, boom)
        os.kill(os.getpid(), signal.SIGUSR1)
        await support.wait_until(lambda: len(handled) == 3)

    run(main())
    loop.remove_signal_handler(signal.SIGUSR1)
    assert {type(error) for error in handled} == {BoomError}
    for sock in (left, right):
        sock.close()


def test_error_of_the_handler_names_the_one_that_it_handled(
    loop: Any, run: Run, loop_log: support.LoopLog
) -> None:
    def handler(_loop: Any, context: dict[str, Any]) -> None:
        raise KeyError("of the handler")

    loop.set_exception_handler(handler)

    async def main() -> None:
        loop.call_soon(boom)
        await asyncio.sleep(0.01)

    run(main())
    (record,) = loop_log.records
    assert record.exc_info is not None
    error = record.exc_info[1]
    assert isinstance(error, KeyError)
    assert isinstance(error.__context__, BoomError)


class Failing(asyncio.Protocol):
    """Raises in one of its methods."""

    def __init__(self, method: str) -> None:
        setattr(self, method, boom)


@pytest.mark.parametrize(
    "method",
    ["connection_made", "data_received", "eof_received", "connection_lost", "pause_writing"],
)
def test_of_stream_protocols(
    loop: Any, run: Run, handled: list[BaseException | None], method: str
) -> None:
    ours, theirs = socket_pair()

    async def main() -> None:
        transport, _ = await loop.create_connection(lambda: Failing(method), sock=ours)
        if method == "pause_writing":
            transport.set_write_buffer_limits(0)
            transport.write(bytes(10_000_000))
        theirs.send(b"x")
        theirs.shutdown(socket.SHUT_WR)
        await asyncio.sleep(0.01)
        transport.abort()
        await support.wait_until(lambda: handled or method == "eof_received")
        await asyncio.sleep(0.01)

    run(main())
    theirs.close()


@pytest.mark.parametrize("method", ["get_buffer", "buffer_updated"])
def test_of_buffered_protocols(
    loop: Any, run: Run, handled: list[BaseException | None], method: str
) -> None:
    ours, theirs = socket_pair()

    class Buffered(asyncio.BufferedProtocol):
        def get_buffer(self, sizehint: int) -> bytearray:
            return bytearray(10)

        def buffer_updated(self, nbytes: int) -> None:
            """Take it."""

    setattr(Buffered, method, boom)

    async def main() -> None:
        await loop.create_connection(Buffered, sock=ours)
        theirs.send(b"x")
        await support.wait_until(lambda: handled)
        await asyncio.sleep(0.01)

    run(main())
    theirs.close()


def test_of_datagrams(loop: Any, run: Run, handled: list[BaseException | None]) -> None:
    """`error_received` is called inside of `except`, and what it raises gets its error as context."""
    seen: list[BaseException | None] = []

    class Protocol(asyncio.DatagramProtocol):
        def error_received(self, exc: Exception) -> None:
            seen.append(sys.exc_info()[1])
            assert sys.exc_info()[1] is exc
            raise BoomError

    async def main() -> None:
        with socket.socket(type=socket.SOCK_DGRAM) as closed:
            closed.bind(("127.0.0.1", 0))
            nowhere = closed.getsockname()
        transport, _ = await loop.create_datagram_endpoint(Protocol, remote_addr=nowhere)
        transport.sendto(b"x")
        await support.wait_until(lambda: handled)
        transport.close()
        await asyncio.sleep(0.01)

    run(main())
    assert isinstance(seen[0], ConnectionRefusedError)
    assert handled[0] is not None
    assert handled[0].__context__ is seen[0]


def test_caller_keeps_what_it_handles(
    loop: Any, run: Run, handled: list[BaseException | None]
) -> None:
    """A report inside of a coroutine leaves its `except`, and that of its caller, as they were."""
    ours, theirs = socket_pair()
    outer, inner = KeyError("around the run"), ValueError("in the coroutine")

    async def main() -> None:
        transport, _ = await loop.create_connection(lambda: Failing("pause_writing"), sock=ours)
        transport.set_write_buffer_limits(0)
        try:
            raise inner
        except ValueError:
            transport.write(bytes(10_000_000))
            assert sys.exc_info()[1] is inner
        transport.abort()
        await asyncio.sleep(0.01)

    async def unhandled() -> BaseException | None:
        await asyncio.sleep(0)
        return sys.exc_info()[1]

    try:
        raise outer
    except KeyError:
        task = loop.create_task(unhandled())
        run(main())
        assert sys.exc_info()[1] is outer
    run(task)
    assert handled
    theirs.close()
