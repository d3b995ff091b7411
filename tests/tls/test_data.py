"""Data through TLS: complete, in order, and as it was when written."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support.tcp import (
    MORE_THAN_THE_KERNEL_TAKES,
    SOCKET_BUFFER_BYTES,
    Recorder,
    pattern,
    serving,
)
from tests.support.tls import (
    RECORD_LEN_MAX,
    TlsPeer,
    accepted_tls,
    connected_tls,
    handshaking,
    versions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.support.tls import Certificates

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

pytestmark = pytest.mark.usefixtures("tls_engine")

SIZES = [1, 1000, RECORD_LEN_MAX, RECORD_LEN_MAX + 1, 100_000, 3_000_000]


class Echo(Recorder):
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.write(data)


class Buffered(asyncio.BufferedProtocol):
    """Receives into one small buffer."""

    def __init__(self, size: int) -> None:
        self.buffer = bytearray(size)
        self.data = bytearray()
        self.counts: list[int] = []
        self.is_lost = False
        self.ended = False

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes: int) -> None:
        assert 0 < nbytes <= len(self.buffer)
        self.counts.append(nbytes)
        self.data += self.buffer[:nbytes]

    def eof_received(self) -> None:
        self.ended = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("version", versions(), ids=str)
def test_echo_by_a_client(
    run: Run, certificates: Certificates, size: int, version: ssl.TLSVersion
) -> None:
    async def main() -> None:
        protocol = Echo()
        context = certificates.client()
        context.maximum_version = version
        async with connected_tls(protocol, certificates, ssl=context) as (_, peer):
            for seed in range(2):
                data = pattern(size, seed)
                sent, received = await asyncio.gather(peer.send_tls(data), peer.receive_tls(size))
                assert sent is None
                assert received == data
            assert protocol.events == ["connection_made", "data_received"]

    run(main())


@pytest.mark.parametrize("size", SIZES)
def test_echo_by_a_server(run: Run, certificates: Certificates, size: int) -> None:
    async def main() -> None:
        async with accepted_tls(Echo(), certificates) as (_, peer):
            data = pattern(size)
            _, received = await asyncio.gather(peer.send_tls(data), peer.receive_tls(size))
            assert received == data

    run(main())


@pytest.mark.parametrize("size", [1, 100, RECORD_LEN_MAX, 300_000])
def test_buffered_protocol_gets_every_byte(run: Run, certificates: Certificates, size: int) -> None:
    async def main() -> None:
        protocol = Buffered(size)
        async with connected_tls(protocol, certificates) as (_, peer):
            data = pattern(70_000)
            await peer.send_tls(data)
            await support.wait_until(lambda: len(protocol.data) == len(data), timeout=30)
            assert protocol.data == data

    run(main())


def test_records_of_one_segment_are_delivered_together(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected_tls(protocol, certificates) as (_, peer):
            await peer.send(peer.encrypted(b"one", b"two", b"three"))
            await support.wait_until(lambda: protocol.data)
            assert protocol.chunks == [b"onetwothree"]

    run(main())


def test_fragmented_record_is_delivered_when_complete(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected_tls(protocol, certificates) as (_, peer):
            records = peer.encrypted(b"one", pattern(5000))
            first_len = len(peer.encrypted(b"one"))
            for index in range(60):
                await peer.send(records[index : index + 1])
                await asyncio.sleep(0)
            await support.wait_until(lambda: protocol.data)
            assert first_len < 60
            assert protocol.chunks == [b"one"]
            await peer.send(records[60:])
            await support.wait_until(lambda: len(protocol.chunks) == 2)
            assert protocol.chunks[1] == pattern(5000)

    run(main())


def test_data_sent_with_the_handshake_follows_connection_made(
    run: Run, certificates: Certificates
) -> None:
    """The peer's last flight and its first data arrive in one segment."""

    async def main() -> None:
        context = certificates.client()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        protocol = Recorder()
        async with handshaking(protocol, context) as (connecting, plain):
            peer = TlsPeer(plain.sock, certificates.server(), server_side=True)
            with pytest.raises(ssl.SSLWantReadError):
                peer.tls.do_handshake()
            # Its hello and certificate, up to done; then the last flight is withheld.
            while True:
                await peer._more()
                try:
                    peer.tls.do_handshake()
                except ssl.SSLWantReadError:
                    await peer._flush()
                else:
                    break
            await peer.send(peer.encrypted(b"first"))
            await support.within(connecting)
            await support.wait_until(lambda: protocol.data)
            assert protocol.events == ["connection_made", "data_received"]
            assert protocol.data == b"first"
            protocol.transport.abort()
            await protocol.until_lost()

    run(main())


def test_writes_in_connection_made_are_sent(run: Run, certificates: Certificates) -> None:
    class Greets(Recorder):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self.transport.write(b"220 ")
            self.transport.write(b"hello")

    async def main() -> None:
        async with accepted_tls(Greets(), certificates) as (_, peer):
            assert await peer.receive_tls(9) == b"220 hello"

    run(main())


