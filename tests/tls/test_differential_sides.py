"""Random sequences on a TLS connection of either side: asyncio and ours call the protocol alike.

`test_differential_tls` covers the upgrade itself. The peer is `ssl.SSLObject` over a plain socket, so
the comparison includes what it received and how its stream ended. Half of the connections are upgraded
by `start_tls` after plain data, half are the server's side, and both engines to libssl are used.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import ssl
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support import differential
from tests.support.differential import Reacting
from tests.support.tcp import Recorder, exceptions_of, pattern, socket_pair
from tests.support.tls import TlsPeer

if TYPE_CHECKING:
    from tests.support import LoopFactory
    from tests.support.differential import Step
    from tests.support.tls import Certificates

pytestmark = pytest.mark.usefixtures("tls_engine")

STEPS = 14

# How often each step is drawn. What the peer sends at once fits one receive of any kind.
STEP_WEIGHTS = {
    "write": 6,
    "writelines": 2,
    "peer sends": 8,
    "peer sends records": 3,
    "pause": 3,
    "resume": 4,
    "react": 4,
    "swap": 2,
    "limits": 1,
    "peer says goodbye": 2,
    "peer ends": 1,
    "peer closes": 1,
    "peer resets": 1,
    "peer sends garbage": 1,
    "write_eof": 1,
    "close": 2,
    "abort": 1,
    "write and close": 1,
}


class Buffering(Recorder, asyncio.BufferedProtocol):
    """Records callbacks, and receives into a small buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = bytearray(1000)
        self.reaction = "nothing"

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self.buffer[:nbytes]
        self.note(f"buffer_updated {nbytes}")


