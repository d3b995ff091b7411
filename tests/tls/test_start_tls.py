"""`start_tls` upgrades a plain connection to TLS, on either side, over any transport.

The peer is a plain socket with `ssl.SSLObject` (`TlsPeer`) in tests of one side, and a second
transport of the loop under test in tests of both.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ssl
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import (
    MORE_THAN_THE_KERNEL_TAKES,
    SOCKET_BUFFER_BYTES,
    Recorder,
    pattern,
    socket_pair,
)
from tests.support.tls import TlsPeer

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Callable, Coroutine

    from tests.support.tls import Certificates

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

pytestmark = pytest.mark.usefixtures("tls_engine")

# Later patch releases pass what a StreamReader has read ahead to a server's handshake.
KEEPS_READ_AHEAD = "_incoming" in asyncio.BaseEventLoop.start_tls.__code__.co_names


class Echo(Recorder):
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.write(data)


class Relay(asyncio.Transport):
    """A custom transport: Python code between a socket and a protocol."""

    _start_tls_compatible = True

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self.loop: Any = asyncio.get_running_loop()
        self.sock = sock
        self.calls: list[str] = []
        self.protocol: Any = None
        self.closing = False
        self.loop.add_reader(sock, self.readable)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> Any:
        return self.protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return "from the relay" if name == "relay" else default

    def readable(self) -> None:
        data = self.sock.recv(100_000)
        if not data:
            self.loop.remove_reader(self.sock)
            if not self.protocol.eof_received():
                self.close()
        while data:
            buffer = self.protocol.get_buffer(len(data))
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            self.protocol.buffer_updated(count)
            data = data[count:]

    def write(self, data: Any) -> None:
        assert isinstance(data, bytes)
        self.sock.sendall(data)

    def pause_reading(self) -> None:
        self.calls.append("pause_reading")
        if not self.closing:
            self.loop.remove_reader(self.sock)

    def resume_reading(self) -> None:
        self.calls.append("resume_reading")
        if not self.closing:
            self.loop.add_reader(self.sock, self.readable)

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self._end("close", None)

    def abort(self) -> None:
        self._end("abort", None)

    def _force_close(self, exc: BaseException | None) -> None:
        self._end("_force_close", exc)

    def _end(self, call: str, exc: BaseException | None) -> None:
        if not self.closing:
            self.calls.append(call)
            self.closing = True
            self.loop.remove_reader(self.sock)
            self.loop.call_soon(self._lose, exc)

    def _lose(self, exc: BaseException | None) -> None:
        self.sock.close()
        self.protocol.connection_lost(exc)


async def until_closed(sock: socket.socket) -> None:
    await support.wait_until(lambda: sock.fileno() == -1, "the socket to be closed")


@contextlib.asynccontextmanager
async def plain(
    protocol: asyncio.BaseProtocol,
    peer_context: ssl.SSLContext,
    buffer_bytes: int | None = None,
    **wrap: Any,
) -> AsyncIterator[tuple[Any, TlsPeer]]:
    """Connect `protocol` without TLS to a peer that supports it."""
    ours, theirs = socket_pair(buffer_bytes)
    peer = TlsPeer(theirs, peer_context, **wrap)
    loop: Any = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
    try:
        yield transport, peer
    finally:
        peer.close()
        if ours.fileno() != -1:
            transport.abort()
        await until_closed(ours)


@contextlib.asynccontextmanager
async def upgraded(
    protocol: Recorder, certificates: Certificates, **arguments: Any
) -> AsyncIterator[tuple[Any, TlsPeer]]:
    """Connect `protocol`, and upgrade its connection as a client."""
    async with plain(protocol, certificates.server(), server_side=True) as (transport, peer):
        arguments.setdefault("server_hostname", "localhost")
        loop: Any = asyncio.get_running_loop()
        tls, _ = await asyncio.gather(
            loop.start_tls(transport, protocol, certificates.client(), **arguments),
            peer.handshake(),
        )
        protocol.transport = tls
        yield tls, peer


def test_client_upgrades(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        protocol = Echo()
        async with upgraded(protocol, certificates) as (tls, peer):
            # connection_made was called before.
            assert protocol.events == ["connection_made"]
            assert tls.get_protocol() is protocol
            assert tls.get_extra_info("ssl_object").server_hostname == "localhost"
            assert tls.get_extra_info("peername") == peer.sock.getsockname()
            data = pattern(100_000)
            _, received = await asyncio.gather(peer.send_tls(data), peer.receive_tls(len(data)))
            assert received == data
            await peer.send_close_notify()
            await protocol.until_lost()
            assert protocol.reason is None
            assert protocol.events[-2:] == ["eof_received", "connection_lost"]

    run(main())


def test_server_upgrades(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        protocol = Echo()
        context = certificates.client()
        async with plain(protocol, context, server_hostname="localhost") as (transport, peer):
            loop: Any = asyncio.get_running_loop()
            tls, _ = await asyncio.gather(
                loop.start_tls(transport, protocol, certificates.server(), server_side=True),
                peer.handshake(),
            )
            protocol.transport = tls
            await peer.send_tls(b"secret")
            assert await peer.receive_tls(6) == b"secret"
            tls.close()
            await peer.unwrap()
            await protocol.until_lost()
            assert protocol.reason is None

    run(main())


def test_earlier_plain_writes_precede_the_handshake(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        protocol = Recorder()
        context = certificates.server()
        async with plain(protocol, context, 4096, server_side=True) as (transport, peer):
            # Below the high-water mark: applications drain before they upgrade.
            data = pattern(60_000)
            transport.write(data)
            loop: Any = asyncio.get_running_loop()
            upgrading = asyncio.ensure_future(
                loop.start_tls(
                    transport, protocol, certificates.client(), server_hostname="localhost"
                )
            )
            received = bytearray()
            while len(received) < len(data):
                chunk = peer.received()
                received += chunk or b""
                await asyncio.sleep(0)
            assert received[: len(data)] == data
            peer.incoming.write(received[len(data) :])
            await peer.handshake()
            tls = await upgrading
            tls.write(b"secret")
            assert await peer.receive_tls(6) == b"secret"

    run(main())


def test_bytes_behind_the_handshake_are_delivered(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        protocol = Recorder()
        context = certificates.client()
        async with plain(protocol, context, server_hostname="localhost") as (transport, peer):
            loop: Any = asyncio.get_running_loop()
            upgrading = asyncio.ensure_future(
                loop.start_tls(transport, protocol, certificates.server(), server_side=True)
            )
            await support.wait_until(lambda: transport.get_protocol() is not protocol)
            with contextlib.suppress(ssl.SSLWantReadError):
                peer.tls.do_handshake()
            await peer.send(peer.outgoing.read())
            await peer._more()
            peer.tls.do_handshake()
            # One segment: the client's Finished, and application data.
            await peer.send(peer.encrypted(b"first words"))
            await upgrading
            await support.wait_until(lambda: protocol.data)
            assert protocol.data == b"first words"

    run(main())


def test_handshake_that_a_stream_has_read_ahead(
    loop_name: str, run: Run, certificates: Certificates
) -> None:
    if loop_name == support.ORACLE and not KEEPS_READ_AHEAD:
        pytest.skip("this CPython forgets what was read ahead")

    async def main() -> None:
        ours, theirs = socket_pair()
        peer = TlsPeer(theirs, certificates.client(), server_hostname="localhost")
        loop: Any = asyncio.get_running_loop()
        done = loop.create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            assert await reader.readline() == b"STARTTLS\n"
            await writer.start_tls(certificates.server())
            writer.write(await reader.readexactly(6))
            writer.close()
            done.set_result(None)

        def factory() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(asyncio.StreamReader(), serve)

        with contextlib.suppress(ssl.SSLWantReadError):
            peer.tls.do_handshake()
        # One segment: the plain request, and the client's first message.
        await peer.send(b"STARTTLS\n" + peer.outgoing.read())
        await loop.connect_accepted_socket(factory, ours)
        await peer.handshake()
        await peer.send_tls(b"secret")
        assert await peer.receive_tls(6) == b"secret"
        await support.within(done)
        await peer.unwrap()
        peer.close()
        await until_closed(ours)

    run(main())


def test_stream_whose_peer_sends_much_at_once(run: Run, certificates: Certificates) -> None:
    """The writer has its reader's new transport before so much arrives that the reader pauses it."""
    data = pattern(MORE_THAN_THE_KERNEL_TAKES)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        writer.write(b"?")
        await writer.start_tls(certificates.server())
        while received := await reader.read(65536):
            writer.write(received)
            await writer.drain()
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1")
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"!")
            await reader.readexactly(1)
            await writer.start_tls(certificates.client(), server_hostname="localhost")
            writer.write(data)
            assert await reader.readexactly(len(data)) == data
            writer.close()
            await writer.wait_closed()

    run(main())


