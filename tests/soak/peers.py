"""Bad peers: they stall, reset, half-close, flood, send noise, and cut connections within a record.

They use plain blocking sockets, in threads of the loop's executor, and never fail the run themselves:
the servers must stand them without a log line, and without a wrong byte to those that still read.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import time
from typing import TYPE_CHECKING, Any

from tests.soak.soak import HEADER, WrongBytesError, material
from tests.soak.streams import ask, closed, opened

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.soak.soak import Part, Soak

    Peer = Callable[[Soak, random.Random, str], None]

PEER_SECONDS = 30.0
FLOOD_REQUESTS = 3000
FLOOD_CONNECTIONS = 60
FLOOD_DATAGRAMS = 300
RESPONSE_BYTES = 900_000
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
# A first packet that is not what its header says: the server says so, a client at a time (docs/quic.md).
FORGED = (
    r"^ringloop\.quic: the handshake with .* failed: .*authentication failed|more handshakes failed"
)
# asyncio's words where an application goes on writing in the call that has met the reset: the many
# requests of a flood come in one call, if the loop did not run while they arrived.
WRITTEN_AFTER_RESET = r"^asyncio: socket\.send\(\) raised exception"
PLAIN = ("tcp", "tcp-buffered", "tcp-streams", "unix", "unix-streams")


def dial(soak: Soak, name: str) -> socket.socket:
    """Connect a blocking socket."""
    address = soak.addresses[name]
    sock = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
    try:
        # Without a timeout yet: with one the socket does not block, and a Unix socket is refused
        # at once (EAGAIN) while the server's backlog is full.
        sock.connect(address)
        sock.settimeout(PEER_SECONDS)
    except BaseException:
        sock.close()
        raise
    return sock


def reset(sock: socket.socket) -> None:
    """Close with a reset (TCP), or with bytes unread."""
    if sock.family == socket.AF_INET:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    sock.close()


def read_all(sock: socket.socket, size: int = 65_536) -> bytes:
    data = bytearray()
    while chunk := sock.recv(size):
        data += chunk
    return bytes(data)


async def in_thread(soak: Soak, peer: Peer, name: str) -> None:
    """Run a peer in a thread, with numbers of its own: the run's generator is the loop's."""
    numbers = random.Random(soak.rng.random())
    await soak.loop.run_in_executor(None, peer, soak, numbers, name)


def stall(soak: Soak, numbers: random.Random, name: str) -> None:
    """Ask for much, read nothing for a while, then read all of it or reset."""
    seed = numbers.randrange(1 << 40)
    with dial(soak, name) as sock:
        for number in range(3):
            sock.sendall(HEADER.pack(seed + number, 0, RESPONSE_BYTES))
        time.sleep(numbers.random())
        if numbers.random() < 0.5:
            reset(sock)
            return
        sock.shutdown(socket.SHUT_WR)
        wanted = b"".join(material(seed + number + 1, RESPONSE_BYTES) for number in range(3))
        soak.same(read_all(sock), wanted, f"stalled {name}")


def reset_within(soak: Soak, numbers: random.Random, name: str) -> None:
    """Reset in the middle of a request, or of its response."""
    seed, length = numbers.randrange(1 << 40), 200_000
    with dial(soak, name) as sock:
        whole = HEADER.pack(seed, length, length) + material(seed, length)
        end = numbers.choice((3, HEADER.size, 5000, len(whole)))
        sock.sendall(whole[:end])
        if end == len(whole):
            sock.recv(numbers.choice((1, 5000)))
        reset(sock)


def half_close(soak: Soak, numbers: random.Random, name: str) -> None:
    """Ask, end the own direction, and read the whole response afterwards."""
    seed = numbers.randrange(1 << 40)
    with dial(soak, name) as sock:
        sock.sendall(HEADER.pack(seed, 100, RESPONSE_BYTES) + material(seed, 100))
        sock.shutdown(socket.SHUT_WR)
        time.sleep(numbers.random() / 50)
        soak.same(read_all(sock), material(seed + 1, RESPONSE_BYTES), f"half-closed {name}")


def flood(soak: Soak, numbers: random.Random, name: str) -> None:
    """Send many small requests at once; read nothing, or everything at the end."""
    seed = numbers.randrange(1 << 40)
    wanted = b"".join(material(seed + number + 1, 300) for number in range(FLOOD_REQUESTS))
    sent = b"".join(
        HEADER.pack(seed + number, 10, 300) + material(seed + number, 10)
        for number in range(FLOOD_REQUESTS)
    )
    with dial(soak, name) as sock:
        sock.settimeout(0.5)
        try:
            sock.sendall(sent)
        except TimeoutError:
            # The server stopped reading, as it should while its answers are not taken.
            reset(sock)
            return
        sock.settimeout(PEER_SECONDS)
        sock.shutdown(socket.SHUT_WR)
        soak.same(read_all(sock), wanted, f"flooded {name}")


def flood_connections(soak: Soak, numbers: random.Random, name: str) -> None:
    """Open many connections at once, and close or reset them."""
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(dial(soak, name)) for _ in range(FLOOD_CONNECTIONS)]
        numbers.shuffle(socks)
        for sock in socks[::2]:
            reset(sock)


def noise(soak: Soak, numbers: random.Random, name: str) -> None:
    """Send what is no TLS, to a server of TLS."""
    with dial(soak, name) as sock, contextlib.suppress(OSError):
        sock.sendall(numbers.randbytes(numbers.choice((1, 100, 20_000))))
        if numbers.random() < 0.5:
            sock.shutdown(socket.SHUT_WR)
            read_all(sock)


def noise_datagrams(soak: Soak, numbers: random.Random, name: str) -> None:
    """Send datagrams that belong to no connection; long headers of QUIC among them."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _ in range(FLOOD_DATAGRAMS):
            begins = numbers.choice((b"", b"\xc0\x00\x00\x00\x01\x08", b"\x40", bytes(HEADER.size)))
            sock.sendto(begins + numbers.randbytes(numbers.randrange(1300)), soak.addresses[name])


