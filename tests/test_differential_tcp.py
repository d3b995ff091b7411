"""Random sequences of operations on one connection: asyncio and ours call the protocol alike.

Each sequence is played step by step, and after each step the loop runs until nothing more happens, so
that what is compared is what was called and in which order, not how fast. The oracle plays it first.
A failure prints the seed and the sequence; `RINGLOOP_TEST_SEED` plays one again.
"""

from __future__ import annotations

import asyncio
import os
import random
from typing import TYPE_CHECKING, Any

import pytest

from tests import support
from tests.tcp import Peer, Recorder, closed, exceptions_of, pattern, socket_pair

if TYPE_CHECKING:
    from collections.abc import Callable

SEED = os.environ.get("RINGLOOP_TEST_SEED")
# The same sequences in every run, so that a failure is the change's and not the day's;
# `RINGLOOP_TEST_SEED=random` plays others.
SEEDS = (
    [random.SystemRandom().randrange(1 << 32) for _ in range(60)]
    if SEED == "random"
    else [int(SEED)]
    if SEED
    else list(range(60))
)
STEPS = 14

Step = tuple[str, int]

# How often each step is drawn. Sizes stay below what the kernel takes: what does not fit is another
# test's topic, because how much fits is the kernel's affair.
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


class Reacting(Recorder):
    """Note callbacks, and do something in the next `data_received`."""

    reaction = "nothing"

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        reaction, self.reaction = self.reaction, "nothing"
        match reaction:
            case "echo":
                self.transport.write(data[:100])
            case "close" | "abort" | "write_eof":
                getattr(self.transport, reaction)()
            case "pause":
                self.transport.pause_reading()
            case "raise":
                raise ZeroDivisionError
            case "write and close":
                self.transport.write(b"bye")
                self.transport.close()
                self.transport.write(b"never")


class Play:
    """One sequence on one connection."""

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
            return
        transport = self.transport
        match name:
            case "write":
                transport.write(pattern(number, number))
            case "writelines" if transport.is_closing():
                pass  # since 3.12, asyncio fails inside
            case "writelines":
                transport.writelines([b"<", pattern(number // 2), bytearray(b">")])
            case "react":
                self.protocol.reaction = REACTIONS[number % len(REACTIONS)]
            case "pause" | "resume" if "eof_received" in self.protocol.events:
                pass  # asyncio's resume_reading() finds the end of the stream once more
            case "pause" | "resume":
                getattr(transport, f"{name}_reading")()
            case "swap":
                after = Reacting()
                after.__dict__.update(self.protocol.__dict__)
                self.protocol = after
                transport.set_protocol(after)
            case "write and close":
                transport.write(pattern(number, number))
                transport.close()
                transport.write(b"never")
            case _:
                getattr(transport, name)()

    def act_as_peer(self, name: str, number: int) -> None:
        match name:
            case "peer sends":
                # How several pieces that wait are cut is the kernel's affair, and a reaction would
                # show it: one piece a pause, which fits one receive of any kind.
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

    async def settle(self) -> None:
        """Run until nothing has happened for a while; the kernel's loopback is immediate."""
        quiet = 0
        while quiet < 4:
            before = len(self.protocol.events), len(self.protocol.data), len(self.peer_received)
            await asyncio.sleep(0.0005)
            self.take()
            after = len(self.protocol.events), len(self.protocol.data), len(self.peer_received)
            quiet = quiet + 1 if before == after else 0

    def take(self) -> None:
        """Move what the peer has received, and note how its stream ends."""
        while not self.eof and self.peer.sock.fileno() != -1:
            try:
                chunk = self.peer.received()
            except OSError:
                # Closing with unread bytes in the kernel makes a reset of the end; a ring may have
                # received them during a pause already.
                chunk = b""
            if chunk is None:
                return
            if not chunk:
                self.eof = True
                self.protocol.note("peer: end")
            self.peer_received += chunk


def sequence(seed: int) -> list[Step]:
    chance = random.Random(seed)
    names = chance.choices(list(STEP_WEIGHTS), list(STEP_WEIGHTS.values()), k=STEPS)
    return [(name, int(2 ** chance.uniform(0, 13))) for name in names]


def play(factory: Callable[[], asyncio.AbstractEventLoop], steps: list[Step]) -> list[Any]:
    loop = factory()

    async def main() -> list[Any]:
        ours, theirs = socket_pair()
        peer = Peer(theirs)
        transport, protocol = await loop.create_connection(Reacting, sock=ours)
        played = Play(transport, protocol, peer)
        with exceptions_of(loop) as contexts:
            trace = await played.play(steps)
            peer.close()
            if transport.get_extra_info("socket").fileno() != -1:
                transport.abort()
            await closed(transport)
        return [*trace, [(c["message"], type(c["exception"]).__name__) for c in contexts]]

    try:
        return loop.run_until_complete(main())
    finally:
        support.close_loop(loop)


@pytest.mark.parametrize("driver", support.DRIVERS)
def test_callbacks_are_those_of_asyncio(driver: str, leak_check: None) -> None:
    name = support.usable_loop(f"ringloop-{driver}")
    for seed in SEEDS:
        steps = sequence(seed)
        expected = play(support.loop_factory(support.ORACLE), steps)
        got = play(support.loop_factory(name), steps)
        for number, (theirs, ours) in enumerate(zip(expected, got, strict=True)):
            assert ours == theirs, f"step {number} of RINGLOOP_TEST_SEED={seed}: {steps}"