def test_many_small_writes_of_one_iteration_arrive_in_order(
    run: Run, certificates: Certificates
) -> None:
    async def main() -> None:
        async with connected_tls(Recorder(), certificates) as (transport, peer):
            parts = [b"%d," % number for number in range(3000)]
            for part in parts:
                transport.write(part)
            whole = b"".join(parts)
            assert await peer.receive_tls(len(whole)) == whole

    run(main())


def test_writelines_sends_all_of_them(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with connected_tls(Recorder(), certificates) as (transport, peer):
            transport.writelines([b"one", bytearray(b"two"), memoryview(b"three"), b""])
            transport.writelines([])
            assert await peer.receive_tls(11) == b"onetwothree"

    run(main())


def test_buffers_are_sent_as_they_were_when_written(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with connected_tls(Recorder(), certificates) as (transport, peer):
            data = bytearray(pattern(40_000))
            transport.write(data)
            transport.write(memoryview(data)[10:20])
            before = bytes(data)
            data[:] = bytes(len(data))
            assert await peer.receive_tls(40_000) == before
            assert await peer.receive_tls(10) == before[10:20]

    run(main())


def test_views_of_other_items_are_sent_as_bytes(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with connected_tls(Recorder(), certificates) as (transport, peer):
            matrix = memoryview(pattern(24)).cast("B", (2, 12))
            transport.write(matrix.cast("B"))
            assert await peer.receive_tls(24) == pattern(24)

    run(main())


@pytest.mark.parametrize("data", ["text", None, 7])
def test_tls_write_refuses_other_types(run: Run, certificates: Certificates, data: Any) -> None:
    async def main() -> None:
        async with connected_tls(Recorder(), certificates) as (transport, peer):
            with pytest.raises(TypeError) as refused:
                transport.write(data)
            assert str(refused.value) == (
                f"data: expecting a bytes-like instance, got {type(data).__name__}"
            )
            transport.write(b"")
            transport.write(b"alive")
            assert await peer.receive_tls(5) == b"alive"

    run(main())


def test_paused_reading_holds_the_bytes(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected_tls(protocol, certificates) as (transport, peer):
            assert transport.is_reading()
            transport.pause_reading()
            assert not transport.is_reading()
            await peer.send_tls(b"held")
            # A round trip on a second connection: by then the first would have been delivered.
            async with connected_tls(Echo(), certificates) as (_, other):
                await other.send_tls(b"x")
                assert await other.receive_tls(1) == b"x"
            assert protocol.data == b""
            transport.resume_reading()
            assert transport.is_reading()
            await support.wait_until(lambda: protocol.data)
            assert protocol.data == b"held"

    run(main())


def test_paused_reading_stops_the_peer(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected_tls(protocol, certificates, SOCKET_BUFFER_BYTES) as (transport, peer):
            transport.pause_reading()
            data = pattern(MORE_THAN_THE_KERNEL_TAKES)
            sending = asyncio.ensure_future(peer.send_tls(data))
            async with connected_tls(Echo(), certificates) as (_, other):
                await other.send_tls(b"x")
                assert await other.receive_tls(1) == b"x"
            assert not sending.done()
            transport.resume_reading()
            await support.within(sending, 30)
            await support.wait_until(lambda: len(protocol.data) == len(data), timeout=30)
            assert protocol.data == data

    run(main())


def test_pause_inside_data_received_keeps_later_data(run: Run, certificates: Certificates) -> None:
    class Pauses(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.pause_reading()

    async def main() -> None:
        protocol = Pauses()
        async with connected_tls(protocol, certificates) as (transport, peer):
            for number in range(3):
                await peer.send_tls(b"%d" % number)
            await support.wait_until(lambda: protocol.data)
            while len(protocol.data) < 3:
                transport.resume_reading()
                await asyncio.sleep(0)
            assert protocol.data == b"012"
            assert not transport.is_reading()

    run(main())


def test_protocol_is_paused_and_resumed_by_its_limits(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with connected_tls(protocol, certificates, SOCKET_BUFFER_BYTES) as (transport, peer):
            transport.set_write_buffer_limits(high=64 * 1024, low=16 * 1024)
            assert transport.get_write_buffer_limits() == (16 * 1024, 64 * 1024)
            data = pattern(65536)
            written = bytearray()
            while "pause_writing" not in protocol.events:
                transport.write(data)
                written += data
                assert len(written) < 64 << 20
            assert transport.get_write_buffer_size() > 0
            assert "resume_writing" not in protocol.events
            assert await peer.receive_tls(len(written)) == written
            await support.wait_until(lambda: "resume_writing" in protocol.events)
            await support.wait_until(lambda: transport.get_write_buffer_size() == 0)
            assert protocol.events.count("pause_writing") == 1

    run(main())


def test_limits_are_checked_and_reported(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        async with connected_tls(Recorder(), certificates) as (transport, _):
            assert transport.get_write_buffer_limits() == (128 * 1024, 512 * 1024)
            with pytest.raises(ValueError, match="must be >="):
                transport.set_write_buffer_limits(high=10, low=20)
            transport.set_write_buffer_limits(high=400)
            assert transport.get_write_buffer_limits() == (100, 400)
            assert transport.get_read_buffer_limits() == (64 * 1024, 256 * 1024)
            assert transport.get_read_buffer_size() == 0
            assert transport.can_write_eof() is False
            with pytest.raises(NotImplementedError):
                transport.write_eof()

    run(main())


def test_new_protocol_gets_later_data(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        first, second = Recorder(), Buffered(64)
        async with connected_tls(first, certificates) as (transport, peer):
            await peer.send_tls(b"one")
            await support.wait_until(lambda: first.data)
            transport.set_protocol(second)
            assert transport.get_protocol() is second
            await peer.send_tls(b"two")
            await support.wait_until(lambda: second.data)
            assert (bytes(first.data), bytes(second.data)) == (b"one", b"two")
        await support.wait_until(lambda: second.is_lost)
        assert not first.is_lost

    run(main())


def test_both_directions_at_once_with_flow_control(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        size = 8 << 20
        patterns = pattern(size, 0), pattern(size, 1)

        async def exchange(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seed: int
        ) -> None:
            async def send() -> None:
                for start in range(0, size, 50_000):
                    writer.write(patterns[seed][start : start + 50_000])
                    await writer.drain()

            _, received = await asyncio.gather(send(), reader.readexactly(size))
            assert received == patterns[1 - seed]
            writer.close()
            await writer.wait_closed()
            done.append(seed)

        done: list[int] = []
        server = await asyncio.start_server(
            lambda reader, writer: exchange(reader, writer, 1),
            "127.0.0.1",
            0,
            ssl=certificates.server(),
        )
        async with server:
            reader, writer = await asyncio.open_connection(
                *server.sockets[0].getsockname(),
                ssl=certificates.client(),
                server_hostname="localhost",
            )
            await support.within(exchange(reader, writer, 0), 50)
            await support.wait_until(lambda: len(done) == 2)

    run(main())


def test_file_is_sent_through_tls(run: Run, certificates: Certificates, tmp_path: Any) -> None:
    (tmp_path / "file").write_bytes(pattern(300_000))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with connected_tls(Recorder(), certificates) as (transport, peer):
            with (tmp_path / "file").open("rb") as file:
                sending = asyncio.ensure_future(loop.sendfile(transport, file, 1000))
                assert await peer.receive_tls(299_000) == pattern(300_000)[1000:]
                assert await support.within(sending) == 299_000
                with pytest.raises(RuntimeError, match="fallback is disabled"):
                    await loop.sendfile(transport, file, fallback=False)

    run(main())


async def command_line_client(
    address: tuple[str, int], certificates: Certificates, *options: str
) -> asyncio.subprocess.Process:
    """Start `openssl s_client`, which can do what the `ssl` module cannot."""
    return await asyncio.create_subprocess_exec(
        "openssl",
        *("s_client", "-connect", f"{address[0]}:{address[1]}", *options),
        *("-CAfile", str(certificates.authority), "-servername", "localhost"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


def test_keys_are_updated_in_the_middle(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        protocol = Echo()
        async with serving(lambda: protocol, ssl=certificates.server()) as (_, address):
            client = await command_line_client(address, certificates, "-tls1_3")
            assert client.stdin is not None
            assert client.stdout is not None
            client.stdin.write(b"before\n")
            await support.within(client.stdout.readuntil(b"\nbefore\n"))
            # It updates its keys, and requests an update of ours.
            client.stdin.write(b"K\n")
            await support.within(client.stdout.readuntil(b"KEYUPDATE"))
            client.stdin.write(b"after\n")
            await support.within(client.stdout.readuntil(b"after\n"))
            client.stdin.close()
            await support.within(client.stdout.read())
            await support.within(client.wait())
            await protocol.until_lost()
            assert protocol.data == b"before\nafter\n"

    run(main())


def test_renegotiation_is_refused(run: Run, certificates: Certificates) -> None:
    async def main() -> None:
        protocol = Recorder()
        async with serving(lambda: protocol, ssl=certificates.server()) as (_, address):
            client = await command_line_client(address, certificates, "-tls1_2")
            assert client.stdin is not None
            client.stdin.write(b"before\n")
            await support.wait_until(lambda: protocol.data == b"before\n")
            client.stdin.write(b"R\n")
            # The refusal ends this client.
            assert client.stdout is not None
            said = await support.within(client.stdout.read())
            await support.within(client.wait())
            client.stdin.close()
            assert b"no renegotiation" in said
            await protocol.until_lost()
            assert protocol.data == b"before\n"

    run(main())
