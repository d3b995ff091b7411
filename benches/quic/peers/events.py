"""Stacks with aioquic's event interface: aioquic, qh3, aiopquic, our own compatibility layer.

Owns: the settings of each stack and how it is kept supplied with data. Called by: `peer`.

All have windows of 16 MiB and verify certificates. If a stack does not report when there is room,
its queue is checked after each of its transmissions, and refilled below `QUEUE_LOW`.
"""

# Uses private attributes of stacks that do not report the size of their queues.
# ruff: noqa: SLF001

import asyncio
import importlib
from collections.abc import Awaitable
from typing import Any

from workload import ALPN, STREAMS_MAX, WINDOW, Counts

# High- and low-water mark of the queue of a stack without back-pressure.
QUEUE_HIGH = 1024 * 1024
QUEUE_LOW = 512 * 1024
# The queue is checked once per this many bytes.
LOOK_BYTES = 64 * 1024
# High-water mark for stacks that report their queued datagrams.
DATAGRAMS_HIGH = 128
# UDP payload for an MTU of 1500: for stacks without path MTU discovery.
UDP_PAYLOAD = 1400


class Stack:
    """One of the packages."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.asyncio = importlib.import_module(f"{package}.asyncio")
        self.configuration = importlib.import_module(
            f"{package}.quic.configuration" if self.is_peer else f"{package}.configuration"
        )
        events = importlib.import_module(
            f"{package}.quic.events" if self.is_peer else f"{package}.events"
        )
        base = importlib.import_module(f"{package}.asyncio.protocol").QuicConnectionProtocol
        self.server_class = server_class(base, events)
        self.client_class = client_class(base, events, CLIENT_STREAMS[package])
        self.client_configuration: Any = None

    @property
    def is_peer(self) -> bool:
        """Whether it is a third-party package."""
        return self.package != "ringloop.quic"

    async def serve(self, port: int, cert: str, key: str, counts: Counts) -> None:
        """Serve forever."""
        configuration = self.configure(is_client=False)
        configuration.load_cert_chain(cert, key)
        await self.asyncio.serve(
            "127.0.0.1",
            port,
            configuration=configuration,
            create_protocol=lambda *args, **named: self.server_class(counts, *args, **named),
        )

    async def connect(self, port: int, ca: str) -> "Any":
        """Open a connection."""
        if self.client_configuration is None:
            self.client_configuration = self.configure(is_client=True)
            self.client_configuration.server_name = "localhost"
            self.client_configuration.load_verify_locations(ca)
        manager = self.asyncio.connect(
            "127.0.0.1",
            port,
            configuration=self.client_configuration,
            create_protocol=self.client_class,
        )
        made = await manager.__aenter__()
        made.manager = manager
        return made

    def configure(self, *, is_client: bool) -> Any:
        """The best settings found; `benches/README.md` says what else was tried."""
        settings: dict[str, Any] = {
            "is_client": is_client,
            "alpn_protocols": [ALPN],
            "max_data": WINDOW,
            "max_stream_data": WINDOW,
            "max_datagram_frame_size": 65535,
        }
        match self.package:
            case "aioquic" | "qh3":
                settings["max_datagram_size"] = UDP_PAYLOAD
            case "aiopquic":
                settings["max_connections"] = 4096
                settings["max_streams_bidi"] = STREAMS_MAX
        return self.configuration.QuicConfiguration(**settings)


def server_class(base: type, events: Any) -> type:  # noqa: C901 - a class
    """Create the server's protocol class from a package's base class."""
    StreamData, Datagram, Handshake = (  # noqa: N806 - classes
        events.StreamDataReceived,
        events.DatagramFrameReceived,
        events.HandshakeCompleted,
    )

    class Server(base):  # type: ignore[misc]
        def __init__(self, counts: Counts, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            self.counts = counts
            self.kinds: dict[int, int] = {}

        def quic_event_received(self, event: Any) -> None:
            kind = type(event)
            if kind is StreamData:
                self.stream_data(event.stream_id, event.data, event.end_stream)
            elif kind is Datagram:
                self.counts.datagrams += 1
            elif kind is Handshake:
                self.counts.handshakes += 1

        def stream_data(self, stream_id: int, data: Any, is_end: bool) -> None:
            kind = self.kinds.get(stream_id)
            if kind is None:
                if not data:
                    return
                kind = self.kinds[stream_id] = data[0]
                data = data[1:]
            if kind == 0x73:
                self.counts.bytes += len(data)
            elif kind == 0x65:
                self._quic.send_stream_data(stream_id, bytes(data), is_end)
            elif is_end:
                self._quic.send_stream_data(stream_id, self.counts.snapshot(), True)
            if is_end:
                del self.kinds[stream_id]

    return Server


def client_class(base: type, events: Any, stream_class: type) -> type:  # noqa: C901 - a class
    """Create the client's protocol class from a package's base class."""
    StreamData, Terminated = events.StreamDataReceived, events.ConnectionTerminated  # noqa: N806

    class Client(base):  # type: ignore[misc]
        manager: Any

        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            self.streams: dict[int, ClientStream] = {}
            self.room: asyncio.Future[None] | None = None
            self.has_room = lambda: True

        def quic_event_received(self, event: Any) -> None:
            if type(event) is StreamData:
                stream = self.streams.get(event.stream_id)
                if stream is not None:
                    stream.feed(event.data, event.end_stream)
                    if event.end_stream:
                        del self.streams[event.stream_id]
            elif type(event) is Terminated:
                for stream in self.streams.values():
                    stream.feed(b"", is_end=True)

        def transmit(self) -> None:
            super().transmit()
            room = self.room
            if room is not None and self.has_room():
                self.room = None
                if not room.done():
                    room.set_result(None)

        async def wait_for_room(self, has_room: Any) -> None:
            self.has_room = has_room
            self.room = asyncio.get_running_loop().create_future()
            await self.room

        async def open(self) -> ClientStream:
            stream = stream_class(self, await stream_class.next_id(self._quic))
            self.streams[stream.stream_id] = stream
            return stream

        async def send_datagrams(self, data: bytes, count: int) -> int:
            return await stream_class.send_datagrams(self, data, count)

        def end(self) -> Awaitable[None]:
            return self.manager.__aexit__(None, None, None)

    return Client


class ClientStream:
    """A stream of a client; subclasses differ in how they send."""

    def __init__(self, protocol: Any, stream_id: int) -> None:
        self.protocol = protocol
        self.stream_id = stream_id
        self.received = bytearray()
        self.is_ended = False
        self.waiter: asyncio.Future[None] | None = None
        self.unlooked = 0

    @staticmethod
    async def next_id(quic: Any) -> int:
        """The number of the next stream that may be opened."""
        number: int = quic.get_next_available_stream_id()
        return number

    def feed(self, data: Any, is_end: bool) -> None:
        """Add received data."""
        self.received += data
        self.is_ended |= is_end
        waiter = self.waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def more(self) -> None:
        """Wait for data."""
        self.waiter = asyncio.get_running_loop().create_future()
        await self.waiter

    async def read(self, size: int) -> bytes:
        """Receive exactly `size` bytes."""
        while len(self.received) < size:
            if self.is_ended:
                raise ConnectionError("the stream has ended")
            await self.more()
        data = bytes(self.received[:size])
        del self.received[:size]
        return data

    async def read_all(self) -> bytes:
        """Receive until EOF."""
        while not self.is_ended:
            await self.more()
        return bytes(self.received)

    async def write(self, data: bytes) -> None:
        """Send; wait if the queue is long."""
        protocol = self.protocol
        protocol._quic.send_stream_data(self.stream_id, data)
        protocol._transmit_soon()
        self.unlooked += len(data)
        if self.unlooked >= LOOK_BYTES:
            self.unlooked = 0
            if self.queued() > QUEUE_HIGH:
                await protocol.wait_for_room(lambda: self.queued() < QUEUE_LOW)

    async def finish(self, data: bytes) -> None:
        """Send the last data."""
        self.protocol._quic.send_stream_data(self.stream_id, data, True)
        self.protocol._transmit_soon()

    def queued(self) -> int:
        """Bytes queued in the stack."""
        raise NotImplementedError

    @classmethod
    async def send_datagrams(cls, protocol: Any, data: bytes, count: int) -> int:
        """Send some datagrams."""
        for _ in range(count):
            protocol._quic.send_datagram_frame(data)
        protocol.transmit()
        await asyncio.sleep(0)
        return count


class AioquicStream(ClientStream):
    """aioquic does not report its queue; its private buffer shows it."""

    def queued(self) -> int:
        return len(self.protocol._quic._streams[self.stream_id].sender._buffer)

    @classmethod
    async def send_datagrams(cls, protocol: Any, data: bytes, count: int) -> int:
        await super().send_datagrams(protocol, data, count)
        pending = protocol._quic._datagrams_pending
        if len(pending) > DATAGRAMS_HIGH:
            await protocol.wait_for_room(lambda: len(pending) < DATAGRAMS_HIGH // 2)
        return count


class Qh3Stream(ClientStream):
    """qh3 reports its queue; beyond the peer's stream limit it refuses, and wastes the number."""

    def queued(self) -> int:
        return self.protocol._quic.get_send_buffer_size(self.stream_id)

    @staticmethod
    async def next_id(quic: Any) -> int:
        while quic.get_next_available_stream_id() // 4 >= quic.max_concurrent_bidi_streams:  # noqa: ASYNC110
            await asyncio.sleep(0)
        number: int = quic.get_next_available_stream_id()
        return number


