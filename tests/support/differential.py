"""Random sequences of operations: asyncio and our loops must call the protocols alike.

Each sequence is run step by step, and after each step the loop runs until nothing more happens, so
that the comparison covers calls and their order, not speed. A failure prints the seed and the
sequence; `RINGLOOP_TEST_SEED` repeats it.

Owns: the seeds, drawing and comparing sequences, and the operations common to all of them.
Called by: the `test_differential_*` modules, which define the steps of a sequence.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from typing import TYPE_CHECKING, Any

from tests import support
from tests.support.tcp import Recorder, pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from tests.support import LoopFactory

SEED = os.environ.get("RINGLOOP_TEST_SEED")
# The same sequences in every run, so that a failure comes from a change and not from chance;
# `RINGLOOP_TEST_SEED=random` draws others.
SEEDS = (
    [random.SystemRandom().randrange(1 << 32) for _ in range(60)]
    if SEED == "random"
    else [int(SEED)]
    if SEED
    else list(range(60))
)

# Late events are not a difference: a sequence that differs is run again with more patience, and the
# last run decides. On a busy machine the kernel thread that delivers on loopback may have to wait.
PATIENCE_TURNS = (50, 500)

Step = tuple[str, int]


class Reacting(Recorder):
    """Records callbacks, and performs an action in the next `data_received`."""

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


def draw(chance: random.Random, weights: dict[str, int], count: int) -> list[str]:
    """Draw names by weight."""
    return chance.choices(list(weights), list(weights.values()), k=count)


def sized(chance: random.Random, names: list[str], exponent: int) -> list[Step]:
    """Give each name a number below two to the power of `exponent`, small ones as often as large."""
    return [(name, int(2 ** chance.uniform(0, exponent))) for name in names]


class Play:
    """The target of a sequence, one step after another."""

    # Rounds of half a millisecond without a change: the kernel's loopback is immediate, unless the
    # machine is busy.
    quiet_turns = 4

    async def settle(self) -> None:
        """Run until nothing has happened for a while."""
        quiet = 0
        while quiet < Play.quiet_turns:
            before = self.progress()
            await asyncio.sleep(0.0005)
            self.take()
            quiet = quiet + 1 if before == self.progress() else 0

    def progress(self) -> tuple[object, ...]:
        """Return counters that change while something happens."""
        raise NotImplementedError

    def take(self) -> None:
        """Receive what has arrived at the peers."""


class TransportPlay(Play):
    """A sequence on one transport, whose protocol may be replaced."""

    transport: Any
    protocol: Any
    reactions: tuple[str, ...]

    def act_on_transport(self, name: str, number: int) -> None:
        """Perform one step on the transport; its method names are steps too."""
        transport = self.transport
        match name:
            case "write":
                transport.write(pattern(number, number))
            case "writelines" if transport.is_closing():
                pass  # since 3.12, asyncio raises inside
            case "writelines":
                transport.writelines([b"<", pattern(number // 2), bytearray(b">")])
            case "react":
                self.protocol.reaction = self.reactions[number % len(self.reactions)]
            case "pause" | "resume" if "eof_received" in self.protocol.events:
                pass  # asyncio's resume_reading() finds EOF once more
            case "pause" | "resume":
                getattr(transport, f"{name}_reading")()
            case "swap":
                self.swap(Reacting())
            case "write and close":
                transport.write(pattern(number, number))
                transport.close()
                transport.write(b"never")
            case _:
                getattr(transport, name)()

    def swap(self, after: Recorder) -> None:
        """Switch to another protocol, which takes over the records."""
        after.__dict__.update(self.protocol.__dict__)
        self.protocol = after
        self.transport.set_protocol(after)


def run(
    factory: LoopFactory,
    main: Callable[[asyncio.AbstractEventLoop], Coroutine[Any, Any, list[Any]]],
) -> list[Any]:
    """Run `main(loop)` on a loop of its own."""
    loop = factory()
    try:
        return loop.run_until_complete(main(loop))
    finally:
        support.close_loop(loop)


def compare(
    driver: str,
    play: Callable[[LoopFactory, int], list[Any]],
    steps: Callable[[int], object],
    oracle: Callable[[int], list[Any]] | None = None,
) -> None:
    """Run every seed on asyncio and on ours; the traces must be equal.

    `steps` shows the sequence of a seed; `oracle` is the result of asyncio, if already known.
    """
    factory = support.loop_factory(support.usable_loop(f"ringloop-{driver}"))
    asyncio_factory = support.loop_factory(support.ORACLE)
    for seed in SEEDS:
        expected = oracle(seed) if oracle else play(asyncio_factory, seed)
        got = play(factory, seed)
        for turns in PATIENCE_TURNS:
            if got == expected:
                break
            with patience(turns):
                expected, got = play(asyncio_factory, seed), play(factory, seed)
        for number, (theirs, ours) in enumerate(zip(expected, got, strict=True)):
            assert ours == theirs, (
                f"step {number} of RINGLOOP_TEST_SEED={seed}: {steps(seed)}\n{theirs=}\n{ours=}"
            )


@contextlib.contextmanager
def patience(turns: int) -> Iterator[None]:
    """Make every step settle for this many rounds of half a millisecond."""
    before, Play.quiet_turns = Play.quiet_turns, turns
    try:
        yield
    finally:
        Play.quiet_turns = before
