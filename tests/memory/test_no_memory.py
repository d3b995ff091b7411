"""Each allocation of a connection fails once: data received from the kernel is never lost silently.

What arrives is a prefix of what was sent, and all of it unless `connection_lost` gets an error.
asyncio loses the end of some connections then; ours must be complete.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.memory import Failing, every_allocation
from tests.support.tcp import pattern

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support import LoopFactory
    from tests.support.memory import Scenario, Steps
    from tests.support.tls import Certificates

pytestmark = [
    pytest.mark.one_thread("the interpreter's allocators are the process's"),
    # A socket whose transport could not be created is closed by the collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture
def play(loop_factory: LoopFactory, monkeypatch: pytest.MonkeyPatch) -> Callable[[Scenario], int]:
    return lambda scenario: every_allocation(loop_factory, monkeypatch, scenario)


class Taker:
    """Records what it receives, without an allocation."""

    def __init__(self, failing: Failing, count: int = 0) -> None:
        self.failing = failing
        self.chunks = [b""] * 300
        self.count = 0
        self.last = count
        self.lost = False
        self.error: Exception | None = None
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def take(self, chunk: bytes) -> None:
        self.chunks[self.count] = chunk
        self.count += 1
        if self.count == self.last:
            self.failing.halt()

    def eof_received(self) -> None:
        pass

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        self.error = error
        self.failing.halt()

    def assert_ended(self, sent: bytes, oracle: bool) -> None:
        if not oracle:
            self.failing.turn(lambda: self.lost, "connection_lost")
        got = b"".join(self.chunks[: self.count])
        assert sent.startswith(got), "there is a hole"
        if self.lost and self.error is None:
            assert got == sent, "it was cut, and no error says so"


class Plain(Taker, asyncio.Protocol):
    def data_received(self, data: bytes) -> None:
        self.take(data)


class Buffered(Taker, asyncio.BufferedProtocol):
    def __init__(self, failing: Failing) -> None:
        super().__init__(failing)
        self.buffer = bytearray(20_000)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.take(bytes(memoryview(self.buffer)[:nbytes]))


class Datagrams(Taker, asyncio.DatagramProtocol):
    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.take(data)


def is_oracle(failing: Failing) -> bool:
    return isinstance(failing.loop, asyncio.SelectorEventLoop)


@pytest.mark.parametrize("size", [30, 2500, 150_000])
@pytest.mark.parametrize("factory", [Plain, Buffered])
def test_read_stream_has_no_hole(
    play: Callable[[Scenario], int], factory: Callable[[Failing], Any], size: int
) -> None:
    sent = pattern(size)

    def scenario(failing: Failing) -> Steps:
        protocol = factory(failing)
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        make = failing.loop.create_connection(lambda: protocol, sock=ours)
        failing.loop.run_until_complete(make)
        theirs.sendall(sent)
        theirs.shutdown(socket.SHUT_WR)
        yield
        theirs.close()
        protocol.assert_ended(sent, is_oracle(failing))
        protocol.transport.abort()

    assert play(scenario) > 0


def test_read_datagrams_are_in_order_or_reported(play: Callable[[Scenario], int]) -> None:
    sent = [b"%d" % number for number in range(6)]

    def scenario(failing: Failing) -> Steps:
        protocol = Datagrams(failing, len(sent))
        ours = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        ours.setblocking(False)
        ours.bind(("127.0.0.1", 0))
        make = failing.loop.create_datagram_endpoint(lambda: protocol, sock=ours)
        failing.loop.run_until_complete(make)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as theirs:
            for datagram in sent:
                theirs.sendto(datagram, ours.getsockname())
        yield
        if not is_oracle(failing):
            # asyncio only logs datagrams that it could not deliver for lack of memory.
            failing.turn(lambda: protocol.lost or protocol.count == len(sent), "the datagrams")
            assert protocol.chunks[: protocol.count] == sent[: protocol.count]
        if not protocol.lost:
            protocol.transport.abort()
            failing.turn(lambda: protocol.lost, "connection_lost")
        else:
            assert isinstance(protocol.error, MemoryError)

    assert play(scenario) > 0


def test_read_pipe_has_no_hole(play: Callable[[Scenario], int]) -> None:
    sent = pattern(200)

    def scenario(failing: Failing) -> Steps:
        protocol = Plain(failing)
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)
        pipe = os.fdopen(read_end, "rb", 0)
        make = failing.loop.connect_read_pipe(lambda: protocol, pipe)
        failing.loop.run_until_complete(make)
        os.write(write_end, sent)
        os.close(write_end)
        yield
        protocol.assert_ended(sent, is_oracle(failing))
        if not protocol.lost:
            protocol.transport.close()
            failing.turn(lambda: protocol.lost, "connection_lost")

    assert play(scenario) > 0


@pytest.mark.parametrize("sizes", [(100, 50, 150), (100_000, 80_000, 20)])
def test_written_stream_has_no_hole(
    play: Callable[[Scenario], int], sizes: tuple[int, ...]
) -> None:
    parts = [pattern(size, seed) for seed, size in enumerate(sizes)]
    # The second kind is copied.
    kinds = (bytes, bytearray, bytes)
    sent = b"".join(parts)

    def scenario(failing: Failing) -> Steps:
        protocol = Plain(failing)
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        make = failing.loop.create_connection(lambda: protocol, sock=ours)
        failing.loop.run_until_complete(make)
        data: list[Any] = [kind(part) for kind, part in zip(kinds, parts, strict=True)]
        raised = False

        def write() -> None:
            nonlocal raised
            try:
                for part in data:
                    protocol.transport.write(part)
            except MemoryError:
                raised = True
                protocol.transport.abort()
            else:
                protocol.transport.close()

        failing.loop.call_soon(write)
        with tempfile.TemporaryFile() as arrived, theirs:
            # Reads without an allocation in this process.
            peer = subprocess.Popen(["cat"], stdin=theirs.fileno(), stdout=arrived)
            theirs.close()
            yield
            protocol.transport.close()
            failing.turn(lambda: protocol.lost or is_oracle(failing), "connection_lost")
            if not protocol.lost:
                protocol.transport.abort()
                failing.turn(lambda: not protocol.transport._sock, "the end")
            assert peer.wait(support.PATIENCE_SECONDS) == 0
            arrived.seek(0)
            got = arrived.read()
        assert sent.startswith(got), "there is a hole"
        if protocol.lost and protocol.error is None and not raised and not is_oracle(failing):
            assert got == sent, "it was cut, and no error says so"

    play(scenario)


def tls_connection(
    failing: Failing, certificates: Certificates, protocol: Plain
) -> tuple[Any, ssl.SSLSocket]:
    """Create a TLS transport and its plain peer, which is blocking."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    ends: list[ssl.SSLSocket] = []
    context = certificates.server()

    def accept() -> None:
        ends.append(context.wrap_socket(theirs, server_side=True))

    accepting = threading.Thread(target=accept)
    accepting.start()
    make = failing.loop.create_connection(
        lambda: protocol, sock=ours, ssl=certificates.client(), server_hostname="localhost"
    )
    transport, _ = failing.loop.run_until_complete(make)
    accepting.join()
    return transport, ends[0]