def rude_requests(soak: Soak, numbers: random.Random, name: str) -> None:
    """Pipeline requests of HTTP/1, read none of the responses, or leave in the middle of a body."""
    one = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 5000\r\n\r\n" + bytes(5000)
    with dial(soak, name) as sock:
        sock.settimeout(0.5)
        with contextlib.suppress(OSError):
            sock.sendall(one * 50 if numbers.random() < 0.5 else one[: numbers.randrange(len(one))])
        reset(sock)


PEERS: dict[str, tuple[Peer, tuple[str, ...]]] = {
    "stall": (stall, PLAIN),
    "reset": (reset_within, PLAIN),
    "half_close": (half_close, PLAIN),
    "flood": (flood, PLAIN),
    "flood_connections": (flood_connections, (*PLAIN, "tls", "http")),
    "noise": (noise, ("tls", "tls-streams", "starttls", "https")),
    "noise_datagrams": (noise_datagrams, ("udp", "h3")),
    "rude_requests": (rude_requests, ("http",)),
}


async def against(soak: Soak, peer: Peer, name: str) -> None:
    """Run a peer against a server, until what it sent has been received."""
    is_forged = peer is noise_datagrams and name == "h3"
    with soak.expecting(FORGED if is_forged else WRITTEN_AFTER_RESET):
        try:
            await in_thread(soak, peer, name)
        except OSError:
            # Where descriptors are short, what it has left is accepted when some are there again.
            await asyncio.sleep(2)
            raise
        # The server may have yet to accept the connection, to read what was sent and to meet the reset.
        for _ in range(5):
            await asyncio.sleep(0.01)
        if is_forged:
            # The rest of them are counted on a line, once a second is over.
            await asyncio.sleep(2)