@pytest.mark.parametrize("size", [1, 20_000, 1_000_000])
def test_tls_over_tls(run: Run, certificates: Certificates, size: int) -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        ours, theirs = socket_pair()
        server, client = Echo(), Recorder()
        (outer_server, _), (outer_client, _) = await asyncio.gather(
            loop.connect_accepted_socket(lambda: server, theirs, ssl=certificates.server()),
            loop.create_connection(
                lambda: client, sock=ours, ssl=certificates.client(), server_hostname="localhost"
            ),
        )
        server.transport, tls = await asyncio.gather(
            loop.start_tls(outer_server, server, certificates.server(), server_side=True),
            loop.start_tls(
                outer_client, client, certificates.client(), server_hostname="localhost"
            ),
        )
        assert tls.get_extra_info("ssl_object") is not outer_client.get_extra_info("ssl_object")
        assert tls.get_extra_info("peername") == theirs.getsockname()
        data = pattern(size)
        tls.write(data)
        await support.wait_until(lambda: len(client.data) == size, timeout=30)
        assert client.data == data
        tls.close()
        await client.until_lost()
        await server.until_lost()
        assert client.reason is None
        assert server.reason is None
        assert server.events[-2:] == ["eof_received", "connection_lost"]
        await until_closed(ours)
        await until_closed(theirs)

    run(main())