class RingloopStream(Qh3Stream):
    """Our compatibility layer: it transmits by itself, so the queue is polled."""

    async def write(self, data: bytes) -> None:
        self.protocol._quic.send_stream_data(self.stream_id, data)
        self.protocol._transmit_soon()
        self.unlooked += len(data)
        if self.unlooked >= LOOK_BYTES:
            self.unlooked = 0
            while self.queued() > QUEUE_LOW:  # noqa: ASYNC110
                await asyncio.sleep(0.0005)


class AiopquicStream(ClientStream):
    """aiopquic has back-pressure of its own."""

    async def write(self, data: bytes) -> None:
        await self.protocol._quic.send_stream_data_drained(self.stream_id, data)

    async def finish(self, data: bytes) -> None:
        quic = self.protocol._quic
        try:
            quic.send_stream_data(self.stream_id, data, True)
        except BufferError:
            await quic.send_stream_data_drained(self.stream_id, data, True)

    @classmethod
    async def send_datagrams(cls, protocol: Any, data: bytes, count: int) -> int:
        quic = protocol._quic
        for _ in range(count):
            while not quic.send_datagram_frame(data):
                await quic.get_datagram_tx_drain_event().wait()
        await asyncio.sleep(0)
        return count


CLIENT_STREAMS = {
    "aioquic": AioquicStream,
    "qh3": Qh3Stream,
    "aiopquic": AiopquicStream,
    "ringloop.quic": RingloopStream,
}
