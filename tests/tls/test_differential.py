"""Random sequences with an upgrade to TLS in the middle: asyncio and ours call the protocol alike.

The other end is a plain socket with an `ssl.SSLObject`, driven by the test between the steps.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support import differential
from tests.support.differential import Reacting, Step
from tests.support.tcp import closed, exceptions_of, pattern, socket_pair
from tests.support.tls import Certificates, TlsPeer

if TYPE_CHECKING:
    from tests.support import LoopFactory

    Contexts = tuple[ssl.SSLContext, ssl.SSLContext]

STEPS_BEFORE, STEPS_AFTER = 3, 12
BEFORE = {"write": 4, "peer sends": 4, "pause": 1, "resume": 2}
UPGRADES = {
    "upgrade": 12,
    "upgrade, cancelled": 2,
    "upgrade, peer silent": 2,
    "upgrade, garbage": 1,
    "upgrade, peer closes": 1,
    "upgrade, not trusted": 1,
}
AFTER = {
    "write": 6,
    "writelines": 2,
    "peer sends": 8,
    "pause": 3,
    "resume": 5,
    "react": 4,
    "swap": 2,
    "cancel": 1,
    "peer says goodbye": 1,
    "peer closes": 1,
    "peer resets": 1,
    "close": 1,
    "abort": 1,
    "write and close": 1,
}
REACTIONS = ("nothing", "echo", "close", "abort", "pause", "raise", "write and close")


class PumpedPeer(TlsPeer):
    """The peer, driven from outside and never waiting."""

    def __init__(self, sock: Any, context: ssl.SSLContext, **wrap: Any) -> None:
        super().__init__(sock, context, **wrap)
        # "plain", "silent", "handshake", "open", "ended"
        self.state = "plain"
        self.notes: list[str] = []
        self.plaintext = bytearray()

    def pump(self) -> None:
        """Read what has arrived, and answer."""
        while self.sock.fileno() != -1:
            try:
                chunk = self.received()
            except OSError:
                chunk = b""
            if chunk is None:
                break
            if not chunk:
                self.note_once("peer: end")
                break
            if self.state == "plain":
                self.plaintext += chunk
            elif self.state != "silent":
                self.incoming.write(chunk)
        if self.state in ("handshake", "open"):
            self.step()

    def step(self) -> None:
        try:
            if self.state == "handshake":
                self.tls.do_handshake()
                self.state = "open"
                self.notes.append("peer: shaken")
            while chunk := self.tls.read(65536):
                self.plaintext += chunk
            self.note_once("peer: close_notify")
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self.state = "ended"
            self.notes.append(f"peer: {type(error).__name__}")
        self.flush()

    def note_once(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def flush(self) -> None:
        if (data := self.outgoing.read()) and self.sock.fileno() != -1:
            try:
                self.sock.sendall(data)
            except OSError:
                self.note_once("peer: cannot send")

    def say(self, data: bytes) -> None:
        if self.state == "plain":
            self.sock.sendall(data)
        elif self.state == "open" and "peer: goodbye" not in self.notes:
            self.tls.write(data)
            self.flush()

    def goodbye(self) -> None:
        if self.state == "open" and "peer: goodbye" not in self.notes:
            self.notes.append("peer: goodbye")
            # It wants to read if the other close_notify has not arrived yet.
            with contextlib.suppress(ssl.SSLError):
                self.tls.unwrap()
            self.flush()


class Play(differential.TransportPlay):
    """One sequence on one connection."""

    reactions = REACTIONS

    def __init__(self, transport: Any, peer: PumpedPeer, contexts: Contexts, upgrade: Any) -> None:
        self.transport = transport
        self.protocol = transport.get_protocol()
        self.peer = peer
        self.upgrade = upgrade
        self.upgrading: asyncio.Task[Any] | None = None

    async def play(self, steps: list[Step]) -> list[Any]:
        trace = []
        for step in steps:
            before = len(self.protocol.events), len(self.peer.notes)
            raised = await self.one(step)
            await self.settle()
            trace.append(
                (
                    step,
                    raised,
                    self.protocol.events[before[0] :],
                    self.peer.notes[before[1] :],
                    type(self.protocol.reason).__name__,
                    bytes(self.protocol.data),
                    bytes(self.peer.plaintext),
                    self.transport.is_closing(),
                    self.upgraded(),
                )
            )
            self.protocol.data.clear()
            self.peer.plaintext.clear()
        return trace

    def was_closed(self) -> bool:
        """Say whether asyncio's TLS transport has released its protocol: then any call raises."""
        return self.upgraded() == "upgraded" and bool(self.transport.is_closing())

    def upgraded(self) -> str:
        """Return the outcome of the upgrade, and switch to its transport."""
        task = self.upgrading
        if task is None or not task.done():
            return "plain" if task is None else "waiting"
        if task.cancelled():
            return "cancelled"
        if error := task.exception():
            return type(error).__name__
        self.transport = task.result()
        return "upgraded"

    async def one(self, step: Step) -> str:
        try:
            await self.act(*step)
        except (OSError, RuntimeError) as error:
            return type(error).__name__
        return ""

    async def act(self, name: str, number: int) -> None:
        if name.startswith("upgrade"):
            await self.begin_upgrade(name)
        elif name.startswith("peer "):
            self.act_as_peer(name, number)
        elif self.upgrading is not None and not self.upgrading.done():
            if name == "cancel":
                self.upgrading.cancel()
        elif name in ("close", "abort") or not (name == "cancel" or self.was_closed()):
            self.act_on_transport(name, number)

    async def begin_upgrade(self, name: str) -> None:
        if self.transport.is_closing():
            return
        self.transport.resume_reading()
        await self.settle()
        self.upgrading = asyncio.ensure_future(self.upgrade(self.transport, self.protocol, name))
        # After its first step, incoming data belongs to the handshake.
        await asyncio.sleep(0)
        match name:
            case "upgrade, cancelled":
                self.peer.state = "silent"
                self.upgrading.cancel()
            case "upgrade, peer silent":
                self.peer.state = "silent"
            case "upgrade, garbage":
                self.peer.state = "ended"
                self.peer.sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            case "upgrade, peer closes":
                self.peer.close()
            case _:
                self.peer.state = "handshake"

    def act_as_peer(self, name: str, number: int) -> None:
        match name:
            case "peer sends":
                self.peer.say(pattern(number, number))
            case "peer says goodbye":
                self.peer.goodbye()
            case "peer closes":
                self.peer.close()
            case "peer resets":
                self.peer.reset()

    def take(self) -> None:
        self.peer.pump()

    def progress(self) -> tuple[object, ...]:
        waits = self.upgrading is not None and not self.upgrading.done()
        counted = (self.protocol.events, self.protocol.data, self.peer.notes, self.peer.plaintext)
        return (waits, *map(len, counted))