@pytest.mark.parametrize("size", [50, 40_000])
def test_read_tls_stream_has_no_hole(
    play: Callable[[Scenario], int], certificates: Certificates, tls_engine: str, size: int
) -> None:
    sent = pattern(size)

    def scenario(failing: Failing) -> Steps:
        protocol = Plain(failing)
        _, peer = tls_connection(failing, certificates, protocol)
        with peer:
            peer.sendall(sent)
            peer.setblocking(False)
            with contextlib.suppress(ssl.SSLWantReadError):
                peer.unwrap()
            peer.shutdown(socket.SHUT_WR)
            yield
        protocol.assert_ended(sent, is_oracle(failing))
        protocol.transport.abort()

    assert play(scenario) > 0


def test_written_tls_stream_has_no_hole(
    play: Callable[[Scenario], int], certificates: Certificates, tls_engine: str
) -> None:
    sent = pattern(190)

    def scenario(failing: Failing) -> Steps:
        protocol = Plain(failing)
        transport, peer = tls_connection(failing, certificates, protocol)
        parts: list[Any] = [sent[:100], bytearray(sent[100:150]), sent[150:170], sent[170:]]
        raised = False

        def write() -> None:
            nonlocal raised
            try:
                transport.write(parts[0])
                transport.write(parts[1])
                transport.writelines(parts[2:])
            except MemoryError:
                raised = True
                transport.abort()
            failing.loop.call_soon(failing.halt)

        failing.loop.call_soon(write)
        with peer:
            yield
            transport.close()
            peer.settimeout(support.PATIENCE_SECONDS)
            # The peer sends its close_notify next: nothing here reads while the loop is stopped.
            failing.loop.call_soon(failing.loop.stop)
            failing.loop.run_forever()
            got = b""
            with contextlib.suppress(OSError):
                while chunk := peer.recv(1000):
                    got += chunk
        failing.turn(lambda: protocol.lost or is_oracle(failing), "connection_lost")
        assert sent.startswith(got), "there is a hole"
        if protocol.error is None and not raised and not is_oracle(failing):
            assert got == sent, "it was cut, and no error says so"

    play(scenario)


def test_run_that_ends_without_memory_leaves_the_loop_usable(loop_factory: LoopFactory) -> None:
    testcapi = pytest.importorskip("_testcapi", reason="allocations fail by _testcapi")
    if loop_factory is asyncio.SelectorEventLoop:
        pytest.skip("asyncio's counts as running where its last lines fail")
    hooks = sys.get_asyncgen_hooks()
    for number in range(60):
        loop = loop_factory()

        def stop(loop: asyncio.AbstractEventLoop = loop, number: int = number) -> None:
            loop.stop()
            testcapi.set_nomemory(number, number + 1)

        loop.call_soon(stop)
        try:
            with contextlib.suppress(MemoryError):
                loop.run_forever()
        finally:
            testcapi.remove_mem_hooks()
        assert not loop.is_running()
        assert sys.get_asyncgen_hooks() == hooks
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