class Play(differential.TransportPlay):
    """One sequence on one connection."""

    reactions = ("nothing", "echo", "close", "abort", "pause", "raise", "write and close")

    def __init__(self, transport: Any, protocol: Recorder, peer: TlsPeer) -> None:
        self.transport = transport
        self.protocol = protocol
        self.peer = peer
        self.peer_received = bytearray()
        self.trace: list[Any] = []
        self.ended = False

    async def play(self, steps: list[Step]) -> list[Any]:
        # A server sends tickets after its handshake.
        await self.settle()
        for step in steps:
            before = len(self.protocol.events)
            raised = self.one(step)
            await self.settle()
            self.trace.append(
                (
                    step,
                    raised,
                    self.protocol.events[before:],
                    type(self.protocol.reason).__name__,
                    bytes(self.protocol.data),
                    bytes(self.peer_received),
                    self.transport.is_closing(),
                    self.ask("is_reading"),
                    self.ask("get_write_buffer_size"),
                )
            )
            self.protocol.data.clear()
            self.peer_received.clear()
        return self.trace

    def ask(self, method: str) -> Any:
        """Call a method; after a second `close()` most of them fail."""
        try:
            return getattr(self.transport, method)()
        except AttributeError as error:
            return type(error)

    def one(self, step: Step) -> str:
        try:
            self.act(*step)
        except (OSError, RuntimeError, AttributeError) as error:
            return type(error).__name__
        return ""

    def act(self, name: str, number: int) -> None:
        if name.startswith("peer "):
            self.act_as_peer(name, number)
            return
        transport = self.transport
        match name:
            # A transport that is closed, or at EOF, accepts these too.
            case "writelines":
                transport.writelines([b"<", pattern(number // 2), b"", bytearray(b">")])
            case "pause" | "resume":
                getattr(transport, f"{name}_reading")()
            case "swap":
                self.swap_to(Buffering() if number % 3 == 0 else Reacting())
            case "limits":
                transport.set_write_buffer_limits(high=number)
            case _:
                self.act_on_transport(name, number)

    def swap_to(self, after: Recorder) -> None:
        buffer = getattr(after, "buffer", None)
        self.swap(after)
        if buffer is not None:
            after.buffer = buffer  # type: ignore[attr-defined]

    def act_as_peer(self, name: str, number: int) -> None:
        peer = self.peer
        match name:
            case "peer sends":
                peer.sock.sendall(peer.encrypted(pattern(number, number)))
            case "peer sends records":
                records = [pattern(size, size) for size in (1, 100, number // 2 + 1)]
                peer.sock.sendall(peer.encrypted(*records))
            case "peer says goodbye":
                with contextlib.suppress(ssl.SSLWantReadError):
                    peer.tls.unwrap()
                peer.sock.sendall(peer.outgoing.read())
            case "peer sends garbage":
                peer.sock.sendall(bytes(range(100)))
            case "peer ends":
                peer.shut_down()
            case "peer closes":
                peer.close()
            case "peer resets":
                peer.reset()

    def progress(self) -> tuple[object, ...]:
        return len(self.protocol.events), len(self.protocol.data), len(self.peer_received)

    def take(self) -> None:
        """Decrypt what the peer has received, and note how its stream ends."""
        while not self.ended and self.peer.sock.fileno() != -1:
            try:
                chunk = self.peer.received()
            except OSError:
                chunk = b""
            if chunk is None:
                return
            if chunk:
                self.peer.incoming.write(chunk)
            self.decrypt()
            if not chunk:
                self.ended = True
                self.protocol.note("peer: end")

    def decrypt(self) -> None:
        with contextlib.suppress(ssl.SSLError):
            while plain := self.peer.tls.read(65536):
                self.peer_received += plain
            self.protocol.note("peer: close_notify")


def sequence(seed: int) -> list[Step]:
    chance = random.Random(seed)
    return differential.sized(chance, differential.draw(chance, STEP_WEIGHTS, STEPS), 13)


async def connect(seed: int, certificates: Certificates) -> tuple[Any, Any, Any, TlsPeer]:
    """Open the connection of a seed; return its socket, transport, protocol and peer."""
    loop: Any = asyncio.get_running_loop()
    ours, theirs = socket_pair()
    server_side, upgraded = bool(seed % 2), bool(seed // 2 % 2)
    if server_side:
        peer = TlsPeer(theirs, certificates.client(), server_hostname="localhost")
        context, hostname = certificates.server(), None
    else:
        peer = TlsPeer(theirs, certificates.server(), server_side=True)
        context, hostname = certificates.client(), "localhost"
    if upgraded:
        transport, protocol = await loop.create_connection(Reacting, sock=ours)
        transport.write(b"plain")
        assert await peer.receive(5) == b"plain"
        connecting = loop.start_tls(
            transport, protocol, context, server_side=server_side, server_hostname=hostname
        )
        transport, _ = await asyncio.gather(connecting, peer.handshake())
        protocol.transport = transport
    elif server_side:
        connecting = loop.connect_accepted_socket(Reacting, ours, ssl=context)
        (transport, protocol), _ = await asyncio.gather(connecting, peer.handshake())
    else:
        connecting = loop.create_connection(
            Reacting, sock=ours, ssl=context, server_hostname=hostname
        )
        (transport, protocol), _ = await asyncio.gather(connecting, peer.handshake())
    return ours, transport, protocol, peer


def heading(message: str) -> str:
    """Return a report without the name of the callback, which differs between loops."""
    return message.partition(" in callback ")[0]


def play(factory: LoopFactory, seed: int, certificates: Certificates) -> list[Any]:
    async def main(_: asyncio.AbstractEventLoop) -> list[Any]:
        ours, transport, protocol, peer = await connect(seed, certificates)
        played = Play(transport, protocol, peer)
        # A transport that was closed twice has dropped it.
        lower = transport._ssl_protocol._transport
        with exceptions_of(asyncio.get_running_loop()) as contexts:
            trace = await played.play(sequence(seed))
            peer.close()
            lower.abort()
            await support.wait_until(lambda: ours.fileno() == -1, "the socket to be closed")
        return [*trace, [(heading(c["message"]), type(c["exception"]).__name__) for c in contexts]]

    return differential.run(factory, main)


@functools.cache
def oracle(seed: int, certificates: Certificates) -> list[Any]:
    """Return what asyncio does; it has one engine only, so it runs once for all of ours."""
    return play(support.loop_factory(support.ORACLE), seed, certificates)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("driver", support.DRIVERS)
def test_callbacks_are_those_of_asyncio(
    driver: str, certificates: Certificates, leak_check: None
) -> None:
    differential.compare(
        driver,
        lambda factory, seed: play(factory, seed, certificates),
        sequence,
        lambda seed: oracle(seed, certificates),
    )
