"""Transports used from other threads than their loop's: immediate answers, work handed to the loop.

Streams under more threads than these are in `test_threads.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import random
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import Recorder, socket_pair
from tests.support.tls import connected_tls

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from tests.support.tls import Certificates

pytestmark = pytest.mark.one_thread("has threads of its own")

THREADS = 4
CALLS = 400


@contextlib.contextmanager
def threads(count: int, use: Callable[[int], None]) -> Iterator[Callable[[], bool]]:
    """Call `use` in `count` threads; yield a function that says whether any still runs."""
    started = [threading.Thread(target=use, args=(number,)) for number in range(count)]
    for thread in started:
        thread.start()
    try:
        yield lambda: any(thread.is_alive() for thread in started)
    finally:
        for thread in started:
            thread.join()


class Busy(asyncio.Protocol):
    """Keeps its thread busy in each callback until another thread has queried the transport."""

    transport: Any

    def __init__(self) -> None:
        self.questions: queue.SimpleQueue[Any] = queue.SimpleQueue()
        # The callback, and whether the transport was closing during it.
        self.heard: list[tuple[str, bool]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.be_busy("data_received")

    def pause_writing(self) -> None:
        self.be_busy("pause_writing")

    def connection_lost(self, exc: Exception | None) -> None:
        self.be_busy("connection_lost")

    def be_busy(self, callback: str) -> None:
        answers: list[bool] = []
        self.questions.put((self.transport, answers))
        deadline = time.monotonic() + support.PATIENCE_SECONDS
        while not answers and time.monotonic() < deadline:
            pass
        self.heard += [(callback, answer) for answer in answers]

    def ask(self) -> None:
        """Query, in another thread, until there are no more questions."""
        while question := self.questions.get():
            transport, answers = question
            answers.append(transport.is_closing())

    async def connect(self, kind: str, sock: socket.socket) -> Any:
        loop = asyncio.get_running_loop()
        connecting: dict[str, Callable[[], Any]] = {
            "stream": lambda: loop.create_connection(lambda: self, sock=sock),
            "read pipe": lambda: loop.connect_read_pipe(lambda: self, sock),
            "write pipe": lambda: loop.connect_write_pipe(lambda: self, sock),
        }
        transport, _ = await connecting[kind]()
        return transport


@pytest.mark.parametrize("kind", ["stream", "read pipe", "write pipe"])
def test_transport_answers_while_its_protocol_is_busy(loop: Any, kind: str) -> None:
    """Callbacks may take arbitrarily long without yielding: queries are not delayed."""
    protocol = Busy()
    expected: list[tuple[str, bool]] = []

    async def expect(callback: str, is_closing: bool) -> None:
        expected.append((callback, is_closing))
        await support.wait_until(lambda: protocol.heard == expected, callback)

    async def main() -> None:
        left, right = socket.socketpair()
        transport = await protocol.connect(kind, left)
        if kind != "write pipe":
            right.send(b"x")
            await expect("data_received", False)
        if kind != "read pipe":
            transport.write(bytes(8 << 20))
            await expect("pause_writing", False)
        (transport.close if kind == "read pipe" else transport.abort)()
        await expect("connection_lost", True)
        right.close()

    with threads(1, lambda _: protocol.ask()):
        try:
            loop.run_until_complete(main())
        finally:
            protocol.questions.put(None)


class Datagrams(asyncio.DatagramProtocol):
    """Discards what it receives."""


def datagram_pair() -> tuple[socket.socket, socket.socket]:
    left, right = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    right.bind(("127.0.0.1", 0))
    left.connect(right.getsockname())
    return left, right


@contextlib.asynccontextmanager
async def connected(kind: str, certificates: Certificates) -> AsyncIterator[Any]:
    """A transport of one kind, and a peer that neither sends nor receives."""
    loop: Any = asyncio.get_running_loop()
    if kind == "tls":
        async with connected_tls(Recorder(), certificates) as (transport, _peer):
            yield transport
        return
    left, right = datagram_pair() if kind == "datagrams" else socket_pair()
    connecting: dict[str, Callable[[], Any]] = {
        "stream": lambda: loop.create_connection(Recorder, sock=left),
        "datagrams": lambda: loop.create_datagram_endpoint(Datagrams, sock=left),
        "read pipe": lambda: loop.connect_read_pipe(Recorder, left),
        "write pipe": lambda: loop.connect_write_pipe(Recorder, left),
    }
    transport, _ = await connecting[kind]()
    try:
        yield transport
    finally:
        if not transport.is_closing():
            (transport.close if kind == "read pipe" else transport.abort)()
        right.close()
        await support.wait_until(lambda: left.fileno() == -1, "the socket to be closed")


def methods_of(kind: str, transport: Any) -> list[Callable[[], Any]]:
    """The methods that a thread may call on this kind of transport."""
    asks = ["is_closing", "get_protocol", "get_write_buffer_size", "get_write_buffer_limits"]
    asks += ["__repr__"]
    if kind != "write pipe":
        # There they are inherited and raise NotImplementedError.
        asks += ["is_reading", "pause_reading", "resume_reading"]
    found = [getattr(transport, name) for name in asks if hasattr(transport, name)]
    found.append(lambda: transport.get_extra_info("sockname"))
    found.append(lambda: transport.set_protocol(transport.get_protocol()))
    if hasattr(transport, "set_write_buffer_limits"):
        found += [lambda: transport.set_write_buffer_limits(high=100)]
        found += [lambda: transport.set_write_buffer_limits(high=1 << 20)]
    if hasattr(transport, "sendto"):
        found += [lambda: transport.sendto(b"x" * 50)]
    elif hasattr(transport, "write"):
        found += [lambda: transport.write(b"x" * 50), lambda: transport.write(bytes(5000))]
        found += [lambda: transport.writelines([b"x", b"y" * 50])]
    return found


@pytest.mark.parametrize("kind", ["stream", "tls", "datagrams", "read pipe", "write pipe"])
def test_every_method_in_four_threads(
    loop_name: str, loop: Any, certificates: Certificates, kind: str
) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio promises nothing here")
    errors: list[Exception] = []

    async def main() -> None:
        async with connected(kind, certificates) as transport:

            def use(number: int) -> None:
                chance = random.Random(number)
                for _ in range(CALLS):
                    try:
                        chance.choice(methods_of(kind, transport))()
                    except Exception as error:
                        errors.append(error)
                    if chance.random() < 0.1:
                        time.sleep(0.0005)  # so that the loop sleeps too

            with threads(THREADS, use) as running:
                await support.wait_until(lambda: not running(), "the threads to end")

    loop.run_until_complete(main())
    assert errors == []
    # The loop still works.
    assert loop.run_until_complete(asyncio.sleep(0.001, "alive")) == "alive"


def in_another_thread(use: Callable[[], None]) -> None:
    """Call `use` in another thread and wait for it."""
    with threads(1, lambda _: use()):
        pass


KINDS = ["stream", "tls", "datagrams", "read pipe", "write pipe"]


@pytest.mark.parametrize("ending", ["close", "abort"])
@pytest.mark.parametrize("kind", KINDS)
def test_is_closing_right_after_another_thread_closes(
    loop: Any, certificates: Certificates, kind: str, ending: str
) -> None:
    if (kind, ending) == ("read pipe", "abort"):
        pytest.skip("a pipe that is read has no abort()")

    async def main() -> None:
        async with connected(kind, certificates) as transport:
            answers: list[bool] = []

            def use() -> None:
                answers.append(transport.is_closing())
                getattr(transport, ending)()
                answers.append(transport.is_closing())

            in_another_thread(use)
            # The loop has not run since.
            assert [*answers, transport.is_closing()] == [False, True, True]
            if kind in ("stream", "datagrams", "read pipe"):
                assert not transport.is_reading()

    loop.run_until_complete(main())


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "write pipe"])
def test_is_reading_right_after_another_thread_pauses(
    loop: Any, certificates: Certificates, kind: str
) -> None:
    async def main() -> None:
        async with connected(kind, certificates) as transport:
            await support.wait_until(transport.is_reading, "reading")
            answers: list[bool] = []

            def use() -> None:
                for name in ("pause_reading", "resume_reading", "pause_reading"):
                    getattr(transport, name)()
                    answers.append(transport.is_reading())

            in_another_thread(use)
            # The loop has not run since.
            assert [*answers, transport.is_reading()] == [False, True, False, False]
            made = loop.create_future()
            loop.call_soon_threadsafe(made.set_result, None)
            await made
            assert not transport.is_reading()
            transport.resume_reading()
            assert transport.is_reading()

    loop.run_until_complete(main())
