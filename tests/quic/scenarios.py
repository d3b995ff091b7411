"""Building blocks of aioquic-style applications, for any package with that interface.

Owns: a package's modules under the names that applications import, both ends with their events.
Called by: `test_scenarios`, on aioquic and on ours.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.tls import Certificates

# aioquic's writers warn when they are dropped, and finish streams that are already finished.
AIOQUIC = pytest.param(
    "aioquic",
    marks=[
        pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
        pytest.mark.filterwarnings("ignore::ResourceWarning"),
    ],
)
# If it is required, its absence is an error.
WITH_AIOQUIC = os.environ.get("RINGLOOP_TEST_AIOQUIC") or importlib.util.find_spec("aioquic")


class Shape:
    """The modules of a package, under the names that its users import."""

    def __init__(self, package: str) -> None:
        inner = {"ringloop": "ringloop.quic", "aioquic": "aioquic.quic"}[package]
        outer = {"ringloop": "ringloop.quic", "aioquic": "aioquic"}[package]
        names = ("configuration", "connection", "events", "logger", "packet")
        self.is_ours = package == "ringloop"
        self.asyncio: Any = importlib.import_module(f"{outer}.asyncio")
        self.buffer: Any = importlib.import_module(f"{outer}.buffer")
        self.tls: Any = importlib.import_module(f"{outer}.tls")
        for name in names:
            setattr(self, name, importlib.import_module(f"{inner}.{name}"))

    configuration: Any
    connection: Any
    events: Any
    logger: Any
    packet: Any


def client_side(shape: Shape, certificates: Certificates, **fields: Any) -> Any:
    configuration = shape.configuration.QuicConfiguration(
        is_client=True, alpn_protocols=["scenario"], server_name="localhost", **fields
    )
    configuration.load_verify_locations(cafile=str(certificates.authority))
    return configuration


def server_side(shape: Shape, certificates: Certificates, **fields: Any) -> Any:
    configuration = shape.configuration.QuicConfiguration(
        is_client=False, alpn_protocols=["scenario"], **fields
    )
    configuration.load_cert_chain(*certificates.issue())
    return configuration


def recording(shape: Shape, seen: list[Any], made: list[Any] | None = None) -> Any:
    """A protocol class that records its events; its base gets them if there are readers."""

    class Recording(shape.asyncio.QuicConnectionProtocol):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            super().__init__(*arguments, **keywords)
            self.has_readers = keywords.get("stream_handler") is not None
            if made is not None:
                made.append(self)

        async def create_stream(self, *arguments: Any, **keywords: Any) -> Any:
            self.has_readers = True
            return await super().create_stream(*arguments, **keywords)

        def quic_event_received(self, event: Any) -> None:
            seen.append(event)
            if self.has_readers:
                super().quic_event_received(event)

    return Recording


class Both:
    """What a scenario works with: the client's protocol, both ends' events, the server's protocols."""

    def __init__(self) -> None:
        self.up: list[Any] = []
        self.down: list[Any] = []
        self.servers: list[Any] = []
        self.client: Any = None
        self.port = 0

    def kinds(self, *, at_server: bool) -> list[str]:
        """The kinds of events without those of connection ids; consecutive equal kinds count once."""
        names: list[str] = []
        for event in self.up if at_server else self.down:
            name = type(event).__name__
            if not name.startswith("ConnectionId") and names[-1:] != [name]:
                names.append(name)
        return names

    def found(self, kind: type, *, at_server: bool) -> list[Any]:
        return [event for event in (self.up if at_server else self.down) if isinstance(event, kind)]


@asynccontextmanager
async def served(
    shape: Shape, certificates: Certificates, both: Both, **keywords: Any
) -> AsyncIterator[Any]:
    keywords.setdefault("configuration", server_side(shape, certificates))
    keywords.setdefault("create_protocol", recording(shape, both.up, both.servers))
    server = await shape.asyncio.serve("127.0.0.1", 0, **keywords)
    both.port = server._transport.get_extra_info("sockname")[1]
    try:
        yield server
    finally:
        server.close()
        if hasattr(server, "wait_closed"):
            await server.wait_closed()
        for protocol in both.servers:
            if protocol._timer is not None:
                protocol._timer.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def dialled(shape: Shape, certificates: Certificates, both: Both, **keywords: Any) -> Any:
    keywords.setdefault("configuration", client_side(shape, certificates))
    keywords.setdefault("create_protocol", recording(shape, both.down))
    return shape.asyncio.connect("127.0.0.1", both.port, **keywords)


@asynccontextmanager
async def connected(
    shape: Shape,
    certificates: Certificates,
    fields: dict[str, Any] | None = None,
    client: dict[str, Any] | None = None,
    **keywords: Any,
) -> AsyncIterator[Both]:
    both, fields = Both(), fields or {}
    configuration = server_side(shape, certificates, **fields)
    async with served(shape, certificates, both, configuration=configuration, **keywords):
        configuration = client_side(shape, certificates, **fields)
        async with dialled(
            shape, certificates, both, configuration=configuration, **(client or {})
        ) as both.client:
            yield both


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.read())
    writer.write_eof()


def echo_handler(tasks: list[Any]) -> Any:
    """A `stream_handler` for aioquic: it is called, and starts a task."""

    def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.ensure_future(echo(reader, writer)))

    return handle


# --- without I/O ----------------------------------------------------------------------------------

CLIENT, SERVER = ("192.0.2.1", 40000), ("192.0.2.2", 4433)


class SansIO:
    """A client and a server without I/O, a clock, and the events of both."""

    def __init__(self, shape: Shape, certificates: Certificates) -> None:
        self.now = 10.0
        self.seen: dict[str, list[Any]] = {"client": [], "server": []}
        make = shape.connection.QuicConnection
        client = make(configuration=client_side(shape, certificates))
        client.connect(SERVER, now=self.now)
        first = client.datagrams_to_send(now=self.now)
        header = shape.packet.pull_quic_header(shape.buffer.Buffer(data=first[0][0]), 8)
        assert header.packet_type == shape.packet.QuicPacketType.INITIAL
        assert header.destination_cid == client.original_destination_connection_id
        server = make(
            configuration=server_side(shape, certificates),
            original_destination_connection_id=header.destination_cid,
        )
        for data, address in first:
            assert address == SERVER
            server.receive_datagram(data, CLIENT, now=self.now)
        self.client, self.server = client, server

    def exchange(self) -> None:
        """Deliver what both have to send."""
        ends = ((self.server, self.client, SERVER), (self.client, self.server, CLIENT))
        for _ in range(6):
            self.now += 0.01
            for source, target, origin in ends:
                for data, _ in source.datagrams_to_send(now=self.now):
                    target.receive_datagram(data, origin, now=self.now)
            self.turn()

    def turn(self) -> None:
        """Handle due timers, and take the events."""
        for name, end in (("client", self.client), ("server", self.server)):
            if (timer := end.get_timer()) is not None and timer <= self.now:
                end.handle_timer(now=self.now)
            while (event := end.next_event()) is not None:
                self.seen[name].append(event)

    def wait(self) -> None:
        """Advance the clock until nothing is due any more."""
        for _ in range(20):
            timers = [self.client.get_timer(), self.server.get_timer()]
            self.now = max([self.now, *[timer for timer in timers if timer is not None]])
            self.turn()