@pytest.mark.parametrize("receiver", ["data_received", "buffer_updated"])
def test_tls_over_a_custom_transport(run: Run, certificates: Certificates, receiver: str) -> None:
    async def main() -> None:
        class Buffered(asyncio.BufferedProtocol):
            def __init__(self) -> None:
                self.buffer = bytearray(1000)
                self.data = bytearray()
                self.is_lost = False

            def get_buffer(self, sizehint: int) -> memoryview:
                return memoryview(self.buffer)

            def buffer_updated(self, nbytes: int) -> None:
                self.data += self.buffer[:nbytes]

            def connection_lost(self, exc: Exception | None) -> None:
                self.is_lost = True

        ours, theirs = socket_pair()
        loop: Any = asyncio.get_running_loop()
        relay = Relay(ours)
        peer = TlsPeer(theirs, certificates.server(), server_side=True)
        protocol: Any = Recorder() if receiver == "data_received" else Buffered()
        tls, _ = await asyncio.gather(
            loop.start_tls(relay, protocol, certificates.client(), server_hostname="localhost"),
            peer.handshake(),
        )
        assert tls.get_extra_info("relay") == "from the relay"
        data = pattern(50_000)
        tls.write(data)
        assert await peer.receive_tls(len(data)) == data
        await peer.send_tls(data)
        await support.wait_until(lambda: len(protocol.data) == len(data), timeout=30)
        assert protocol.data == data
        tls.close()
        await peer.unwrap()
        await support.wait_until(lambda: protocol.is_lost)
        assert relay.calls == ["pause_reading", "resume_reading", "close"]
        peer.close()

    run(main())


