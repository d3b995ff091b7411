"""Random sequences of operations on one connection: asyncio and ours call the protocol alike."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.support import differential
from tests.support.differential import Reacting, Step
from tests.support.tcp import Peer, closed, exceptions_of, pattern, socket_pair

if TYPE_CHECKING:
    import asyncio

    from tests.support import LoopFactory

STEPS = 14

# How often each step is drawn. Sizes fit the kernel's buffers: how much fits beyond that depends on
# the kernel, and other tests cover it.
STEP_WEIGHTS = {
    "write": 6,
    "writelines": 2,
    "peer sends": 8,
    "pause": 3,
    "resume": 4,
    "react": 4,
    "swap": 2,
    "peer ends": 1,
    "peer closes": 1,
    "peer resets": 1,
    "write_eof": 1,
    "close": 1,
    "abort": 1,
    "write and close": 1,
}
REACTIONS = ("nothing", "echo", "close", "abort", "pause", "raise", "write and close", "write_eof")


class Play(differential.TransportPlay):
    """One sequence on one connection."""

    reactions = REACTIONS

    def __init__(self, transport: Any, protocol: Reacting, peer: Peer) -> None:
        self.transport = transport
        self.protocol = protocol
        self.peer = peer
        self.peer_received = bytearray()
        self.trace: list[Any] = []
        self.eof = False
        self.sent_in_pause = False

    async def play(self, steps: list[Step]) -> list[Any]:
        for step in steps:
            before = len(self.protocol.events)
            raised = await self.one(step)
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
                    self.transport.is_reading(),
                )
            )
            self.protocol.data.clear()
            self.peer_received.clear()
        return self.trace

    async def one(self, step: Step) -> str:
        try:
            self.act(*step)
        except (OSError, RuntimeError) as error:
            return type(error).__name__
        return ""

    def act(self, name: str, number: int) -> None:
        if name.startswith("peer "):
            self.act_as_peer(name, number)
        else:
            self.act_on_transport(name, number)

    def act_as_peer(self, name: str, number: int) -> None:
        match name:
            case "peer sends":
                # The kernel decides how queued chunks are split, and a reaction would depend on it:
                # one chunk per pause, which fits one receive of any kind.
                if self.transport.is_reading() or not self.sent_in_pause:
                    self.peer.sock.sendall(pattern(number, number))
                self.sent_in_pause = not self.transport.is_reading()
            case "peer ends":
                self.protocol.keep_open_after_eof = bool(number % 2)
                self.peer.shut_down()
            case "peer closes":
                self.peer.close()
            case "peer resets":
                self.peer.reset()

    def progress(self) -> tuple[object, ...]:
        return len(self.protocol.events), len(self.protocol.data), len(self.peer_received)

    def take(self) -> None:
        """Read what the peer has received, and note how its stream ends."""
        while not self.eof and self.peer.sock.fileno() != -1:
            try:
                chunk = self.peer.received()
            except OSError:
                # Closing with unread bytes in the kernel turns the EOF into a reset; a ring may
                # have received them during a pause already.
                chunk = b""
            if chunk is None:
                return
            if not chunk:
                self.eof = True
                self.protocol.note("peer: end")
            self.peer_received += chunk


def sequence(seed: int) -> list[Step]:
    chance = random.Random(seed)
    return differential.sized(chance, differential.draw(chance, STEP_WEIGHTS, STEPS), 13)


def play(factory: LoopFactory, seed: int) -> list[Any]:
    async def main(loop: asyncio.AbstractEventLoop) -> list[Any]:
        ours, theirs = socket_pair()
        peer = Peer(theirs)
        transport, protocol = await loop.create_connection(Reacting, sock=ours)
        played = Play(transport, protocol, peer)
        with exceptions_of(loop) as contexts:
            trace = await played.play(sequence(seed))
            peer.close()
            if transport.get_extra_info("socket").fileno() != -1:
                transport.abort()
            await closed(transport)
        return [*trace, [(c["message"], type(c["exception"]).__name__) for c in contexts]]

    return differential.run(factory, main)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("driver", support.DRIVERS)
def test_callbacks_are_those_of_asyncio(driver: str, leak_check: None) -> None:
    differential.compare(driver, play, sequence)