def sequence(seed: int) -> tuple[bool, list[Step]]:
    """Draw the loop's side of TLS, and the steps."""
    chance = random.Random(seed)
    server_side = chance.random() < 0.5
    stages = ((BEFORE, STEPS_BEFORE), (UPGRADES, 1), (AFTER, STEPS_AFTER))
    names = [name for stage in stages for name in differential.draw(chance, *stage)]
    return server_side, differential.sized(chance, names, 15)


def play(factory: LoopFactory, seed: int, certificates: Certificates) -> list[Any]:
    server_side, steps = sequence(seed)
    server, client = certificates.server(), certificates.client()
    suspicious = ssl.create_default_context()

    async def upgrade(transport: Any, protocol: Any, name: str) -> Any:
        loop = asyncio.get_running_loop()
        refused = name == "upgrade, not trusted"
        if server_side:
            return await loop.start_tls(transport, protocol, server, server_side=True)
        context = suspicious if refused else client
        return await loop.start_tls(transport, protocol, context, server_hostname="localhost")

    async def main(loop: asyncio.AbstractEventLoop) -> list[Any]:
        ours, theirs = socket_pair()
        if server_side:
            peer = PumpedPeer(theirs, client, server_hostname="localhost")
        else:
            peer = PumpedPeer(theirs, server, server_side=True)
        transport, _ = await loop.create_connection(Reacting, sock=ours)
        played = Play(transport, peer, (server, client), upgrade)
        with exceptions_of(loop) as contexts:
            trace = await played.play(steps)
            peer.close()
            if ours.fileno() != -1:
                played.transport.abort()
            await closed(transport)
            if played.upgrading is not None:
                await asyncio.gather(played.upgrading, return_exceptions=True)
        return [*trace, [(c["message"], type(c.get("exception")).__name__) for c in contexts]]

    return differential.run(factory, main)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("driver", support.DRIVERS)
def test_callbacks_of_an_upgrade_are_those_of_asyncio(
    driver: str, certificates: Certificates, leak_check: None
) -> None:
    differential.compare(driver, lambda factory, seed: play(factory, seed, certificates), sequence)