def test_abort_over_a_custom_transport(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        ours, theirs = socket_pair()
        loop: Any = asyncio.get_running_loop()
        relay = Relay(ours)
        peer = TlsPeer(theirs, certificates.server(), server_side=True)
        protocol = Recorder()
        tls, _ = await asyncio.gather(
            loop.start_tls(relay, protocol, certificates.client(), server_hostname="localhost"),
            peer.handshake(),
        )
        tls.abort()
        assert tls.is_closing()
        await protocol.until_lost()
        assert protocol.reason is None
        assert relay.calls[-1] in ("abort", "_force_close")
        peer.close()

    run(main())


def test_pause_reaches_the_transport_below(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        ours, theirs = socket_pair(SOCKET_BUFFER_BYTES)
        loop: Any = asyncio.get_running_loop()
        relay = Relay(ours)
        peer = TlsPeer(theirs, certificates.server(), server_side=True)
        protocol = Recorder()
        tls, _ = await asyncio.gather(
            loop.start_tls(relay, protocol, certificates.client(), server_hostname="localhost"),
            peer.handshake(),
        )
        relay.calls.clear()
        tls.pause_reading()
        assert not tls.is_reading()
        data = pattern(MORE_THAN_THE_KERNEL_TAKES)
        sending = asyncio.ensure_future(peer.send_tls(data))
        await support.wait_until(lambda: relay.calls == ["pause_reading"], "the pause below")
        assert tls.get_read_buffer_size() >= tls.get_read_buffer_limits()[1]
        assert not protocol.data
        tls.resume_reading()
        await sending
        await support.wait_until(lambda: len(protocol.data) == len(data), timeout=30)
        assert protocol.data == data
        assert relay.calls[:2] == ["pause_reading", "resume_reading"]
        tls.abort()
        await protocol.until_lost()
        peer.close()

    run(main())


def test_callbacks_run_in_the_connections_context(run: Run, certificates: Certificates) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    class Protocol(Echo):
        def note(self, event: str) -> None:
            super().note(f"{event} {variable.get()}")

    async def main() -> None:
        protocol = Protocol()
        variable.set("connecting")
        async with upgraded(protocol, certificates) as (tls, peer):
            variable.set("later")
            await peer.send_tls(b"x")
            assert await peer.receive_tls(1) == b"x"
            await peer.send_close_notify()
            await support.wait_until(lambda: len(protocol.events) == 4)
            assert tls.is_closing()
        assert protocol.events == [
            f"{event} connecting"
            for event in ("connection_made", "data_received", "eof_received", "connection_lost")
        ]

    run(main())


def test_protocol_is_replaced(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        first, second = Recorder(), Recorder()
        async with upgraded(first, certificates) as (tls, peer):
            await peer.send_tls(b"one")
            await support.wait_until(lambda: first.data == b"one")
            tls.set_protocol(second)
            assert tls.get_protocol() is second
            await peer.send_tls(b"two")
            await support.wait_until(lambda: second.data == b"two")
            tls.abort()
            await second.until_lost()
            assert first.events == ["connection_made", "data_received"]

    run(main())


def test_transport_that_was_closed_twice(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with upgraded(protocol, certificates) as (tls, peer):
            tls.close()
            tls.close()
            assert tls.is_closing()
            # It has dropped the connection, as in asyncio.
            tls.abort()
            with pytest.raises(AttributeError):
                tls.get_protocol()
            await peer.unwrap()
            await protocol.until_lost()
            assert protocol.reason is None

    run(main())


def test_upgraded_connection_sends_a_file(
    run: Run, certificates: Certificates, tmp_path: Any
) -> None:
    async def main() -> None:
        path = tmp_path / "file"
        data = pattern(300_000)
        path.write_bytes(data)
        loop: Any = asyncio.get_running_loop()
        async with upgraded(Recorder(), certificates) as (tls, peer):
            with path.open("rb") as file:
                count, received = await asyncio.gather(
                    loop.sendfile(tls, file), peer.receive_tls(len(data))
                )
            assert count == len(data)
            assert received == data
            with path.open("rb") as file, pytest.raises(RuntimeError, match="fallback is disabled"):
                await loop.sendfile(tls, file, fallback=False)

    run(main())


def test_end_below_is_seen_while_reading_is_paused(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with upgraded(protocol, certificates) as (tls, peer):
            await peer.send_tls(b"first")
            await support.wait_until(lambda: protocol.data == b"first")
            tls.pause_reading()
            await peer.send_tls(b" and last")
            peer.shut_down()
            await support.wait_until(lambda: tls.get_read_buffer_size() > 0)
            assert protocol.data == b"first"
            tls.resume_reading()
            await protocol.until_lost()
            assert protocol.data == b"first and last"
            assert protocol.events[-2:] == ["eof_received", "connection_lost"]

    run(main())


def test_writes_of_another_thread_go_out_in_order(
    run: Run, loop_name: str, certificates: Certificates
) -> None:
    if loop_name == support.ORACLE:
        pytest.skip("asyncio encrypts in the calling thread, and promises nothing")

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        protocol = Recorder()
        data = pattern(50_000)

        def elsewhere(tls: Any) -> None:
            for start in range(0, len(data), 500):
                tls.write(data[start : start + 250])
                tls.writelines([data[start + 250 : start + 400], data[start + 400 : start + 500]])
            tls.close()

        async with upgraded(protocol, certificates) as (tls, peer):
            await loop.run_in_executor(None, elsewhere, tls)
            assert await peer.receive_tls(len(data)) == data
            await peer.unwrap()
            await protocol.until_lost()
            assert protocol.reason is None

    run(main())