async def bad_peer(soak: Soak) -> None:
    """Run one of the peers against one of its servers."""
    kind = soak.rng.choice(list(PEERS))
    peer, names = PEERS[kind]
    name = soak.rng.choice(names)
    try:
        await against(soak, peer, name)
    except Exception as error:
        error.add_note(f"{kind} at {name}")
        raise


class Relay:
    """Forwards one connection both ways, up to a number of bytes from the server; then cuts it."""

    def __init__(self, soak: Soak, name: str, *, limit: int, with_reset: bool) -> None:
        self.soak, self.name = soak, name
        self.limit, self.with_reset = limit, with_reset
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(0.1)
        self.address = self._listener.getsockname()
        # Until the client has ended, or was not able to connect.
        self.is_wanted = True

    def run(self) -> None:
        """Serve one connection to its end."""
        client = None
        with self._listener:
            while client is None and self.is_wanted:
                with contextlib.suppress(TimeoutError):
                    client, _ = self._listener.accept()
        if client is None:
            return
        with client, dial(self.soak, self.name) as server:
            left = self.limit
            for sock in (client, server):
                sock.settimeout(0.02)
            until = time.monotonic() + PEER_SECONDS
            with contextlib.suppress(OSError):
                while left and time.monotonic() < until:
                    self._move(client, server, 1 << 16)
                    left -= self._move(server, client, min(left, 1 << 14))
            if self.with_reset:
                reset(client)

    @staticmethod
    def _move(source: socket.socket, target: socket.socket, most: int) -> int:
        try:
            data = source.recv(most)
        except TimeoutError:
            return 0
        if not data:
            raise ConnectionError("one end has closed")
        target.settimeout(PEER_SECONDS)
        target.sendall(data)
        target.settimeout(0.02)
        return len(data)


async def cut(soak: Soak) -> None:
    """Ask through a relay that cuts the connection at random."""
    name = soak.rng.choice(("tls", "tls-streams", "tcp", "tcp-buffered"))
    # The handshake of TLS takes some 1,000 bytes of the server's.
    limit = soak.rng.choice((0, 300, 1500, 3000, 17_000, 60_000))
    await cut_at(soak, name, limit, with_reset=soak.rng.random() < 0.5)


async def cut_at(soak: Soak, name: str, limit: int, *, with_reset: bool) -> None:
    """Ask through a relay that cuts: the bytes until then are right, and the end is told."""
    relay = Relay(soak, name, limit=limit, with_reset=with_reset)
    running = soak.loop.run_in_executor(None, relay.run)
    seed = soak.rng.randrange(1 << 40)
    try:
        with soak.telling("cut"):
            reader, writer = await opened(soak, name, relay.address)
            try:
                writer.write(HEADER.pack(seed, 0, RESPONSE_BYTES))
                await _read_until_cut(soak, reader, material(seed + 1, RESPONSE_BYTES), name)
            finally:
                await closed(writer)
    finally:
        relay.is_wanted = False
        await asyncio.wait([running])
    running.result()


async def _read_until_cut(soak: Soak, reader: Any, wanted: bytes, name: str) -> None:
    got = 0
    while chunk := await reader.read(100_000):
        soak.same(chunk, wanted[got : got + len(chunk)], f"cut {name}")
        got += len(chunk)
    if got == len(wanted):
        raise WrongBytesError(f"cut {name}: all {got} bytes came, past the cut")
    raise EOFError


async def after_faults(soak: Soak) -> None:
    """Ask every stream server: what bad peers do to their connections ends with them."""
    for name in (*PLAIN, "tls", "tls-streams"):
        reader, writer = await opened(soak, name)
        try:
            await ask(soak, reader, writer, f"{name} after faults", 3000)
        finally:
            await closed(writer)


PARTS: tuple[Part, ...] = (bad_peer, bad_peer, bad_peer, cut, after_faults)
