"""Good clients of the stream servers and of the datagram server."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeAlias

from tests.soak.soak import HEADER, material

if TYPE_CHECKING:
    from tests.soak.soak import Part, Soak

Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter
DATAGRAMS_IN_FLIGHT = 6
DATAGRAM_TRIES = 20
DATAGRAM_SECONDS = 0.5


def request(soak: Soak, most: int = 300_000) -> tuple[bytes, bytes]:
    """Make up a request, and the response that it must get."""
    seed, wanted = soak.rng.randrange(1 << 40), soak.length(most)
    body = material(seed, soak.length(most))
    return HEADER.pack(seed, len(body), wanted) + body, material(seed + 1, wanted)


async def opened(soak: Soak, name: str, address: Any = None) -> tuple[Reader, Writer]:
    """Connect to a server by its name, by streams; `address` is a relay's instead."""
    address = address or soak.addresses[name]
    if name.startswith("unix"):
        return await asyncio.open_unix_connection(address)
    context = soak.client_context if name.startswith("tls") else None
    hostname = "localhost" if context else None
    return await asyncio.open_connection(*address, ssl=context, server_hostname=hostname)


async def closed(writer: Writer) -> None:
    """Close, and wait for the end, which may be an error where the peer was cut off."""
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def ask(soak: Soak, reader: Reader, writer: Writer, where: str, most: int = 300_000) -> None:
    """Send one request in pieces, and compare its response."""
    sent, wanted = request(soak, most)
    while sent:
        size = soak.rng.choice((1, 100, 5000, 70_000, len(sent)))
        writer.write(sent[:size])
        sent = sent[size:]
        if soak.rng.random() < 0.5:
            await writer.drain()
    soak.same(await reader.readexactly(len(wanted)), wanted, where)


async def talk(soak: Soak, name: str) -> None:
    """Open, ask some times, close."""
    reader, writer = await opened(soak, name)
    try:
        for _ in range(soak.rng.randint(1, 4)):
            await ask(soak, reader, writer, name)
    finally:
        await closed(writer)


class Asking(asyncio.Protocol):
    """A client that sends all its requests at once, and pauses reading at random."""

    def __init__(self, soak: Soak, where: str) -> None:
        self.soak = soak
        self.where = where
        self.wanted = b""
        self.got = 0
        self.transport: Any = None
        self.ended: asyncio.Future[None] = soak.loop.create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        for _ in range(self.soak.rng.randint(1, 4)):
            sent, wanted = request(self.soak)
            self.wanted += wanted
            transport.write(sent)

    def data_received(self, data: bytes) -> None:
        end = self.got + len(data)
        try:
            self.soak.same(data, self.wanted[self.got : end], self.where)
        except Exception as error:
            self.end(error)
            self.transport.abort()
            return
        self.got = end
        if end == len(self.wanted):
            self.transport.close()
        elif self.soak.rng.random() < 0.1:
            self.transport.pause_reading()
            self.soak.loop.call_later(self.soak.rng.random() / 50, self.resume)

    def resume(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        if self.got < len(self.wanted):
            cut = f"{self.where}: ended at {self.got} of {len(self.wanted)}"
            self.end(error or ConnectionError(cut))
        else:
            self.end(None)

    def end(self, error: Exception | None) -> None:
        if self.ended.done():
            return
        if error is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error)


async def talk_by_protocol(soak: Soak, name: str) -> None:
    """Open with a protocol, and wait for its end."""
    protocol = Asking(soak, name)
    address = soak.addresses[name]
    if name.startswith("unix"):
        await soak.loop.create_unix_connection(lambda: protocol, address)
    else:
        context = soak.client_context if name.startswith("tls") else None
        await soak.loop.create_connection(
            lambda: protocol,
            *address,
            ssl=context,
            server_hostname="localhost" if context else None,
        )
    await protocol.ended


async def tcp(soak: Soak) -> None:
    name = soak.rng.choice(("tcp", "tcp-buffered", "tcp-streams"))
    await soak.rng.choice((talk, talk_by_protocol))(soak, name)


async def tls(soak: Soak) -> None:
    name = soak.rng.choice(("tls", "tls-streams"))
    await soak.rng.choice((talk, talk_by_protocol))(soak, name)


async def unix(soak: Soak) -> None:
    name = soak.rng.choice(("unix", "unix-streams"))
    await soak.rng.choice((talk, talk_by_protocol))(soak, name)


async def starttls(soak: Soak) -> None:
    reader, writer = await opened(soak, "starttls")
    try:
        writer.write(b"STARTTLS\n")
        soak.same(await reader.readexactly(6), b"go on\n", "starttls")
        await writer.start_tls(soak.client_context, server_hostname="localhost")
    except BaseException:
        # After a handshake that failed `wait_closed` may wait for ever, on stock asyncio too.
        writer.transport.abort()
        raise
    try:
        await ask(soak, reader, writer, "starttls")
    finally:
        await closed(writer)


async def kept_tls(soak: Soak) -> None:
    """Ask on a connection that stays open."""
    lock = soak.kept.setdefault("tls lock", asyncio.Lock())
    async with lock:
        reader, writer = soak.kept.pop("tls", None) or await opened(soak, "tls")
        try:
            await ask(soak, reader, writer, "kept tls")
        except BaseException:
            await closed(writer)
            raise
        soak.kept["tls"] = reader, writer


class DatagramClient(asyncio.DatagramProtocol):
    """Collects the responses by their seed."""

    def __init__(self) -> None:
        self.responses: dict[int, bytes] = {}
        self.came = asyncio.Event()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        seed, _, _ = HEADER.unpack_from(data)
        self.responses[seed] = data[HEADER.size :]
        self.came.set()

    def error_received(self, error: Exception) -> None:
        self.came.set()


async def udp(soak: Soak) -> None:
    """Send some requests, and repeat unanswered ones: datagrams may be lost."""
    client = DatagramClient()
    transport, _ = await soak.loop.create_datagram_endpoint(
        lambda: client, remote_addr=soak.addresses["udp"]
    )
    try:
        open_: dict[int, tuple[bytes, bytes]] = {}
        while len(open_) < DATAGRAMS_IN_FLIGHT:
            sent, wanted = request(soak, 9000)
            open_[HEADER.unpack_from(sent)[0]] = sent, wanted
        for _ in range(DATAGRAM_TRIES):
            for sent, _wanted in open_.values():
                transport.sendto(sent)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(DATAGRAM_SECONDS):
                    while not open_.keys() <= client.responses.keys():
                        client.came.clear()
                        await client.came.wait()
            for seed in open_.keys() & client.responses.keys():
                soak.same(client.responses[seed], open_.pop(seed)[1], "udp")
            if not open_:
                return
        raise ConnectionError(f"udp: {len(open_)} datagrams got no response")
    finally:
        transport.close()


PARTS: tuple[Part, ...] = (tcp, tcp, tls, tls, unix, starttls, kept_tls, udp)
